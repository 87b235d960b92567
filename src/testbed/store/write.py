"""Writing whole results: outputs that were computed elsewhere become a completed evaluation in one step.

A run writes chunk by chunk (engine/recording.py). Imports, of logits and of decisions alike, come through here, and
ensembles.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data import writing
from testbed.data.rows import Rows
from testbed.data.samples import fingerprint_of
from testbed.entries.code_digest import digest_of
from testbed.entries.registry import Registry
from testbed.errors import DamagedError, StoreError, in_words
from testbed.metrics.estimate import Estimate
from testbed.store import files
from testbed.store.claims import Work
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import EVERY, find
from testbed.store.measuring import measure, outputs_of
from testbed.store.names import matches
from testbed.store.outputs import Outputs
from testbed.store.places import publish


def add_eval_setting(store: Store, registry: Registry, name: str) -> int:
    """The row of a registered setting, made where there is none."""
    setting = registry.eval_setting(name)
    dataset = registry.runnable(name).dataset
    return store.ensure_eval_setting(
        setting.name,
        setting.version,
        size=setting.size,
        dataset=dataset.describe() if dataset else None,
        logits_from=setting.logits_from,
        images_from=setting.images_from,
        parent=setting.parent,
        tags=list(setting.tags),
    )


def write_outputs(
    store: Store,
    model: str,
    eval_setting: tuple[str, int],
    outputs: Outputs,
    metrics: Mapping[str, Estimate],
    variant: str = "",
    override: bool = False,
    **facts: Any,
) -> None:
    """A completed evaluation of a setting (name, version) from outputs in memory.

    `facts` are columns of the row, `provenance` among them. One that is stored already is refused, or replaced with
    `override`. The store must be in a run (`Store.begin_run`), which holds the claim.
    """
    name, version = eval_setting
    if not override:
        refuse_stored(store, model, eval_setting, variant)
    work = Work(
        n_images=len(outputs),
        chunk_size=len(outputs),
        fingerprint=facts.get("dataset_fingerprint") or "",
        logits_path=store.kept_at(files.new_logits_path(model, name)),
    )
    ids = store.ensure_model(model), store.ensure_eval_setting(name, version)
    claim = store.claim(*ids, variant, work, resumable=False)
    if claim.abandoned:
        store.discard([claim.abandoned])
    place, samples = store.place(claim.logits_path), store.place(save_imported_rows(store, name, outputs.rows))
    digests = {}
    for array_name, array in {"logits": outputs.logits, **outputs.extras}.items():
        path = place.array(array_name).draft
        writing.write_aside(path, lambda aside, array=array: _save_array(aside, array))  # type: ignore[misc]
        digests[array_name] = writing.sha256_of(path)
    logits_bytes = place.draft.stat().st_size
    etags = publish(place, digests, samples, store.tell)
    own: dict[str, Any] = {"bad_rows": [], "arrays_sha256": digests, "etags": etags or None}
    facts["provenance"] = {**(facts.get("provenance") or {}), **own}
    orphans = store.complete(
        claim.evaluation_id,
        metrics,
        logits_path=place.stored,
        logits_sha256=digests["logits"],
        logits_bytes=logits_bytes,
        samples_path=samples.stored,
        **facts,
    )
    place.let_go_of_drafts(digests)
    store.discard(orphans)


def refuse_stored(store: Store, model: str, eval_setting: tuple[str, int], variant: str = "") -> None:
    """Raise a StoreError where the pair has a result."""
    name, version = eval_setting
    if find(store, [model], [name], variant, version, OWN):
        raise StoreError(f"{model} on {name} is stored already: repeat with --override to replace it")


def save_imported_rows(store: Store, eval_setting: str, rows: Rows) -> str:
    """What a row says of the list of images. Named after what is in it: models and databases may share the file."""
    arrays = (np.asarray(rows.ids, dtype=np.str_), rows.targets, rows.indices)
    key = fingerprint_of(*(array.tobytes() for array in arrays))[:12]
    relative = f"logits/{writing.safe_name(eval_setting)}/samples-imported-{key}.npz"
    files.save_rows(store.folder / relative, rows)
    return store.kept_at(relative)


def _save_array(path: Path, array: np.ndarray) -> None:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def recompute_metrics(store: Store, registry: Registry, pattern: str | None = None) -> tuple[int, list[str]]:
    """Measure stored logits again with the settings' present metrics; how many, and what could not be."""
    done, problems = 0, []
    for evaluation in find(store, variant=EVERY, version=EVERY, source=OWN):
        if not matches(evaluation.eval_setting, [pattern] if pattern else None):
            continue
        try:
            setting = registry.eval_setting(evaluation.eval_setting)
            digest = digest_of(setting.metrics_fn)  # before the call, which may leave something in the function
            outputs = outputs_of(store, registry, evaluation)
            metrics = measure(setting, registry.models.entries.get(evaluation.model), outputs)
            store.replace_metrics(evaluation.id, metrics, digest)
            done += 1
        except DamagedError as error:
            problems.append(str(error))
        except Exception as error:  # metrics functions are the users' own code
            problems.append(f"{evaluation.model} on {evaluation.eval_setting}: {in_words(error)}")
    return done, problems
