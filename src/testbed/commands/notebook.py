"""The testbed from Python: evaluate models, read stored results and logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.data.samples import fingerprint_of
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.entries.registry import Registry, load_registry
from testbed.errors import EntryError, StoreError, TestbedError, UnknownName, near_names
from testbed.models.modes import modes_kept

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from testbed.store.database import Store
    from testbed.store.evaluation import Evaluation, Number
    from testbed.store.outputs import Outputs

_COLUMNS = ("model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n")
# Columns by which results of one model, setting and metric differ, or are to be read.
_MARKS = ("unit", "better", "variant", "version", "source")


def evaluate(
    models: Any,
    eval_settings: Any,
    *,
    transform: Any = None,
    normalization: Any = None,
    name: str | None = None,
    gpus: Sequence[str | int] | str | int = (),
    db: str | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    registry: Sequence[str] = (),
    data_root: Sequence[str] | str = (),
    **options: Any,
) -> pd.DataFrame:
    """Run models on settings and return their results as a table. Stored results are not computed again.

    `models` and `eval_settings` are names as on the command line, Model and EvalSetting objects, or lists of these. A
    bare torch module is given with `transform`, `normalization` and `name` as needed; it is run again if its weights,
    transform or normalization differ from those of the stored result. If pairs fail, one error names the first of them.
    `options` are the fields of RunOptions: batch_size, limit, workers, seed, ...
    """
    from testbed.commands.run_report import numbers_of_pairs
    from testbed.data.locate import data_roots
    from testbed.engine.devices import chosen_devices
    from testbed.engine.run import run_evaluations
    from testbed.options import RunOptions
    from testbed.store.opening import open_store

    entries = load_registry(registry)
    bare: dict[str, Any] = {}  # name -> module that came without a Model

    def as_model(given: Any) -> Model:
        entry = _as_model(given, transform, normalization, name)
        if entry is not given:
            bare[entry.name] = given
        return entry

    model_names, own_models = _names(entries, models, as_model)
    setting_names, own_settings = _names(entries, eval_settings, _as_setting)
    store = open_store(db, create=True)
    roots = data_roots([data_root] if isinstance(data_root, str) else data_root)
    run = RunOptions(
        data_roots=tuple(map(str, roots)),
        registry=tuple(registry),
        cache_folder=str(store.folder / "cache"),
        results_folder=str(store.folder),
    )
    try:
        run = replace(run, **options)
    except TypeError as error:
        raise EntryError(f"testbed.evaluate: {error}") from error
    # A generated name contains a hash of weights and preparation, so it cannot be outdated; a user's name can.
    current = {n: _facts(entries.model(n), module) for n, module in bare.items() if name is not None}
    with modes_kept(bare.values()):
        report = run_evaluations(
            entries,
            store,
            model_names,
            setting_names,
            run,
            devices=chosen_devices([str(g) for g in ([gpus] if isinstance(gpus, str | int) else gpus)]),
            overwrite=overwrite,
            inline=own_models or own_settings,  # a worker process could not load objects that exist only here
            quiet=quiet,
            outdated=lambda e: _changed(store, e, current[e.model]) if e.model in current else "",
        )
    if report.interrupted:
        raise KeyboardInterrupt
    if report.failed:
        first = "; ".join(f"{p.label}: {p.error}" for p in report.failed[:3])
        raise TestbedError(f"{len(report.failed)} of {len(report.plan.pairs)} pairs failed: {first}")
    numbers = numbers_of_pairs(store, report.plan, run.variant)
    _warn_of_mixed_data(store, numbers)
    return _table(numbers, _COLUMNS)


def predict(
    model: Any,
    eval_setting: Any,
    *,
    transform: Any = None,
    normalization: Any = None,
    device: str = "cpu",
    registry: Sequence[str] = (),
    data_root: Sequence[str] | str = (),
    **options: Any,
) -> Outputs:
    """The outputs of one model on one setting. Nothing is stored, and no stored result is read.

    `model` is a name, a Model or a bare torch module, `eval_setting` a name or an EvalSetting. The outputs have logits,
    ids and targets, one row per image, and what a probe or `record=("features",)` adds. `options` are the fields of
    RunOptions: batch_size, limit, workers, seed, ...
    """
    from testbed.data.locate import data_roots
    from testbed.engine.batch_norm import load_model
    from testbed.engine.devices import usable_device
    from testbed.engine.predict import predict_all
    from testbed.options import RunOptions

    entries = load_registry(registry)
    if isinstance(model, str):
        entry = entries.model(model)
    else:
        entry = _as_model(model, transform, normalization, None if isinstance(model, Model) else type(model).__name__)
    if not isinstance(eval_setting, str):
        entries.eval_settings.add(_as_setting(eval_setting), "testbed.predict")
    setting = entries.runnable(eval_setting if isinstance(eval_setting, str) else eval_setting.name)
    roots = tuple(map(str, data_roots([data_root] if isinstance(data_root, str) and data_root else data_root)))
    try:
        run = RunOptions(**{"data_roots": roots, "registry": tuple(registry), "cache_gb": 0.0, **options})
    except TypeError as error:
        raise EntryError(f"testbed.predict: {error}") from error
    with modes_kept([model]):
        return predict_all(load_model(entry, usable_device(device), run), setting, run)


def results(
    models: Sequence[str] | str | None = None,
    eval_settings: Sequence[str] | str | None = None,
    metric: str | None = None,
    db: str | None = None,
    *,
    variant: str | None = None,
    version: int | str | None = None,
    source: str | None = None,
) -> pd.DataFrame:
    """Stored results as a table; names may be globs.

    Of a pair that has own and published results, the own ones are returned; the column `source` says which they are.
    `variant`, `version` and `source` reach the others: variant="limit=500", source="imagenet-testbed", or "*" for all
    of them. docs/finding-results.md says what it means to leave them out. Where nothing is found, the error says what
    is stored instead.
    """
    from testbed.store.find import numbers
    from testbed.store.opening import open_store

    store = open_store(db)
    which = (_listed(models), _listed(eval_settings))
    rows = numbers(store, *which, metric, variant, version, source)
    if not rows:
        raise _nothing(store, metric, which, variant, version, source)
    _warn_of_mixed_data(store, rows)
    return _table(rows, (*_COLUMNS, *_MARKS))


def _nothing(
    store: Store, metric: str | None, which: tuple[list[str] | None, list[str] | None], *marks: Any
) -> TestbedError:
    """Why no number was found: nothing is stored that is meant, it has no labels, or it has other metrics."""
    from testbed.store.find import find, nothing_found, numbers

    stored = find(store, *which, *marks)
    if not stored:
        return nothing_found(store, *which, *marks)
    other = list(dict.fromkeys(n.metric for n in numbers(store, *which, None, *marks)))
    if not other:
        return StoreError(
            f"{stored[0].label} has no metrics, since no image has a label: testbed.outputs has the logits"
        )
    near = near_names(str(metric), other) or f": expected {', '.join(other)}"
    return UnknownName(f"no metric '{metric}' there{near}")


def outputs(
    model: str,
    eval_setting: str,
    db: str | None = None,
    registry: Sequence[str] = (),
    *,
    variant: str | None = None,
    version: int | None = None,
) -> Outputs:
    """What is stored of a pair: logits, targets and ids, one row per readable image, in the order of the setting.

    The same object as `predict` returns; `extras` has the arrays that a probe or `--record` added.
    """
    from testbed.store.evaluation import OWN
    from testbed.store.find import find_one
    from testbed.store.measuring import outputs_of
    from testbed.store.opening import open_store

    store = open_store(db)
    return outputs_of(store, load_registry(registry), find_one(store, model, eval_setting, variant, version, OWN))


def logits(
    model: str,
    eval_setting: str,
    db: str | None = None,
    registry: Sequence[str] = (),
    *,
    variant: str | None = None,
    version: int | None = None,
) -> np.ndarray:
    """The stored logits of a pair: one row per readable image, in the order of the setting.

    `outputs` has the targets and ids of the rows too.
    """
    return outputs(model, eval_setting, db, registry, variant=variant, version=version).logits


def _warn_of_mixed_data(store: Store, rows: Sequence[Number]) -> None:
    import warnings

    from testbed.store.mixed import lines, mixed_data

    for line in lines(mixed_data(store, {row.evaluation_id for row in rows})):
        warnings.warn(line, stacklevel=3)


def _table(rows: Sequence[Number], columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([{c: getattr(row, c) for c in columns} for row in rows], columns=list(columns))


def _listed(names: Sequence[str] | str | None) -> list[str] | None:
    return None if names is None else [names] if isinstance(names, str) else list(names)


def _names(registry: Registry, given: Any, convert: Any) -> tuple[list[str], bool]:
    """The names of all items, and whether objects were among them. Objects join the registry for this call."""
    names, objects = [], False
    for item in given if isinstance(given, list | tuple) else [given]:
        if isinstance(item, str):
            names.append(item)
            continue
        entry = convert(item)
        shelf: Any = registry.models if isinstance(entry, Model) else registry.eval_settings
        shelf.add(entry, "testbed.evaluate")
        names.append(entry.name)
        objects = True
    return names, objects


def _as_setting(given: Any) -> EvalSetting:
    if isinstance(given, EvalSetting):
        return given
    raise EntryError(f"testbed.evaluate: expected a setting's name or an EvalSetting, got {type(given).__name__}")


def _as_model(given: Any, transform: Any, normalization: Any, name: str | None) -> Model:
    if isinstance(given, Model):
        return given
    if not callable(given):
        raise EntryError(f"testbed.evaluate: expected a model's name, a Model or a module, got {type(given).__name__}")
    return Model(
        name=name if name is not None else _reproducible_name(given, transform, normalization),
        transform=transform,
        normalization=normalization,
        classifier_loader=lambda: given,
        eval_batch_size=64,
    )


# ---- bare modules ----------------------------------------------------------------------------------------


def _reproducible_name(module: Any, transform: Any, normalization: Any) -> str:
    """Class name and a hash of weights and preparation: the same module finds its results in the next session."""
    from torch import nn

    from testbed.models.weights import state_sha256

    kind = type(module).__name__
    weights = state_sha256(module) if isinstance(module, nn.Module) else None
    if weights is None:
        raise EntryError(f"testbed.evaluate: expected name=..., since a {kind} has no weights to be told by")
    preparation = repr(transform), repr(normalization)
    if any(map(_has_address, preparation)):
        raise EntryError(
            "testbed.evaluate: expected name=..., since a function that prepares the images has nothing to be told by"
        )
    return f"{kind}@{fingerprint_of(weights, repr(module), *preparation)[:8]}"


def _has_address(text: str) -> bool:
    """Whether a repr shows a memory address, as a function's does: it then identifies nothing in the next session."""
    return " at 0x" in text


def _facts(entry: Model, module: Any) -> dict[str, str | None]:
    """The facts that a new result of the module would record, to compare with a stored one."""
    from testbed.models.weights import state_sha256

    preparation = {"model_transform": repr(entry.transform), "normalization": repr(entry.normalization)}
    return {"weights_sha256": state_sha256(module), **preparation}


def _changed(store: Store, evaluation: Evaluation, current: Mapping[str, str | None]) -> str:
    """Why a stored result is outdated: other weights, transform or normalization; empty where none differs."""
    from testbed.store.find import origin_of

    origin = origin_of(store, evaluation)
    if origin.weights_sha256 != current["weights_sha256"]:
        return "stored with other weights"
    for name in ("model_transform", "normalization"):
        text, stored_text = str(current[name]), getattr(origin.provenance, name)
        # Older results do not record them, and a repr with an address differs in every session.
        if stored_text not in (None, text) and not _has_address(text):
            return f"stored with another {name.removeprefix('model_')}"
    return ""
