"""The testbed from Python: evaluate on the spot, read stored results and logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from testbed.entries import EvalSetting, Model
from testbed.errors import EntryError, TestbedError
from testbed.registry import Registry, load_registry

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_COLUMNS = ("model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n")


def evaluate(
    models: Any,
    eval_settings: Any,
    *,
    transform: Any = None,
    normalization: Any = None,
    name: str | None = None,
    gpus: Sequence[str | int] = (),
    db: str | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    registry: Sequence[str] = (),
    data_root: Sequence[str] | str = (),
    **options: Any,
) -> pd.DataFrame:
    """Run models on settings and return their results as a table; what is stored already is not run again.

    `models` and `eval_settings` are names as on the command line, Model and EvalSetting objects, or lists of
    these; a bare torch module goes with `transform` (and `normalization`, `name`). Failures raise one error
    that names them. `options` are those of RunOptions: batch_size, limit, workers, seed, ...
    """
    from testbed.data.locate import data_roots
    from testbed.run.devices import chosen_devices
    from testbed.run.evaluate import run_evaluations
    from testbed.run.options import RunOptions
    from testbed.store import queries
    from testbed.store.opening import open_store

    entries = load_registry(registry)
    model_names, own_models = _names(entries, models, lambda m: _as_model(m, transform, normalization, name))
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
    report = run_evaluations(
        entries,
        store,
        model_names,
        setting_names,
        run,
        devices=chosen_devices([str(g) for g in gpus]),
        overwrite=overwrite,
        inline=own_models or own_settings,  # what exists only here cannot be loaded by another process
        quiet=quiet,
    )
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
    from testbed.outputs import outputs_of
    from testbed.store import queries
    from testbed.store.opening import open_store

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
    from testbed.weights import state_sha256

    if name is None:  # the same weights find their stored results again
        sha = state_sha256(given)
        name = f"{type(given).__name__}@{sha[:8]}" if sha else type(given).__name__
    return Model(
        name=name,
        transform=transform,
        normalization=normalization,
        classifier_loader=lambda: given,
        eval_batch_size=64,
    )
