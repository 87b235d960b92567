"""Filling a store the way a run does: claim, chunks, files, result."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from testbed.data import writing
from testbed.data.rows import Rows
from testbed.metrics.estimate import ACCURACY, Estimate
from testbed.store import files, schema
from testbed.store.claims import Claim, Work
from testbed.store.database import Store, now
from testbed.store.evaluation import OWN, Evaluation, Number
from testbed.store.find import EVERY, evaluation_by_id, every_evaluation, find_one, numbers, numbers_of
from testbed.store.measuring import read_outputs
from testbed.store.opening import open_store
from testbed.store.outputs import Outputs


def address(store: Store) -> str:
    """What --db has to say to name it."""
    return store.engine.url.render_as_string(hide_password=False)


def again(store: Store) -> Store:
    """The same database, opened by somebody else."""
    other = open_store(address(store))
    other.folder = store.folder
    return other


def claim(
    store: Store, model: str = "m", setting: str = "s", *, version: int = 1, variant: str = "", **more: Any
) -> Claim:
    """Take hold of a pair of six images in chunks of two."""
    resumable = more.pop("resumable", True)
    work = Work(**{**dict(n_images=6, chunk_size=2, fingerprint="f"), **more})
    ids = store.ensure_model(model), store.ensure_eval_setting(setting, version)
    return store.claim(*ids, variant, work, resumable)


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
        relative = f"logits/{writing.safe_name(setting)}/{writing.safe_name(model)}-{held.evaluation_id}.npy"
        path = store.folder / relative
        files.make_parts_folder(files.parts_folder(path))
        files.write_part(files.parts_folder(path), 0, {"logits": logits, **(extras or {})})
        digests = files.assemble(files.parts_folder(path), [0], n, path, str(logits.dtype))
        samples = f"logits/{writing.safe_name(setting)}/samples-{n}.npz"
        targets = np.zeros(n, dtype=np.int64) if targets is None else targets
        ids = np.array([f"{i:03d}.png" for i in range(n)])
        files.save_rows(store.folder / samples, Rows(ids, targets, np.arange(n)))
        values = dict(
            logits_path=relative,
            logits_sha256=digests["logits"],
            samples_path=samples,
            provenance={"arrays_sha256": digests, "bad_rows": [], "recorded": sorted(extras or ())},
            **values,
        )
    metrics = {"top1": Estimate(value, value - 1, value + 1, 6, ACCURACY)} if metrics is None else metrics
    for orphan in store.complete(held.evaluation_id, metrics, **values):
        files.remove_logits(store.folder, orphan)
    return held.evaluation_id


def bury_runs(store: Store) -> None:
    """As if the processes of all runs were gone, which in a test is its own."""
    with store.writing() as connection:
        connection.execute(schema.runs.update().values(heartbeat_at=0.0))


def add_published(store: Store, model: str, setting: str, value: float) -> None:
    """A number from a paper: version 0, no logits."""
    ids = dict(model_id=store.ensure_model(model), eval_setting_id=store.ensure_eval_setting(setting, 0))
    common = dict(source="a paper", complete=True, status="completed", n_images=0, created_at=now())
    with store.writing() as connection:
        inserted = connection.execute(schema.evaluations.insert().values(**ids, **common)).inserted_primary_key
        assert inserted is not None
        kind = dict(unit="%", better="higher", lowest=0, highest=100)
        row = dict(evaluation_id=inserted[0], name="top1", position=0, value=value, **kind)
        connection.execute(schema.metrics.insert().values(**row))


def copy_results(source: Path, target: Path) -> None:
    """A results folder with its database, which somebody may still have open: its side files come and go."""
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.db", "*.db-wal", "*.db-shm"))
    for path in source.glob("*.db"):
        with closing(sqlite3.connect(path)) as original, closing(sqlite3.connect(target / path.name)) as copy:
            original.backup(copy)


def back_to_schema_2(connection: sa.Connection) -> None:
    """The database as version 2 of the schema had it: one word for whose logits and whose images, bare metrics."""
    for name in schema.VIEWS:
        connection.execute(sa.text(f"DROP VIEW {name}"))
    connection.execute(sa.text("DROP INDEX evaluations_by_setting"))
    connection.execute(sa.text("ALTER TABLE evaluations DROP COLUMN logits_bytes"))
    connection.execute(sa.text("ALTER TABLE chunks DROP COLUMN content"))
    connection.execute(sa.text("DROP INDEX evaluations_by_state"))
    for column in ("machine", "begun_at", "progress"):
        connection.execute(sa.text(f"ALTER TABLE runs DROP COLUMN {column}"))
    connection.execute(sa.text("ALTER TABLE eval_settings RENAME COLUMN logits_from TO derived_from"))
    connection.execute(sa.text("ALTER TABLE eval_settings DROP COLUMN images_from"))
    for column in ("unit", "better", "lowest", "highest"):
        connection.execute(sa.text(f"ALTER TABLE metrics DROP COLUMN {column}"))
    connection.execute(schema.schema_version.update().values(version=2))


# ---- reading, as tests want it: own results of the whole setting where nothing else is said -----------------


def results(store: Store, models=None, eval_settings=None, metric=None, *, variant="", source=OWN) -> list[Number]:
    return numbers(store, models, eval_settings, metric, variant, source=source)


def every_number(store: Store) -> list[Number]:
    return numbers(store, variant=EVERY, version=EVERY, source=EVERY)


def completed(store: Store, model: str, eval_setting: str, variant: str = "") -> Evaluation:
    return find_one(store, model, eval_setting, variant, source=OWN)


def evaluations(store: Store, model=None, eval_setting=None) -> list[Evaluation]:
    """Own evaluations in any state."""
    return [e for e in every_evaluation(store, model, eval_setting) if not e.published]


def stored_outputs(store: Store, evaluation: Evaluation) -> Outputs:
    return read_outputs(store, evaluation)


def numbers_of_id(store: Store, evaluation_id: int) -> list[Number]:
    return numbers_of(store, evaluation_by_id(store, evaluation_id))


def has_labels(store: Store, evaluation: Evaluation) -> bool:
    return files.load_rows(store.folder / evaluation.samples_path).has_labels
