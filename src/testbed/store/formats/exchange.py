"""Results in and out: logits dumps that numpy opens without pickle, their import, and tables of all results."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.samples import fingerprint_of
from testbed.entries.registry import Registry
from testbed.errors import StoreError, UnknownName, in_words, near_names
from testbed.metrics.estimate import Estimate
from testbed.store import files, queries
from testbed.store.database import Store
from testbed.store.outputs import Outputs, measure, outputs_of

MANIFEST = "manifest.json"
_CARRIED = ("weights_sha256", "dataset_fingerprint", "device", "dtype", "seed", "seconds", "images_per_second")
_RESULT_COLUMNS = (
    "model",
    "eval_setting",
    "metric",
    "value",
    "ci_low",
    "ci_high",
    "n",
    "variant",
    "version",
    "source",
    "finished_at",
)


def save_logits(
    store: Store,
    registry: Registry,
    eval_setting: str,
    folder: Path,
    models: Collection[str] | None = None,
    variant: str = "",
) -> list[Path]:
    """One .npz per model (logits, targets, image_paths, and what a probe recorded) and a manifest."""
    found = [
        e
        for e in queries.evaluations(store, eval_setting=eval_setting, variant=variant)
        if e.status == "completed" and (models is None or e.model in models)
    ]
    if not found:
        known = queries.eval_setting_names(store)
        if eval_setting not in known:
            raise UnknownName(f"no eval setting '{eval_setting}' in the {store.where}{near_names(eval_setting, known)}")
        raise StoreError(f"no model has been run on '{eval_setting}'")
    newest = max(e.version for e in found)
    with files.writing_to(folder):
        return _save_all(store, registry, [e for e in found if e.version == newest], folder)


def _save_all(store: Store, registry: Registry, found: list[queries.Evaluation], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    manifest, written = [], []
    for evaluation in found:
        path = folder / f"{files.safe_name(evaluation.model)}.npz"
        if path in written:  # two names that differ only in what a file name cannot hold
            path = path.with_name(f"{path.stem}-{evaluation.id}.npz")
        _write(path, outputs_of(store, registry, evaluation))
        manifest.append({"file": path.name, "sha256": files.sha256_of(path), **_described(store, evaluation)})
        written.append(path)
    files.write_aside(folder / MANIFEST, lambda aside: _write_json(aside, manifest))
    return written


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _write(path: Path, outputs: Outputs) -> None:
    arrays = {"logits": outputs.logits, "targets": outputs.samples.targets, "image_paths": outputs.samples.ids}

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays, indices=outputs.samples.indices, **outputs.extras)

    files.write_aside(path, write)


def _described(store: Store, evaluation: queries.Evaluation) -> dict[str, Any]:
    row = evaluation.row
    return {
        "model": evaluation.model,
        "eval_setting": evaluation.eval_setting,
        "version": evaluation.version,
        "variant": row["variant"],
        "metrics": [
            {k: m[k] for k in ("name", "value", "ci_low", "ci_high", "n")}
            for m in queries.metrics_of(store, evaluation.id)
        ],
        **{name: row[name] for name in _CARRIED},
        "provenance": row["provenance"],
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
        whole = files.sha256_of(path) == sha256
    except (KeyError, TypeError) as error:
        raise StoreError(
            f"{folder / MANIFEST}: expected what --save-logits writes, got an item without {error}"
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    if not whole:
        raise StoreError(f"{path} is not what its manifest says: the checksum differs")
    there = queries.evaluations(store, model, setting, item["variant"])
    if not override and any(e.status == "completed" and e.version == item["version"] for e in there):
        raise StoreError(f"{model} on {setting} is stored already: repeat with --override to replace it")
    with np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    samples = files.SampleList(arrays.pop("image_paths"), arrays.pop("targets"), arrays.pop("indices"))
    logits = arrays.pop("logits")
    metrics = _metrics(registry, model, setting, Outputs(logits, samples, arrays), item)
    claim = store.claim(
        store.ensure_model(model),
        store.ensure_eval_setting(setting, item["version"]),
        item["variant"],
        len(logits),
        len(logits),
        item["dataset_fingerprint"] or "",
        "",
        resumable=False,
        logits_path=files.new_logits_path(model, setting),
    )
    logits_path, samples_path = str(claim.logits_path), _save_samples(store, setting, samples)
    digests = {}
    for name, array in {"logits": logits, **arrays}.items():
        target = files.array_path(store.folder / logits_path, name)
        files.write_aside(target, lambda aside, array=array: _save_array(aside, array))  # type: ignore[misc]
        digests[name] = files.sha256_of(target)
    orphans = store.complete(
        claim.evaluation_id,
        metrics,
        logits_path=logits_path,
        logits_sha256=digests["logits"],
        samples_path=samples_path,
        provenance={**(item["provenance"] or {}), "bad_rows": [], "arrays_sha256": digests, "imported": True},
        **{name: item[name] for name in _CARRIED},
    )
    for orphan in orphans:
        files.remove_logits(store.folder, orphan)
    return model, setting


def _save_samples(store: Store, setting: str, samples: files.SampleList) -> str:
    """Named after what is in it: models and databases may share the file."""
    arrays = (np.asarray(samples.ids, dtype=np.str_), samples.targets, samples.indices)
    key = fingerprint_of(*(array.tobytes() for array in arrays))[:12]
    relative = f"logits/{files.safe_name(setting)}/samples-imported-{key}.npz"
    files.save_samples(store.folder / relative, list(samples.ids), samples.targets, samples.indices)
    return relative


def _save_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def _metrics(
    registry: Registry, model: str, setting: str, outputs: Outputs, item: dict[str, Any]
) -> dict[str, Estimate]:
    """Measured here where the setting is known and its function works, else as they were told."""
    try:
        return measure(registry.eval_setting(setting), registry.models.entries.get(model), outputs)
    except Exception:  # an unknown setting, a list of labels that is not here, a user's own function
        return {m["name"]: Estimate(m["value"], m["ci_low"], m["ci_high"], m["n"]) for m in item["metrics"]}


def recompute_metrics(store: Store, registry: Registry, pattern: str | None = None) -> tuple[int, list[str]]:
    """Measure stored logits again with the settings' present metrics; how many, and what could not be."""
    done, problems = 0, []
    for evaluation in queries.evaluations(store):
        if evaluation.status != "completed" or not queries.matches(
            evaluation.eval_setting, [pattern] if pattern else None
        ):
            continue
        try:
            setting = registry.eval_setting(evaluation.eval_setting)
            outputs = outputs_of(store, registry, evaluation)
            store.replace_metrics(
                evaluation.id, measure(setting, registry.models.entries.get(evaluation.model), outputs)
            )
            done += 1
        except Exception as error:  # metrics functions are the users' own code
            problems.append(f"{evaluation.model} on {evaluation.eval_setting}: {in_words(error)}")
    return done, problems


def export_results(store: Store, path: Path) -> int:
    """All results, variants included, as .csv, .json or .parquet by the file's ending."""
    rows = [{c: r[c] for c in _RESULT_COLUMNS} for r in queries.all_results(store)]
    writers = {".csv": _export_csv, ".json": _write_json, ".parquet": _export_parquet}
    if path.suffix not in writers:
        raise StoreError(f"--export: expected a file ending in .csv, .json or .parquet, got {path.name}")
    with files.writing_to(path):
        files.write_aside(path, lambda aside: writers[path.suffix](aside, rows))
    return len(rows)


def _export_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _RESULT_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _export_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pandas as pd

    try:
        pd.DataFrame(rows, columns=list(_RESULT_COLUMNS)).to_parquet(path, index=False)
    except ImportError as error:
        raise StoreError("--export to .parquet needs the package pyarrow: pip install pyarrow") from error
