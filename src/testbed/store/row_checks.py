"""Whether the rows of a database in a file are such as this program writes them.

SQLite keeps whatever it is given in any column, and a database may come from somebody else. Before its results are
taken into another one, and when a command has stumbled over it, all of its rows are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from testbed.entries.checks import check_text, shortened
from testbed.errors import StoreError, TestbedError
from testbed.store import schema
from testbed.store.evaluation import Provenance
from testbed.store.places import checked_path
from testbed.store.transactions import Database

_MOST_LETTERS = 4096
_LARGEST = 2**62  # of a whole number
_FURTHEST_S = 1e11  # of a time in seconds: the years that a date can have
_STATES = ("completed", "damaged", "running", "failed")
# Texts that are names, or are shown like one, and may be empty.
_NAMES = {
    "models": ("name", "arch"),
    "eval_settings": ("name", "logits_from", "images_from", "parent"),
    "evaluations": ("variant", "source", "device", "dtype", "logits_sha256", "weights_sha256", "dataset_fingerprint"),
    "metrics": ("name", "unit", "better"),
    "estimates": ("method", "source", "fit", "assumes", "set_group"),
}


def refuse_odd_rows(database: Database) -> None:
    """Raise a StoreError that names the first thing that is not as this program writes it."""
    if problem := odd_row(database):
        raise StoreError(f"{database.where} has rows that no testbed wrote: {problem}")


def odd_row(database: Database) -> str:
    """The first thing that is not as this program writes it; empty where there is none, or the server looks to it."""
    if database.engine.dialect.name != "sqlite":
        return ""
    with database.reading() as connection:
        return next(_problems(connection), "")


def _problems(connection: sa.Connection) -> Iterator[str]:
    for table in schema.tables.sorted_tables:
        yield from _of_other_kinds(connection, table)
    for row in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"{row[0]}: row {row[1]} belongs to one of {row[2]} that is not there"
    for table_name, names in _NAMES.items():
        for name in names:
            yield from _refused(connection, schema.tables.tables[table_name].c[name], _as_name)
    evaluations = schema.evaluations.c
    yield from _refused(connection, evaluations.status, _as_state)
    for path in (evaluations.logits_path, evaluations.samples_path):
        yield from _refused(connection, path, _as_path)
    for table in schema.tables.sorted_tables:
        for column in table.c:
            if isinstance(column.type, sa.JSON):
                yield from _refused(connection, column, _AS_JSON[f"{table.name}.{column.name}"])
    yield from _circles(connection)


def _of_other_kinds(connection: sa.Connection, table: sa.Table) -> Iterator[str]:
    """Values of a kind that the column does not declare: SQLite stores them all the same."""
    for column in table.c:
        plain = sa.type_coerce(column, sa.BLOB)  # as it is, without what SQLAlchemy makes of it
        kind = sa.func.typeof(plain)
        allowed = [*_kinds(column.type), *(["null"] if column.nullable else [])]
        wrong: list[sa.ColumnElement[bool]] = [kind.not_in(allowed)]
        if isinstance(column.type, sa.Integer):
            least = 0 if column.name in ("n_images", "n_bad", "start", "stop", "pid") else -_LARGEST
            wrong.append(sa.and_(kind == "integer", sa.or_(plain < sa.literal(least), plain > sa.literal(_LARGEST))))
        if table is schema.runs and isinstance(column.type, sa.Double):
            wrong.append(sa.and_(kind != "null", sa.func.abs(plain) > sa.literal(_FURTHEST_S)))
        if (got := connection.execute(sa.select(kind).where(sa.or_(*wrong)).limit(1)).scalar()) is not None:
            yield f"{table.name}.{column.name}: expected {_in_words(column.type)}, got {_GOT.get(got, 'another one')}"


def _kinds(type_: sa.types.TypeEngine[Any]) -> list[str]:
    if isinstance(type_, sa.Boolean | sa.Integer):
        return ["integer"]
    return ["real", "integer"] if isinstance(type_, sa.Double) else ["text"]


def _in_words(type_: sa.types.TypeEngine[Any]) -> str:
    return {"integer": "a whole number", "real": "a number", "text": "text"}[_kinds(type_)[0]]


_GOT = {"blob": "bytes", "null": "nothing", "text": "text", "real": "a fraction"}


def _refused(connection: sa.Connection, column: sa.Column[Any], check: Callable[[str], object]) -> Iterator[str]:
    query = sa.select(sa.type_coerce(column, sa.Text)).where(column.is_not(None)).distinct()
    for text in connection.execute(query).scalars():
        try:
            check(text)
        except (TestbedError, ValueError, RecursionError) as error:
            yield f"{column.table.name}.{column.name}: {error}"


def _as_name(text: str) -> None:
    if text:
        check_text("name", text, _MOST_LETTERS)


def _as_path(text: str) -> None:
    if text:  # of an evaluation that was begun without one
        checked_path(text)


def _as_state(text: str) -> None:
    if text not in _STATES:
        raise ValueError(f"expected {', '.join(_STATES)}, got {shortened(text)}")


def _circles(connection: sa.Connection) -> Iterator[str]:
    e = schema.evaluations.c
    query = sa.select(e.id, e.derived_from_id).where(e.derived_from_id.is_not(None))
    parents = {row.id: row.derived_from_id for row in connection.execute(query)}
    well = set[int]()
    for first in parents:
        way: dict[int, None] = {}
        at: int | None = first
        while at is not None and at not in well:
            if at in way:
                yield f"evaluations: {at} is derived from itself"
                return
            way[at] = None
            at = parents.get(at)
        well |= way.keys()


# ---- what is kept as JSON ----------------------------------------------------------------------------------


def _list_of(kind: type) -> Callable[[str], None]:
    def check(text: str) -> None:
        _expect(_is_list(json.loads(text), kind), text)

    return check


def _is_list(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _object(text: str) -> Mapping[str, Any]:
    value = json.loads(text)
    _expect(isinstance(value, dict), text)
    return value


def _as_provenance(text: str) -> None:
    if text == "null":  # of older programs
        return
    stored = _object(text)
    if problem := Provenance.problem(stored):
        raise ValueError(problem)
    ensemble = stored.get("ensemble") or {}
    members = ensemble.get("members") or {} if isinstance(ensemble, dict) else None
    parts = members.values() if isinstance(members, dict) else [None]
    _expect(all(isinstance(part, dict) and isinstance(part.get("evaluation"), int | None) for part in parts), text)


def _as_progress(text: str) -> None:
    """As testbed.engine.telling tells it."""
    if text == "null":
        return
    told = _object(text)
    devices, seen = told.get("devices", []), [told.get("pairs", {}), told.get("images", {})]
    _expect(not told or isinstance(told.get("work"), str), text)
    _expect(all(isinstance(counts, dict) and _are_numbers(counts.values()) for counts in seen), text)
    _expect(not told or {"planned", "done", "failed"} <= seen[0].keys(), text)
    _expect(_are_numbers([told.get("images_per_second", 0.0)]) and _is_list(devices, dict), text)
    _expect(all(_is_device(device) for device in devices), text)


def _is_device(told: Mapping[str, Any]) -> bool:
    numbers = [told.get("images"), told.get("images_per_second")]
    at, silent_s = told.get("at", 0), told.get("silent_s")
    said = isinstance(told.get("device"), str) and isinstance(at, str | None)
    return said and _are_numbers(numbers) and (silent_s is None or _are_numbers([silent_s]))


def _are_numbers(values: Iterable[object]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) < _LARGEST for v in values)


def _expect(as_ours: bool, text: str) -> None:
    if not as_ours:
        raise ValueError(f"expected what this program writes there, got {shortened(text)}")


_AS_JSON: dict[str, Callable[[str], object]] = {
    "models.tags": _list_of(str),
    "eval_settings.tags": _list_of(str),
    "chunks.bad_rows": _list_of(int),
    "estimates.notes": json.loads,
    "evaluations.provenance": _as_provenance,
    "runs.progress": _as_progress,
}
