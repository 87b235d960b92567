"""Changing the results database: short transactions, one row per fact."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from testbed.entries.checks import MOST_LETTERS_OF_A_METRIC, check_text, shortened
from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.store import schema
from testbed.store.claims import METRIC, Chunk, Claim, TakenOver, Work, last_of_each, same_functions
from testbed.store.places import Place, checked_root, make_ready, remove_all, under
from testbed.store.runs import Runs, now
from testbed.store.transactions import repeated


class Store(Runs):
    """A results database and the folder its logits files lie in."""

    def __init__(self, engine: sa.Engine, folder: Path, where: str, read_only: bool = False) -> None:
        super().__init__(engine, where, read_only)
        self.folder = folder
        self.logits_root: str | None = None  # URL under which files of new results are kept; None: in the folder
        self._ready_root: str | None = None  # one that files can be written under

    def place(self, stored: str | None) -> Place:
        """Where a file lies of which a row says `stored`."""
        assert stored is not None
        return Place(self.folder, stored)

    def keep_logits_under(self, root: str | None) -> None:
        """Files of new results go under this URL, if one is given. Raises StoreError where none can be written."""
        if root is not None:
            self.logits_root = checked_root(root)
        if self.logits_root is not None and self.logits_root != self._ready_root:
            make_ready(self.logits_root)
            self._ready_root = self.logits_root

    def begin_run(self) -> None:
        self.keep_logits_under(None)
        super().begin_run()

    def discard(self, stored: Iterable[str]) -> None:
        """Remove the files of results that others have replaced. What could not be removed is told, and stays."""
        for problem in remove_all(self.folder, stored):
            self.tell(f"{problem}; it stays there")

    def kept_at(self, relative: str) -> str:
        """What a row says of a new file that is made at `relative` below the folder."""
        return under(self.logits_root, relative) if self.logits_root else relative

    # ---- names -------------------------------------------------------------------------------------------

    @repeated
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

    def check_length(self, name: str) -> None:
        """Refuse a name that this database cannot hold. SQLite holds any; a string such as folder:PATH may be long."""
        most = schema.models.c.name.type.length  # type: ignore[attr-defined]
        if self.engine.dialect.name != "sqlite" and len(name) > most:
            raise StoreError(
                f"{self.where} holds names of at most {most} letters, {shortened(name)} has {len(name)}: use a shorter "
                "path, or a database in a file"
            )

    @repeated
    def _ensure(self, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        self.check_length(key["name"])
        where = sa.and_(*(table.c[k] == v for k, v in key.items()))
        with self.writing() as connection:
            known = connection.execute(sa.select(table.c.id).where(where)).scalar()
            if known is not None:
                return int(known)
            inserted = connection.execute(table.insert().values(**key, **values)).inserted_primary_key
            assert inserted is not None
            return int(inserted[0])

    # ---- evaluations -------------------------------------------------------------------------------------

    @repeated
    def claim(
        self,
        model_id: int,
        eval_setting_id: int,
        variant: str,
        work: Work,
        resumable: bool,
    ) -> Claim:
        """Take hold of a pair: continue what a dead or failed run left, or begin anew.

        An unfinished evaluation is continued where data, number of images, precision and functions are the same; chunks
        of two precisions must not be joined. Taking over is several statements and not one conditional UPDATE, since
        whether the holder lives is also asked of this machine and the work is compared in words; that writers take
        turns makes it as safe.
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
                same = same and same_functions((left["provenance"] or {}).get("functions"), work.functions)
                if resumable and same and left["chunk_size"]:
                    values: dict[str, Any] = dict(status="running", run_id=self.run_id, error=None)
                    # A pair that failed before it was run has no rows.
                    values["samples_path"] = work.samples_path or left["samples_path"]
                    values["logits_path"] = left["logits_path"] or work.logits_path
                    connection.execute(e.update().where(e.c.id == left["id"]).values(**values))
                    c = schema.chunks.c
                    done = connection.execute(sa.select(c.start, c.stop).where(c.evaluation_id == left["id"]))
                    chunks = tuple((r.start, r.stop) for r in done)
                    inherited = bool(left["logits_path"]) and left["run_id"] != self.run_id
                    return Claim(left["id"], left["chunk_size"], chunks, values["logits_path"], inherited)
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
                provenance={"functions": dict(work.functions)} if work.functions else None,
                created_at=now(),
            )
            inserted = connection.execute(e.insert().values(**values)).inserted_primary_key
            assert inserted is not None
            abandoned = left["logits_path"] if left else None
            return Claim(int(inserted[0]), work.chunk_size, (), work.logits_path, abandoned=abandoned)

    def _held(self, connection: sa.Connection, evaluation_id: int) -> Mapping[Any, Any]:
        """The row of an evaluation that this run still holds, read in the transaction that is about to change it.

        Writers take turns, so that no other run can take it over between this look and the change. A run that was
        silent for long finds here that its pair was taken over, removed, or brought to its end.
        """
        e = schema.evaluations
        row = connection.execute(sa.select(e).where(e.c.id == evaluation_id)).mappings().first()
        if row is None or row["run_id"] != self.run_id or row["complete"]:
            raise TakenOver
        return row

    def _is_completed_by_this_run(self, connection: sa.Connection, evaluation_id: int) -> bool:
        """Whether an earlier try got through whose answer was lost with the server."""
        e = schema.evaluations
        mine = sa.select(e.c.id).where(e.c.id == evaluation_id, e.c.run_id == self.run_id, e.c.complete)
        return connection.execute(mine).first() is not None

    @repeated
    def newest_evaluation(self) -> int:
        """The highest number that an evaluation has been given; 0 where there is none."""
        with self.reading() as connection:
            return connection.execute(sa.select(sa.func.max(schema.evaluations.c.id))).scalar() or 0

    @repeated
    def logits_path(self, evaluation_id: int) -> str | None:
        """Where the logits of an evaluation go, as its row has it now."""
        e = schema.evaluations
        with self.reading() as connection:
            return connection.execute(sa.select(e.c.logits_path).where(e.c.id == evaluation_id)).scalar()

    @repeated
    def move_logits(self, evaluation_id: int, logits_path: str) -> None:
        """The logits of an evaluation that this run holds, and the chunks beside them, lie here from now on."""
        e = schema.evaluations
        with self.writing() as connection:
            self._held(connection, evaluation_id)
            connection.execute(e.update().where(e.c.id == evaluation_id).values(logits_path=logits_path))

    def record_chunk(self, evaluation_id: int, **facts: Any) -> None:
        """One finished chunk. Raises TakenOver, as all that follow, where the evaluation is another run's by now."""
        if self.record_chunks([Chunk(evaluation_id, **facts)]):
            raise TakenOver

    @repeated
    def record_chunks(self, chunks: Sequence[Chunk]) -> set[int]:
        """Finished chunks, in one transaction. They replace earlier records of their rows, whose files were lost.

        Returns the evaluations that are another run's by now, whose chunks are left out.
        """
        c, e = schema.chunks, schema.evaluations
        ids = {chunk.evaluation_id for chunk in chunks}
        same_rows = (c.c.evaluation_id == sa.bindparam("id"), c.c.start < sa.bindparam("end"))
        replaced = c.delete().where(*same_rows, c.c.stop > sa.bindparam("begin"))
        with self.writing() as connection:
            mine = sa.select(e.c.id).where(e.c.id.in_(ids), e.c.run_id == self.run_id, ~e.c.complete)
            held = set(connection.execute(mine).scalars())
            rows = [dict(vars(chunk)) for chunk in last_of_each(chunks) if chunk.evaluation_id in held]
            if rows:
                places = [{"id": r["evaluation_id"], "begin": r["start"], "end": r["stop"]} for r in rows]
                connection.execute(replaced, places)
                connection.execute(c.insert(), rows)
        return ids - held

    @repeated
    def forget_chunks(self, evaluation_id: int) -> None:
        """The next run of the pair begins anew."""
        with self.writing() as connection:
            self._held(connection, evaluation_id)
            connection.execute(schema.chunks.delete().where(schema.chunks.c.evaluation_id == evaluation_id))

    @repeated
    def chunk_facts(self, evaluation_id: int) -> list[dict[str, Any]]:
        with self.reading() as connection:
            query = sa.select(schema.chunks).where(schema.chunks.c.evaluation_id == evaluation_id)
            return [dict(r) for r in connection.execute(query.order_by(schema.chunks.c.start)).mappings()]

    @repeated
    def complete(self, evaluation_id: int, metrics: Mapping[str, Estimate], **values: Any) -> list[str]:
        """One transaction: the earlier result of the pair goes, this one stands with all its metrics.

        Its chunks go too: they tell how to go on with what is not whole, and there may be fifty for each result.
        Returns the logits files that nothing refers to any more.
        """
        e = schema.evaluations
        with self.writing() as connection:
            if self._is_completed_by_this_run(connection, evaluation_id):
                return []
            row = self._held(connection, evaluation_id)
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
            connection.execute(schema.chunks.delete().where(schema.chunks.c.evaluation_id == evaluation_id))
        return [path for path in orphans if path]

    @repeated
    def replace_metrics(self, evaluation_id: int, metrics: Mapping[str, Estimate], digest: str | None = None) -> None:
        """Other numbers for an evaluation, by the metrics function of that digest."""
        e = schema.evaluations
        with self.writing() as connection:
            self._replace_metrics(connection, evaluation_id, metrics)
            if digest is not None:
                of_this = e.c.id == evaluation_id
                facts = dict(connection.execute(sa.select(e.c.provenance).where(of_this)).scalar_one() or {})
                facts["functions"] = {**(facts.get("functions") or {}), METRIC: digest}
                connection.execute(e.update().where(of_this).values(provenance=facts))

    def _replace_metrics(self, connection: sa.Connection, evaluation_id: int, metrics: Mapping[str, Estimate]) -> None:
        table = schema.metrics
        connection.execute(table.delete().where(table.c.evaluation_id == evaluation_id))
        rows = [
            dict(
                evaluation_id=evaluation_id,
                name=check_text("metric", name, MOST_LETTERS_OF_A_METRIC),
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

    @repeated
    def fail(self, evaluation_id: int, error: str) -> None:
        e = schema.evaluations
        with self.writing() as connection:
            self._held(connection, evaluation_id)
            # A message may quote the name of a file that is no UTF-8.
            told = error.encode("utf-8", "backslashreplace").decode("utf-8")
            values = dict(status="failed", error=told, finished_at=now())
            connection.execute(e.update().where(e.c.id == evaluation_id).values(**values))

    @repeated
    def clear_failures(self, pairs: Collection[tuple[str, str, int]], variant: str) -> None:
        """Remove failures that stand beside the finished result of the same pair (model, setting, version).

        Older programs left such rows when a run woke up after another had taken over its pairs. A failed attempt that
        has finished chunks stays: the command that made it goes on from there.
        """
        e, m, s = schema.evaluations, schema.models, schema.eval_settings
        done = e.alias()
        same = [done.c[name] == e.c[name] for name in ("model_id", "eval_setting_id", "variant", "source")]
        failures = (
            sa.select(e.c.id, m.c.name, s.c.name, s.c.version)
            .join(m, m.c.id == e.c.model_id)
            .join(s, s.c.id == e.c.eval_setting_id)
            .where(e.c.status == "failed", e.c.variant == variant, e.c.source == "own")
            .where(sa.exists().where(*same, done.c.complete))
            .where(~sa.exists().where(schema.chunks.c.evaluation_id == e.c.id))
        )
        with self.reading() as connection:
            ids = [row[0] for row in connection.execute(failures) if tuple(row[1:]) in pairs]
        if ids:
            with self.writing() as connection:  # one may have been claimed for another try in the meantime
                connection.execute(e.delete().where(e.c.id.in_(ids), e.c.status == "failed"))


def _number(value: Any) -> float | None:
    """A plain float for every driver; what is not a number is NULL, which is all SQLite has for it."""
    return None if value is None or math.isnan(value) else float(value)
