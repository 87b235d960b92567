"""Taking the evaluations of one results database into another: what merging and copying have in common.

The other database is read evaluation by evaluation, in the order in which one is made from another. First the files of
a few are in their place, then one short transaction writes their rows. So whoever is interrupted repeats the same
command: what has a row is passed by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from testbed.errors import DamagedError, StoreError
from testbed.store import damage, schema
from testbed.store.carrying import Carried, Carrier
from testbed.store.database import Store, now
from testbed.store.find import evaluation_by_id
from testbed.store.row_checks import refuse_odd_rows

_AT_ONCE = 50  # evaluations in one transaction
_ONLY = ("evaluations", "schema_version", "runs", "models", "eval_settings")  # tables that are no part of another


class Row(NamedTuple):
    """What decides whether an evaluation is taken."""

    id: int
    model: str
    setting: str
    version: int
    variant: str
    source: str
    complete: bool
    status: str
    sha256: str | None
    derived_from: int | None
    finished_at: str | None

    @property
    def key(self) -> tuple[str, str, int, str, str]:
        return self.model, self.setting, self.version, self.variant, self.source

    @property
    def label(self) -> str:
        return f"{self.model} on {self.setting}" + (f" ({self.variant})" if self.variant else "")


@dataclass
class Taken:
    """What a transfer did."""

    completed: int = 0
    failed: int = 0  # taken as well, so that they are listed
    unfinished: int = 0  # moved by a copy, left by a merge
    stored: int = 0  # passed by: there already
    replaced: int = 0
    differing: list[str] = field(default_factory=list)  # both have a result, with other logits
    damaged: list[str] = field(default_factory=list)
    followers: int = 0  # left out with the result that they are derived from
    removed: list[str] = field(default_factory=list)  # derived from a result that was replaced, and not made again
    files: Carried = field(default_factory=Carried)


def rows_of(store: Store) -> list[Row]:
    """The evaluations of a store, whatever their state, each after the one that it is derived from."""
    e, m, s = schema.evaluations, schema.models, schema.eval_settings
    columns = (e.c.id, m.c.name, s.c.name, s.c.version, e.c.variant, e.c.source, e.c.complete, e.c.status)
    query = sa.select(*columns, e.c.logits_sha256, e.c.derived_from_id, e.c.finished_at)
    query = query.join(m, m.c.id == e.c.model_id).join(s, s.c.id == e.c.eval_setting_id)
    with store.reading() as connection:
        rows = {row[0]: Row(*row) for row in connection.execute(query)}

    def depth(row: Row) -> int:
        parent = rows.get(row.derived_from or 0)
        return 0 if parent is None else 1 + depth(parent)

    return sorted(rows.values(), key=lambda row: (depth(row), row.id))


def refuse_itself(target: Store, source: Store) -> None:
    one, other = target.engine.url, source.engine.url
    same = one == other
    if one.database and other.database and not (target.on_server or source.on_server):
        same = _resolved(one) == _resolved(other)
    if same:
        raise StoreError(f"expected two databases, got {source.where} twice")


def _resolved(url: sa.URL) -> str:
    return str(Path(str(url.database)).resolve())


class Transfer:
    """What a merge and a copy have in common."""

    def __init__(self, target: Store, source: Store) -> None:
        self.target, self.source = target, source
        self.carrier = Carrier(source.folder, target.folder)
        self.taken = Taken(files=self.carrier.carried)
        self.models: dict[int, int] = {}  # number in the source -> number in the target
        self.settings: dict[int, int] = {}
        self.ids: dict[int, int] = {}  # the same of evaluations
        self.gone: set[int] = set()  # evaluations of the target that others have replaced, or that went with those

    def run(self) -> Taken:
        refuse_odd_rows(self.source)
        rows = rows_of(self.source)
        damage.refuse_other_folder(self.source)
        self.check(rows)
        self._runs()
        self.names()
        waiting: list[tuple[Row, dict[str, Any]]] = []
        for row in rows:
            if row.derived_from is not None and row.derived_from not in self.ids:
                self._write(waiting)  # the one it is derived from may be among these
                waiting = []
            if self.wanted(row):
                waiting += self._with_files(row)
            if len(waiting) >= _AT_ONCE:
                self._write(waiting)
                waiting = []
        self._write(waiting)
        self.at_end()
        return self.taken

    def at_end(self) -> None:
        """What is to be told of the whole."""

    def check(self, rows: Sequence[Row]) -> None:
        """Raise a StoreError where the two cannot be brought together."""

    def names(self) -> None:
        """Enter the models and settings."""
        raise NotImplementedError

    def wanted(self, row: Row) -> bool:
        """Whether an evaluation is to be taken."""
        raise NotImplementedError

    def replaces(self, connection: sa.Connection, row: Row, values: Mapping[str, Any]) -> list[int] | None:
        """The evaluations of the target that one takes the place of; None where it is not to be entered after all."""
        raise NotImplementedError

    def on_damage(self, row: Row, problem: str) -> list[tuple[Row, dict[str, Any]]]:
        """What is entered of an evaluation whose files are not whole."""
        raise NotImplementedError

    # ---- files, then rows ------------------------------------------------------------------------------------

    def _with_files(self, row: Row) -> list[tuple[Row, dict[str, Any]]]:
        """An evaluation whose files are in their place, with the values of its row."""
        e = schema.evaluations
        with self.source.reading() as connection:
            values = connection.execute(sa.select(e).where(e.c.id == row.id)).mappings().first()
        if values is None:  # removed in the meantime
            return []
        try:
            return [(row, self.with_paths(row, dict(values)))]
        except DamagedError as error:
            if values["logits_path"]:  # what is derived has no files of its own
                damage.mark(self.source, evaluation_by_id(self.source, row.id), str(error))
            return self.on_damage(row, str(error))

    def with_paths(self, row: Row, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, **self.carrier.evaluation(values)} if row.complete else values

    def _write(self, waiting: Sequence[tuple[Row, dict[str, Any]]]) -> None:
        """One transaction: the rows of some evaluations, with everything that belongs to them."""
        if not waiting:
            return
        gone: dict[int, str | None] = {}
        replaced = 0
        with self.source.reading() as there, self.target.writing() as connection:
            for row, values in waiting:
                others = self.replaces(connection, row, values)
                if others is None:
                    continue
                gone |= _removed(connection, others)
                replaced += len(others)
                self._enter(there, connection, row, values)
        self.taken.replaced += replaced
        self.gone |= gone.keys()
        self.target.discard(filter(None, gone.values()))

    def _enter(self, there: sa.Connection, connection: sa.Connection, row: Row, values: Mapping[str, Any]) -> None:
        made = {name: value for name, value in values.items() if value is not None}
        made |= {"model_id": self.models[values["model_id"]]}
        made |= {"eval_setting_id": self.settings[values["eval_setting_id"]]}
        if row.derived_from is not None:
            made["derived_from_id"] = self.ids[row.derived_from]
        self.ids[row.id] = self.enter_evaluation(connection, made)
        for table in belonging_to("evaluations"):
            if table is schema.chunks and not self.takes_chunks(row):
                continue
            lines = there.execute(sa.select(table).where(table.c.evaluation_id == row.id)).mappings()
            if entered := [{**line, "evaluation_id": self.ids[row.id]} for line in lines]:
                connection.execute(table.insert(), entered)

    def enter_evaluation(self, connection: sa.Connection, values: dict[str, Any]) -> int:
        """Write the row of an evaluation; its number."""
        raise NotImplementedError

    def takes_chunks(self, row: Row) -> bool:
        """Whether the chunks that an evaluation was made of are entered."""
        return True

    # ---- what evaluations refer to ---------------------------------------------------------------------------

    def _runs(self) -> None:
        """The runs that made them: their numbers are the same nowhere else."""
        for table in (schema.runs, *belonging_to("runs")):
            self.enter_missing(table, self.as_ended if table is schema.runs else dict)

    def as_ended(self, run: Mapping[Any, Any]) -> dict[str, Any]:
        """A run that is at work on the other database is not at work on this one."""
        return {**run, "ended_at": run["ended_at"] or now()}

    def enter_missing(self, table: sa.Table, changed: Callable[[Mapping[Any, Any]], dict[str, Any]] = dict) -> None:
        """The rows of a table whose keys the target has not got, as they are."""
        key = list(table.primary_key)
        with self.target.reading() as connection:
            known = {tuple(row) for row in connection.execute(sa.select(*key))}
        with self.source.reading() as connection:
            lines = [changed(line) for line in connection.execute(sa.select(table)).mappings()]
        missing = [line for line in lines if tuple(line[column.name] for column in key) not in known]
        if missing:
            with self.target.writing() as connection:
                connection.execute(table.insert(), missing)


def belonging_to(name: str) -> Iterator[sa.Table]:
    """The tables whose rows are parts of another table's, such as metrics of an evaluation."""
    for table in schema.tables.sorted_tables:
        parents = {key.column.table.name for key in table.foreign_keys}
        if table.name not in _ONLY and name in parents and not (name == "runs" and "evaluations" in parents):
            yield table


def _removed(connection: sa.Connection, ids: Sequence[int]) -> dict[int, str | None]:
    """Remove evaluations, and with them what is derived from them; the numbers of all, with their logits files."""
    e = schema.evaluations
    gone: dict[int, str | None] = {}
    going = list(ids)
    while going:
        some = e.c.id.in_(going)
        gone |= {row.id: row.logits_path for row in connection.execute(sa.select(e.c.id, e.c.logits_path).where(some))}
        derived = connection.execute(sa.select(e.c.id).where(e.c.derived_from_id.in_(going))).scalars()
        going = [id_ for id_ in derived if id_ not in gone]
    if gone:
        connection.execute(e.delete().where(e.c.id.in_(ids)))
    return gone
