"""The testbed from Python: evaluate on the spot, read stored results and logits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.data.samples import fingerprint_of
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.entries.registry import Registry, load_registry
from testbed.errors import EntryError, TestbedError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from testbed.store.database import Store
    from testbed.store.queries import Evaluation

_COLUMNS = ("model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n")


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
    """Run models on settings and return their results as a table; what is stored already is not run again.

    `models` and `eval_settings` are names as on the command line, Model and EvalSetting objects, or lists of
    these; a bare torch module goes with `transform` (and `normalization`, `name`). It is run again where its
    weights, transform or normalization are not those of the stored result. Failures raise one error that names
    them. `options` are those of RunOptions: batch_size, limit, workers, seed, ...
    """
    from testbed.data.locate import data_roots
    from testbed.engine.devices import chosen_devices
    from testbed.engine.run import run_evaluations
    from testbed.options import RunOptions
    from testbed.store import queries
    from testbed.store.opening import open_store

    entries = load_registry(registry)
    bare: dict[str, Any] = {}  # name -> what was given without a Model around it

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
    # A name that was made up here tells all of it already.
    now = {n: _facts(entries.model(n), module) for n, module in bare.items() if name is not None}
    with _modes_kept(bare.values()):
        report = run_evaluations(
            entries,
            store,
            model_names,
            setting_names,
            run,
            devices=chosen_devices([str(g) for g in ([gpus] if isinstance(gpus, str | int) else gpus)]),
            overwrite=overwrite,
            inline=own_models or own_settings,  # what exists only here cannot be loaded by another process
            quiet=quiet,
            outdated=lambda e: _changed(store, e, now[e.model]) if e.model in now else "",
        )
    if report.interrupted:
        raise KeyboardInterrupt
    if report.failed:
        first = "; ".join(f"{p.label}: {p.error}" for p in report.failed[:3])
        raise TestbedError(f"{len(report.failed)} of {len(report.plan.pairs)} pairs failed: {first}")
    asked = {(p.stored_model, p.setting.name) for p in report.plan.pairs if p.asked}
    rows = queries.results(store, variant=run.variant)
    return _table([r for r in rows if (r["model"], r["eval_setting"]) in asked])


def results(
    models: Sequence[str] | str | None = None,
    eval_settings: Sequence[str] | str | None = None,
    metric: str | None = None,
    db: str | None = None,
) -> pd.DataFrame:
    """Stored results as a table; names may be globs."""
    from testbed.store import queries
    from testbed.store.opening import open_store

    return _table(queries.results(open_store(db), _listed(models), _listed(eval_settings), metric))


def logits(model: str, eval_setting: str, db: str | None = None, registry: Sequence[str] = ()) -> np.ndarray:
    """The stored logits of a pair, one row per readable image in the setting's order."""
    from testbed.store import queries
    from testbed.store.opening import open_store
    from testbed.store.outputs import outputs_of

    store = open_store(db)
    return outputs_of(store, load_registry(registry), queries.completed(store, model, eval_setting)).logits


def _table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([{c: row[c] for c in _COLUMNS} for row in rows], columns=list(_COLUMNS))


def _listed(names: Sequence[str] | str | None) -> list[str] | None:
    return None if names is None else [names] if isinstance(names, str) else list(names)


def _names(registry: Registry, given: Any, convert: Any) -> tuple[list[str], bool]:
    """Names of what was given; objects are put into the registry for this call."""
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
        name=name if name is not None else _found_again(given, transform, normalization),
        transform=transform,
        normalization=normalization,
        classifier_loader=lambda: given,
        eval_batch_size=64,
    )


# ---- bare modules ----------------------------------------------------------------------------------------


def _found_again(module: Any, transform: Any, normalization: Any) -> str:
    """A name by which the same network with the same weights, prepared in the same way, finds its stored results."""
    from torch import nn

    from testbed.models.weights import state_sha256

    kind = type(module).__name__
    weights = state_sha256(module) if isinstance(module, nn.Module) else None
    if weights is None:
        raise EntryError(f"testbed.evaluate: expected name=..., since a {kind} has no weights to be told by")
    prepared = repr(transform), repr(normalization)
    if any(map(_tells_nothing, prepared)):
        raise EntryError(
            "testbed.evaluate: expected name=..., since a function that prepares the images has nothing to be told by"
        )
    return f"{kind}@{fingerprint_of(weights, repr(module), *prepared)[:8]}"


def _tells_nothing(text: str) -> bool:
    """Whether a repr holds an address, which the next object may have too."""
    return " at 0x" in text


def _facts(entry: Model, module: Any) -> dict[str, str | None]:
    """What a result of the module would say of it today."""
    from testbed.models.weights import state_sha256

    prepared = {"model_transform": repr(entry.transform), "normalization": repr(entry.normalization)}
    return {"weights_sha256": state_sha256(module), **prepared}


def _changed(store: Store, evaluation: Evaluation, now: Mapping[str, str | None]) -> str:
    """What a stored result was made with other than now, as far as it can be told."""
    from testbed.store import queries

    while evaluation.row["derived_from_id"] is not None:
        (evaluation,) = queries.evaluations(store, id=evaluation.row["derived_from_id"])
    if evaluation.row["weights_sha256"] != now["weights_sha256"]:
        return "stored with other weights"
    then = evaluation.row["provenance"] or {}
    for name in ("model_transform", "normalization"):
        text = str(now[name])
        if then.get(name, text) != text and not _tells_nothing(text):
            return f"stored with another {name.removeprefix('model_')}"
    return ""


@contextmanager
def _modes_kept(given: Iterable[Any]) -> Iterator[None]:
    """A module that was being trained is left so, layer by layer."""
    from torch import nn

    layers = [layer for module in given if isinstance(module, nn.Module) for layer in module.modules()]
    modes = [layer.training for layer in layers]
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
