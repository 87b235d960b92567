"""Whether two databases hold the same: rows as `find` reads them, and logits with the checksums of their rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import sqlalchemy as sa

from testbed.store import files, schema
from testbed.store.damage import DAMAGED
from testbed.store.database import Store
from testbed.store.estimates import estimates
from testbed.store.evaluation import Evaluation
from testbed.store.find import EVERY, every_evaluation, numbers
from testbed.store.places import Place

# Paths may have another name in the other folder; what is behind them is compared by its checksum.
_FACTS = [f.name for f in fields(Evaluation) if f.name not in ("logits_path", "samples_path", "stored_provenance")]


@dataclass
class Compared:
    """What a comparison of two databases has looked at, and what differs."""

    rows: dict[str, int] = field(default_factory=dict)  # by table
    digest: str = ""  # of all that `find` reads
    logits: int = 0  # files whose checksum is that of their row
    elsewhere: int = 0  # that lie at an address, and were not read
    differences: list[str] = field(default_factory=list)


def compare(source: Store, target: Store) -> Compared:
    """Counts of every table, every row that readers see, and the sha256 of all logits of the target."""
    compared = Compared()
    for table in schema.tables.sorted_tables:
        here, there = (_count(store, table) for store in (source, target))
        compared.rows[table.name] = there
        if here != there:
            compared.differences.append(f"{table.name}: {here:,} rows, the copy has {there:,}")
    said = [_said(store) for store in (source, target)]
    compared.digest = _digest(said[1])
    if _digest(said[0]) != compared.digest:
        compared.differences += _first_differences(*said) or ["the rows differ"]
    _compare_logits(source, target, compared)
    return compared


def _count(store: Store, table: sa.Table) -> int:
    with store.reading() as connection:
        return int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())


def _said(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """What readers see: evaluations in any state, numbers, and estimates without labels."""
    evaluations = sorted(every_evaluation(store), key=lambda e: e.id)
    return {
        "evaluations": [_plain((*(getattr(e, name) for name in _FACTS), repr(e.provenance))) for e in evaluations],
        "numbers": [_plain(n) for n in numbers(store, variant=EVERY, version=EVERY, source=EVERY)],
        "estimates": sorted((_plain(row.values()) for row in estimates(store)), key=repr),
    }


def _plain(row: Iterable[Any]) -> tuple[Any, ...]:
    """Views of SQLite have no booleans."""
    return tuple(int(value) if isinstance(value, bool) else value for value in row)


def _digest(said: dict[str, list[tuple[Any, ...]]]) -> str:
    whole = hashlib.sha256()
    for kind, rows in said.items():
        whole.update(kind.encode())
        for row in rows:
            whole.update(repr(row).encode("utf-8", "backslashreplace"))
    return whole.hexdigest()


def _first_differences(one: dict[str, list[tuple[Any, ...]]], other: dict[str, list[tuple[Any, ...]]]) -> list[str]:
    told = []
    for kind, rows in one.items():
        pairs = zip(rows, other[kind], strict=False)
        if (different := next(((a, b) for a, b in pairs if a != b), None)) is not None:
            fact = next((a, b) for a, b in zip(*different, strict=True) if a != b)
            told.append(f"{kind} differ, first {_named(kind, different[0])}: {fact[0]!r}, the copy has {fact[1]!r}")
    return told


def _compare_logits(source: Store, target: Store, compared: Compared) -> None:
    for e in every_evaluation(target):
        if not e.logits_path or e.status not in ("completed", DAMAGED):
            continue
        if "://" in e.logits_path:
            compared.elsewhere += 1
            continue
        path, before = Place(target.folder, e.logits_path).path, Place(source.folder, e.logits_path).path
        if path.is_file() and before.is_file() and path.samefile(before):
            path = before  # one file by two names, which has been read by now
        if path.is_file() and files.known_sha256(path) == e.logits_sha256:
            compared.logits += 1
        elif e.status != DAMAGED:
            compared.differences.append(f"{path} is missing or is not the file of {e.label}")


def _named(kind: str, row: tuple[Any, ...]) -> str:
    model, setting = row[1:3] if kind == "evaluations" else row[:2]
    return f"{model} on {setting}"
