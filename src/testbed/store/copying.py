"""Copying a whole database: SQLite to a server, or back.

Every row keeps its number, and unfinished evaluations go on in the copy with their chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.database import Store
from testbed.store.transfer import Row, Taken, Transfer, belonging_to, refuse_itself, rows_of


def copy(source: Store, target: Store) -> Taken:
    """Make an empty database, or one that an earlier copy began, the same as the source."""
    refuse_itself(target, source)
    if working := source.living_runs():
        raise StoreError(
            f"{source.where}: {len(working)} run(s) are at work on it: wait until they have ended, or stop them with "
            "Ctrl-C; they go on in the copy"
        )
    return _Copy(target, source).run()


class _Copy(Transfer):
    def check(self, rows: Sequence[Row]) -> None:
        """The target is empty, or an earlier copy of the same: it has no evaluation that the source has not."""
        there = {row.id: row for row in rows}
        here = rows_of(self.target)
        other = next((row for row in here if row.id not in there or there[row.id].key != row.key), None)
        if other is not None:
            raise StoreError(
                f"{self.target.where} has a result of its own, {other.label}: expected an empty database, or one that "
                f"an earlier --copy of {self.source.where} began; --merge takes results into one that has some"
            )
        # Unfinished ones are entered again: more of their chunks may be done by now.
        self._here = {row for row in here if row.complete}
        self.ids = {row.id: row.id for row in rows}

    def as_ended(self, run: Mapping[Any, Any]) -> dict[str, Any]:
        return dict(run)

    def names(self) -> None:
        for table, numbers in ((schema.models, self.models), (schema.eval_settings, self.settings)):
            with self.source.reading() as connection:
                for id_, name in connection.execute(sa.select(table.c.id, table.c.name)):
                    self.target.check_length(name)
                    numbers[id_] = id_
            self.enter_missing(table)
        # Before there is an evaluation: a number that was given once, even to one that is gone, is not given again.
        for name in ("evaluations", "models", "eval_settings"):
            with self.source.reading() as connection:
                highest = _highest_number(connection, name)
            with self.target.writing() as connection:
                _go_on_after(connection, name, highest)

    def wanted(self, row: Row) -> bool:
        if row in self._here:
            self.taken.stored += 1
        return row not in self._here

    def with_paths(self, row: Row, values: dict[str, Any]) -> dict[str, Any]:
        if not row.complete and row.sha256 is None and values["logits_path"]:
            starts = [chunk["start"] for chunk in self.source.chunk_facts(row.id)]
            self.carrier.parts(values["logits_path"], starts)
            if values["samples_path"] and starts:
                values["samples_path"] = self.carrier.samples(values["samples_path"])
        return super().with_paths(row, values)

    def on_damage(self, row: Row, problem: str) -> list[tuple[Row, dict[str, Any]]]:
        """Its numbers were measured while the files were whole: they go along, with what is wrong."""
        self.taken.damaged.append(f"{row.label} is damaged: {problem}")
        with self.source.reading() as connection:
            e = schema.evaluations
            return [(row, dict(connection.execute(sa.select(e).where(e.c.id == row.id)).mappings().one()))]

    def replaces(self, connection: sa.Connection, row: Row, values: Mapping[str, Any]) -> list[int] | None:
        self.taken.completed += row.complete
        self.taken.failed += not row.complete and row.status == "failed"
        self.taken.unfinished += not row.complete and row.status != "failed"
        return []

    def enter_evaluation(self, connection: sa.Connection, values: dict[str, Any]) -> int:
        """One that is there, of an earlier copy, is changed in its place: others may be derived from it."""
        e = schema.evaluations
        for table in belonging_to("evaluations"):
            connection.execute(table.delete().where(table.c.evaluation_id == values["id"]))
        there = connection.execute(sa.select(e.c.id).where(e.c.id == values["id"])).first()
        blank = {column.name: None for column in e.c if column.nullable and column is not e.c.provenance}
        connection.execute(
            e.insert().values(**values)
            if there is None
            else e.update().where(e.c.id == values["id"]).values({**blank, **values})
        )
        return int(values["id"])


# ---- numbers ---------------------------------------------------------------------------------------------------


def _highest_number(connection: sa.Connection, table: str) -> int:
    """The highest number that an evaluation, a model or a setting was given, also one that is gone."""
    highest = connection.execute(sa.select(sa.func.max(schema.tables.tables[table].c.id))).scalar() or 0
    asked = {
        "sqlite": f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'",
        "postgresql": f"SELECT last_value FROM {table}_id_seq WHERE is_called",
    }.get(connection.dialect.name)
    counted = connection.execute(sa.text(asked)).scalar() if asked else None
    return max(int(counted or 0), highest)


def _go_on_after(connection: sa.Connection, table: str, number: int) -> None:
    """The next number that the database gives is a higher one."""
    number = max(number, _highest_number(connection, table))
    if connection.dialect.name == "postgresql" and number:
        connection.execute(sa.text(f"SELECT setval('{table}_id_seq', :number)"), {"number": number})
    if connection.dialect.name == "sqlite" and table == "evaluations":  # the one table of SQLite that counts
        changed = connection.execute(
            sa.text("UPDATE sqlite_sequence SET seq = :n WHERE name = :t"), dict(n=number, t=table)
        )
        if not changed.rowcount:
            connection.execute(
                sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES (:t, :n)"), dict(n=number, t=table)
            )
