"""Logits out and in: one .npz per model that numpy opens without pickle, and a manifest with their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data import writing
from testbed.entries.registry import Registry
from testbed.metrics.estimate import Estimate
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import find, nothing_found, numbers_of
from testbed.store.formats.logits_checks import Expected, check_outputs, expected_of, measured, read_outputs
from testbed.store.formats.manifest import CARRIED, MANIFEST, Item, read_manifest
from testbed.store.measuring import outputs_of
from testbed.store.outputs import Outputs
from testbed.store.write import add_eval_setting, refuse_stored, write_outputs


def save_logits(
    store: Store,
    registry: Registry,
    eval_setting: str,
    folder: Path,
    models: Sequence[str] | None = None,
    variant: str | None = None,
    version: int | None = None,
) -> list[Evaluation]:
    """Logits, targets, image paths and recorded arrays of every model on the setting; what was written."""
    evaluations = find(store, models, [eval_setting], variant, version, OWN)
    if not evaluations:
        raise nothing_found(store, models, [eval_setting], variant, version, OWN)
    with writing.writing_to(folder):
        _save_all(store, registry, evaluations, folder)
    return evaluations


def _save_all(store: Store, registry: Registry, evaluations: Sequence[Evaluation], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    manifest: list[dict[str, Any]] = []
    written: set[Path] = set()
    for evaluation in evaluations:
        path = folder / f"{writing.safe_name(evaluation.model)}.npz"
        if path in written:  # two names that differ only in what a file name cannot hold
            path = path.with_name(f"{path.stem}-{evaluation.id}.npz")
        _write(path, outputs_of(store, registry, evaluation))
        manifest.append({"file": path.name, "sha256": writing.sha256_of(path), **_described(store, evaluation)})
        written.add(path)
    text = json.dumps(manifest, indent=1) + "\n"
    writing.write_text(folder / MANIFEST, text)


def _write(path: Path, outputs: Outputs) -> None:
    arrays = {"logits": outputs.logits, "targets": outputs.targets, "image_paths": outputs.ids}

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays, indices=outputs.rows.indices, **dict(outputs.extras))

    writing.write_aside(path, write)


def _described(store: Store, evaluation: Evaluation) -> dict[str, Any]:
    stored = evaluation.stored_provenance
    return {
        "model": evaluation.model,
        "eval_setting": evaluation.eval_setting,
        "version": evaluation.version,
        "variant": evaluation.variant,
        "metrics": [
            {"name": n.metric, "value": n.value, "ci_low": n.ci_low, "ci_high": n.ci_high, "n": n.n}
            for n in numbers_of(store, evaluation)
        ],
        **{name: getattr(evaluation, name) for name in CARRIED},
        "provenance": json.loads(stored) if isinstance(stored, str) else stored,
    }


@dataclass(frozen=True)
class _Checked:
    """An item that may be taken in: its setting and metrics. The arrays are read again when they are stored."""

    item: Item
    registered: bool
    metrics: Mapping[str, Estimate]
    warning: str


def import_logits(
    store: Store,
    registry: Registry,
    folder: Path,
    override: bool = False,
    data_roots: Sequence[Path] = (),
    tell: Callable[[str], None] = lambda text: None,
) -> list[tuple[str, str]]:
    """Take in what save_logits wrote elsewhere: the pairs. Metrics are measured from the arrays, never believed.

    All items are checked before the first is stored: a folder comes in whole or not at all. `tell` is given what the
    user should know.
    """
    items = read_manifest(folder)
    known: dict[tuple[str, int, str], Expected] = {}  # all models of a folder have one setting
    checked = [_checked(store, registry, item, known, (override, data_roots, tell)) for item in items]
    store.begin_run()
    try:
        with writing.writing_to(store.folder):
            for each in checked:
                _store(store, registry, each, override)
    finally:
        store.end_run()
    return [(item.model, item.eval_setting) for item in items]


def _checked(
    store: Store,
    registry: Registry,
    item: Item,
    known: dict[tuple[str, int, str], Expected],
    how: tuple[bool, Sequence[Path], Callable[[str], None]],
) -> _Checked:
    override, data_roots, tell = how
    if not override:
        refuse_stored(store, item.model, (item.eval_setting, item.version), item.variant)
    for name in (item.model, item.eval_setting):
        store.check_length(name)
    key = (item.eval_setting, item.version, item.variant)
    if key not in known:
        known[key] = expected_of(store, registry, item, data_roots)
    outputs = read_outputs(item)
    warning = check_outputs(item, outputs, known[key], override)
    metrics, left_out = measured(registry, item, outputs, known[key])
    if left_out:
        tell(f"{item.label}: {', '.join(left_out)} cannot be measured, since the setting is not registered here")
    return _Checked(item, known[key].setting is not None, metrics, warning)


def _store(store: Store, registry: Registry, checked: _Checked, override: bool) -> None:
    item, outputs = checked.item, read_outputs(checked.item)
    recorded = [name for name in item.provenance.get("recorded") or () if name in outputs.extras]
    if checked.registered:
        add_eval_setting(store, registry, item.eval_setting)
    write_outputs(
        store,
        item.model,
        (item.eval_setting, item.version),
        outputs,
        checked.metrics,
        variant=item.variant,
        override=override,
        warning=checked.warning or None,
        provenance={**item.provenance, "recorded": recorded, "imported": str(item.path)},
        **item.facts,
    )
