"""Filling a store the way a run does: claim, chunks, files, result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbed.metrics.estimate import Estimate
from testbed.store import files, schema
from testbed.store.database import Claim, Store, now
from testbed.store.opening import open_store


def again(store: Store) -> Store:
    """The same database, opened by somebody else."""
    other = open_store(store.engine.url.render_as_string(hide_password=False))
    other.folder = store.folder
    return other


def claim(
    store: Store, model: str = "m", setting: str = "s", *, version: int = 1, variant: str = "", **more: Any
) -> Claim:
    """Take hold of a pair of six images in chunks of two."""
    how = dict(n_images=6, chunk_size=2, fingerprint="f", samples_path="", resumable=True)
    ids = store.ensure_model(model), store.ensure_eval_setting(setting, version)
    return store.claim(*ids, variant, **{**how, **more})


def chunk(start: int = 0, **more: Any) -> dict[str, Any]:
    facts = dict(start=start, stop=start + 2, seconds=0.5, device="cpu", bad_rows=[], weights_sha256="w")
    return {**facts, **more}


def add(
    store: Store,
    model: str = "m",
    setting: str = "s",
    value: float = 50.0,
    *,
    version: int = 1,
    variant: str = "",
    logits: np.ndarray | None = None,
    targets: np.ndarray | None = None,
    extras: Mapping[str, np.ndarray] | None = None,
    metrics: Mapping[str, Estimate] | None = None,
    **values: Any,
) -> int:
    """A completed evaluation; with logits it has files, as a run leaves them. Returns its id."""
    held = claim(store, model, setting, version=version, variant=variant, n_images=6 if logits is None else len(logits))
    if logits is not None:
        n = len(logits)
        relative = f"logits/{files.safe_name(setting)}/{files.safe_name(model)}-{held.evaluation_id}.npy"
        path = store.folder / relative
        files.write_part(files.parts_folder(path), 0, {"logits": logits, **(extras or {})})
        digests = files.assemble(files.parts_folder(path), [0], n, path, str(logits.dtype))
        samples = f"logits/{files.safe_name(setting)}/samples-{n}.npz"
        targets = np.zeros(n, dtype=np.int64) if targets is None else targets
        files.save_samples(store.folder / samples, [f"{i:03d}.png" for i in range(n)], targets, np.arange(n))
        values = dict(
            logits_path=relative,
            logits_sha256=digests["logits"],
            samples_path=samples,
            provenance={"arrays_sha256": digests, "bad_rows": [], "recorded": sorted(extras or ())},
            **values,
        )
    metrics = {"top1": Estimate(value, value - 1, value + 1, 6)} if metrics is None else metrics
    for orphan in store.complete(held.evaluation_id, metrics, **values):
        files.remove_logits(store.folder, orphan)
    return held.evaluation_id


def add_published(store: Store, model: str, setting: str, value: float) -> None:
    """A number from a paper: version 0, no logits."""
    ids = dict(model_id=store.ensure_model(model), eval_setting_id=store.ensure_eval_setting(setting, 0))
    common = dict(source="a paper", complete=True, status="completed", n_images=0, created_at=now())
    with store.writing() as connection:
        inserted = connection.execute(schema.evaluations.insert().values(**ids, **common)).inserted_primary_key
        assert inserted is not None
        row = dict(evaluation_id=inserted[0], name="top1", position=0, value=value)
        connection.execute(schema.metrics.insert().values(**row))
