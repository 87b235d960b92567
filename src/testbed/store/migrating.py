"""Bringing a database of an older program up to date. Of one in a file a copy is kept beside it, as it was."""

from __future__ import annotations

import filecmp
import shutil
import sqlite3
import sys
from contextlib import closing
from itertools import count
from pathlib import Path

from testbed.data.writing import write_aside
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.transactions import Database


def bring_up_to_date(database: Database, path: Path | None) -> None:
    """Make the tables where there are none, or go the steps from an older schema. `path`: of a database in a file.

    It is one transaction, in which no other process writes: of two that open an older database at once, the second
    finds it done. Copies of a server's databases are left to the server's own tools.
    """
    kept = None
    with database.writing() as connection:
        version = schema.stored_version(connection, database.where)
        if version is not None and version < schema.SCHEMA_VERSION and path is not None:
            kept = _kept_copy(path, version, database.where)
        schema.create_or_upgrade(connection, database.where)
    if kept is not None:
        told = f"brought from schema {version} to {schema.SCHEMA_VERSION}; as it was, it is kept in {kept}"
        print(f"{database.where}: {told}", file=sys.stderr, flush=True)


def _kept_copy(path: Path, version: int, where: str) -> Path:
    """Copy what is committed, while nobody can write. Where an equal copy is left of an earlier try, it does."""
    name = f"{path.name}.schema{version}"
    names = (path.with_name(name if n == 1 else f"{name}-{n}") for n in count(1))
    last = None
    while (free := next(names)).exists():
        last = free
    try:
        write_aside(free, lambda aside: _copy(path, aside))
    except (OSError, sqlite3.Error) as error:
        raise StoreError(
            f"{where} is of an older program (schema {version}) and was left as it is, since the copy that is kept of "
            f"it, {free}, cannot be written: {error}"
        ) from error
    if last is not None and filecmp.cmp(last, free, shallow=False):
        free.unlink()
        return last
    return free


def _copy(path: Path, aside: Path) -> None:
    aside.touch(mode=0o600)  # nobody may read the copy who may not read the database
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(aside)) as copy:
        copy.execute("PRAGMA journal_mode=OFF")  # one that is cut short is removed as a whole
        source.backup(copy)
    shutil.copymode(path, aside)
