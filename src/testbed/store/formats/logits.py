"""Logits out and in: one .npz per model that numpy opens without pickle, and a manifest with their results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data import writing
from testbed.data.rows import Rows
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import find, nothing_found, numbers_of
from testbed.store.measuring import measure, outputs_of
from testbed.store.outputs import Outputs
from testbed.store.write import write_outputs

MANIFEST = "manifest.json"
# Columns of the row that travel with the logits.
_CARRIED = ("weights_sha256", "dataset_fingerprint", "device", "dtype", "seed", "seconds", "images_per_second")


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
        **{name: getattr(evaluation, name) for name in _CARRIED},
        "provenance": json.loads(stored) if isinstance(stored, str) else stored,
    }


def import_logits(store: Store, registry: Registry, folder: Path, override: bool = False) -> list[tuple[str, str]]:
    """Take in what save_logits wrote elsewhere; metrics are measured anew where the setting is known here."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{folder}: expected a folder that --save-logits wrote, with {MANIFEST} in it") from error
    store.begin_run()
    try:
        return [_import_one(store, registry, folder, item, override) for item in manifest]
    finally:
        store.end_run()


def _import_one(
    store: Store, registry: Registry, folder: Path, item: dict[str, Any], override: bool
) -> tuple[str, str]:
    try:
        path, model, setting, sha256 = folder / item["file"], item["model"], item["eval_setting"], item["sha256"]
        whole = writing.sha256_of(path) == sha256
    except (KeyError, TypeError) as error:
        raise StoreError(
            f"{folder / MANIFEST}: expected what --save-logits writes, got an item without {error}"
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    if not whole:
        raise StoreError(f"{path} is not what its manifest says: the checksum differs")
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    rows = Rows(arrays.pop("image_paths"), arrays.pop("targets"), arrays.pop("indices"))
    outputs = Outputs(rows, arrays.pop("logits"), arrays, model)
    write_outputs(
        store,
        model,
        (setting, item["version"]),
        outputs,
        _metrics(registry, setting, outputs, item),
        variant=item["variant"],
        override=override,
        provenance={**(item["provenance"] or {}), "imported": True},
        **{name: item[name] for name in _CARRIED},
    )
    return model, setting


def _metrics(registry: Registry, setting: str, outputs: Outputs, item: dict[str, Any]) -> dict[str, Estimate]:
    """Measured here where the setting is known and its function works, else as they were told."""
    try:
        return measure(registry.eval_setting(setting), registry.models.entries.get(outputs.model), outputs)
    except Exception:  # an unknown setting, a list of labels that is not here, a user's own function
        return {m["name"]: Estimate(m["value"], m["ci_low"], m["ci_high"], m["n"]) for m in item["metrics"]}
