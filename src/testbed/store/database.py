"""Changing the results database: short transactions, one row per fact."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.store import schema

HEARTBEAT_S = 5.0
STALE_AFTER_S = 60.0  # a run on another machine that has been silent this long is taken for dead


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Work:
    """What an evaluation will be: images in chunks, from which data, into which files. A claim compares it."""

    n_images: int
    chunk_size: int = 0  # 0 for a result that comes in one step
    fingerprint: str = ""  # of the data
    samples_path: str = ""
    dtype: str | None = None  # that it is computed in
    logits_path: str | None = None


@dataclass(frozen=True)
class Claim:
    """The evaluation this run may work on, and the chunks of it that an earlier run has finished."""

    evaluation_id: int
    chunk_size: int
    done: tuple[tuple[int, int], ...]
    logits_path: str | None = None  # where its logits go: that of the earlier run, whose chunks lie beside it
    abandoned: str | None = None  # the same of an evaluation that could not be gone on with; its parts may be removed


class Busy(StoreError):
    """Another living run is at work on the same pair."""


class Store:
    """A results database and the folder its logits files lie in."""

    def __init__(self, engine: sa.Engine, folder: Path, where: str) -> None:
        self.engine = engine
        self.folder = folder
        self.where = where
        self.run_id: str | None = None
        self._last_beat = 0.0

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        try:
            with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
                yield connection
        except sa.exc.OperationalError as error:
            raise StoreError(f"{self.where} cannot be written: {reason(error)}") from error

    # ---- runs --------------------------------------------------------------------------------------------

    def begin_run(self) -> None:
        self.run_id = uuid.uuid4().hex
        row = dict(
            id=self.run_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            command=" ".join(sys.argv),
            started_at=now(),
            heartbeat_at=time.time(),
        )
        with self.writing() as connection:
            connection.execute(schema.runs.insert().values(**row))

    def heartbeat(self) -> None:
        """Tell other runs that this one lives; cheap enough to be called at every turn of a loop."""
        if time.time() - self._last_beat < HEARTBEAT_S:
            return
        self._last_beat = time.time()
        with self.writing() as connection:
            update = schema.runs.update().where(schema.runs.c.id == self.run_id)
            connection.execute(update.values(heartbeat_at=self._last_beat))

    def end_run(self) -> None:
        with self.writing() as connection:
            update = schema.runs.update().where(schema.runs.c.id == self.run_id)
            connection.execute(update.values(ended_at=now()))

    # ---- names -------------------------------------------------------------------------------------------

    def ensure_model(self, name: str, arch: str | None = None, tags: Sequence[str] = ()) -> int:
        """The model's row; what a run or an import knows of arch and tags is added to what is there."""
        values: dict[str, Any] = dict(arch=arch, tags=list(tags), created_at=now())
        model_id = self._ensure(schema.models, {"name": name}, values)
        m, e = schema.models, schema.evaluations
        with self.writing() as connection:
            row = connection.execute(sa.select(m.c.arch, m.c.tags).where(m.c.id == model_id)).one()
            elsewhere = sa.select(e.c.id).where(e.c.model_id == model_id, e.c.source != "own").limit(1)
            if not row.tags and connection.execute(elsewhere).first():
                tags = ()  # published without a type: a run here must not move it onto the published line
            more = [*row.tags, *(tag for tag in tags if tag not in row.tags)]
            if (row.arch or arch, more) != (row.arch, row.tags):
                connection.execute(m.update().where(m.c.id == model_id).values(arch=row.arch or arch, tags=more))
        return model_id

    def ensure_eval_setting(self, name: str, version: int = 1, **values: Any) -> int:
        values = {"tags": [], "created_at": now(), **values}
        return self._ensure(schema.eval_settings, {"name": name, "version": version}, values)

    def _ensure(self, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        where = sa.and_(*(table.c[k] == v for k, v in key.items()))
        with self.writing() as connection:
            known = connection.execute(sa.select(table.c.id).where(where)).scalar()
            if known is not None:
                return int(known)
            inserted = connection.execute(table.insert().values(**key, **values)).inserted_primary_key
            assert inserted is not None
            return int(inserted[0])

    # ---- evaluations -------------------------------------------------------------------------------------

    def claim(
        self,
        model_id: int,
        eval_setting_id: int,
        variant: str,
        work: Work,
        resumable: bool,
    ) -> Claim:
        """Take hold of a pair: continue what a dead or failed run left, or begin anew.

        An unfinished evaluation is continued where data, number of images and precision are the same; chunks of two
        precisions must not be joined.
        """
        e = schema.evaluations
        mine = sa.and_(
            e.c.model_id == model_id,
            e.c.eval_setting_id == eval_setting_id,
            e.c.variant == variant,
            e.c.source == "own",
            ~e.c.complete,
        )
        with self.writing() as connection:
            left = connection.execute(sa.select(e).where(mine)).mappings().first()
            if left is not None:
                if left["status"] == "running":
                    self.refuse_if_alive(connection, left["run_id"])
                before = (left["dataset_fingerprint"], left["n_images"], left["dtype"])
                same = before == (work.fingerprint, work.n_images, work.dtype)
                if resumable and same and left["chunk_size"]:
                    values: dict[str, Any] = dict(status="running", run_id=self.run_id, error=None)
                    # A pair that failed before it was run has no rows.
                    values["samples_path"] = work.samples_path or left["samples_path"]
                    values["logits_path"] = left["logits_path"] or work.logits_path
                    connection.execute(e.update().where(e.c.id == left["id"]).values(**values))
                    c = schema.chunks.c
                    done = connection.execute(sa.select(c.start, c.stop).where(c.evaluation_id == left["id"]))
                    chunks = tuple((r.start, r.stop) for r in done)
                    return Claim(left["id"], left["chunk_size"], chunks, values["logits_path"])
                connection.execute(e.delete().where(e.c.id == left["id"]))
            values = dict(
                model_id=model_id,
                eval_setting_id=eval_setting_id,
                variant=variant,
                complete=False,
                status="running",
                run_id=self.run_id,
                n_images=work.n_images,
                chunk_size=work.chunk_size,
                dataset_fingerprint=work.fingerprint,
                samples_path=work.samples_path,
                logits_path=work.logits_path,
                dtype=work.dtype,
                created_at=now(),
            )
            inserted = connection.execute(e.insert().values(**values)).inserted_primary_key
            assert inserted is not None
            abandoned = left["logits_path"] if left else None
            return Claim(int(inserted[0]), work.chunk_size, (), work.logits_path, abandoned)

    def living_runs(self) -> set[str]:
        """Ids of the runs that are at work."""
        with self.reading() as connection:
            runs = connection.execute(sa.select(schema.runs).where(schema.runs.c.ended_at.is_(None))).mappings()
            return {run["id"] for run in runs if _lives(run)}

    def refuse_if_alive(self, connection: sa.Connection, run_id: str | None) -> None:
        """Raises Busy where a run that is not this one holds the evaluation and lives."""
        if run_id is None or run_id == self.run_id:
            return
        run = connection.execute(sa.select(schema.runs).where(schema.runs.c.id == run_id)).mappings().first()
        if run is not None and run["ended_at"] is None and _lives(run):
            raise Busy(f"under way in another run ({run['host']}, process {run['pid']})")

    def record_chunk(self, evaluation_id: int, **facts: Any) -> None:
        """One finished chunk: start, stop, seconds, device, bad_rows, weights_sha256.

        It replaces an earlier record of the chunk, whose file was lost.
        """
        c = schema.chunks
        with self.writing() as connection:
            connection.execute(c.delete().where(c.c.evaluation_id == evaluation_id, c.c.start == facts["start"]))
            connection.execute(c.insert().values(evaluation_id=evaluation_id, **facts))

    def forget_chunks(self, evaluation_id: int) -> None:
        """The next run of the pair begins anew."""
        with self.writing() as connection:
            connection.execute(schema.chunks.delete().where(schema.chunks.c.evaluation_id == evaluation_id))

    def chunk_facts(self, evaluation_id: int) -> list[dict[str, Any]]:
        with self.reading() as connection:
            query = sa.select(schema.chunks).where(schema.chunks.c.evaluation_id == evaluation_id)
            return [dict(r) for r in connection.execute(query.order_by(schema.chunks.c.start)).mappings()]

    def complete(self, evaluation_id: int, metrics: Mapping[str, Estimate], **values: Any) -> list[str]:
        """One transaction: the earlier result of the pair goes, this one stands with all its metrics.

        Returns the logits files that nothing refers to any more.
        """
        e = schema.evaluations
        with self.writing() as connection:
            row = connection.execute(sa.select(e).where(e.c.id == evaluation_id)).mappings().one()
            earlier = sa.and_(
                e.c.model_id == row["model_id"],
                e.c.eval_setting_id == row["eval_setting_id"],
                e.c.variant == row["variant"],
                e.c.source == row["source"],
                e.c.complete,
                e.c.id != evaluation_id,
            )
            orphans = connection.execute(sa.select(e.c.logits_path).where(earlier)).scalars().all()
            connection.execute(e.delete().where(earlier))
            values = dict(complete=True, status="completed", error=None, finished_at=now(), **values)
            connection.execute(e.update().where(e.c.id == evaluation_id).values(**values))
            self._replace_metrics(connection, evaluation_id, metrics)
        return [path for path in orphans if path]

    def replace_metrics(self, evaluation_id: int, metrics: Mapping[str, Estimate]) -> None:
        with self.writing() as connection:
            self._replace_metrics(connection, evaluation_id, metrics)

    def _replace_metrics(self, connection: sa.Connection, evaluation_id: int, metrics: Mapping[str, Estimate]) -> None:
        table = schema.metrics
        connection.execute(table.delete().where(table.c.evaluation_id == evaluation_id))
        rows = [
            dict(
                evaluation_id=evaluation_id,
                name=name,
                position=i,
                value=_number(m.value),
                ci_low=_number(m.ci_low),
                ci_high=_number(m.ci_high),
                n=None if m.n is None else int(m.n),
                unit=m.kind.unit or None,
                better=m.kind.better,
                lowest=m.kind.lowest,
                highest=m.kind.highest,
            )
            for i, (name, m) in enumerate(metrics.items())
        ]
        if rows:
            connection.execute(table.insert(), rows)

    def fail(self, evaluation_id: int, error: str) -> None:
        e = schema.evaluations
        with self.writing() as connection:
            values = dict(status="failed", error=error, finished_at=now())
            connection.execute(e.update().where(e.c.id == evaluation_id).values(**values))


def _number(value: Any) -> float | None:
    """A plain float for every driver; what is not a number is NULL, which is all SQLite has for it."""
    return None if value is None or math.isnan(value) else float(value)


def _lives(run: Mapping[Any, Any]) -> bool:
    if run["host"] == socket.gethostname():
        try:
            os.kill(run["pid"], 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
    return time.time() - run["heartbeat_at"] < STALE_AFTER_S


def reason(error: Exception) -> str:
    """What the driver says, in one line and without SQLAlchemy's own additions."""
    return " ".join(str(getattr(error, "orig", None) or error).split())
