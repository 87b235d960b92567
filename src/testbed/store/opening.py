"""Opening the results database: where it is, what each kind of database needs, and its schema brought up to date."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from testbed.data.locate import home
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.database import Store
from testbed.store.masking import masked, masked_url
from testbed.store.migrating import bring_up_to_date
from testbed.store.places import checked_root
from testbed.store.row_checks import refuse_odd_rows
from testbed.store.transactions import Database, reason

DB_VARIABLE = "TESTBED_DB"
RESULTS_VARIABLE = "TESTBED_RESULTS"
LOGITS_VARIABLE = "TESTBED_LOGITS"
DEFAULT_FOLDER, DEFAULT_DB = "results", "results.db"
_PATIENCE_S = 60  # for another process to finish its transaction
_STEP_MS = 250


_opened: dict[Path, str] = {}  # by this process: database in a file -> its name


def what_is_odd() -> str:
    """What is wrong with the rows of a database that this process has opened, for one who stumbled; mostly nothing."""
    for path, where in _opened.items():
        engine = _read_only_engine(sa.URL.create("sqlite"), path, where)
        try:
            refuse_odd_rows(Database(engine, where))
        except StoreError as error:
            return str(error)
        finally:
            engine.dispose()
    return ""


def database_place(given: str | None = None) -> tuple[sa.URL, Path]:
    """The SQLAlchemy URL and the results folder for --db, TESTBED_DB or the default."""
    place = given or os.environ.get(DB_VARIABLE) or str(home(DEFAULT_FOLDER) / DEFAULT_DB)
    try:
        as_file = "://" not in place
        url = sa.URL.create("sqlite", database=str(Path(place).expanduser())) if as_file else sa.make_url(place)
    except (sa.exc.ArgumentError, ValueError) as error:
        # The parser quotes what it stumbled over, which may be a piece of a password: its words are not repeated.
        raise StoreError(
            "--db: expected a file or a URL like postgresql+psycopg://user@host/name: what was given cannot be read as "
            "one (in a password, @ : / are written %40 %3A %2F)"
        ) from error
    file = _sqlite_file(url)
    return url, file.parent if file is not None else Path(os.environ.get(RESULTS_VARIABLE) or home(DEFAULT_FOLDER))


def _sqlite_file(url: sa.URL) -> Path | None:
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def is_there(given: str | None = None) -> bool:
    """Whether there is a results database to open; any but a file is taken to be there."""
    path = _sqlite_file(database_place(given)[0])
    return path is None or path.is_file()


def open_store(given: str | None = None, create: bool = False) -> Store:
    """The store at --db, TESTBED_DB or results/results.db. Only a run makes a database where there is none."""
    url, folder = database_place(given)
    path = _sqlite_file(url)
    where = f"database {path if path is not None else masked_url(url)}"
    if path is not None and path.is_dir():
        raise StoreError(f"{path} is a folder, expected a results database, such as {path / 'results.db'}")
    if path is not None and not create and not path.is_file():
        raise StoreError(f"there is no results {where} yet: run eval.py first, or name one with --db")
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        read_only = path is not None and path.is_file() and not can_write(path)
        engine = _read_only_engine(url, path, where) if path is not None and read_only else _engine(url)
        if engine.dialect.name in _PREPARE:
            _PREPARE[engine.dialect.name](engine)
        store = Store(engine, folder, where, read_only)
        with engine.connect() as connection:
            version = schema.stored_version(connection, where)
        if version != schema.SCHEMA_VERSION and read_only:
            raise StoreError(
                f"{where} is of an older program and read-only: copy its folder, and it is brought up to date"
            )
        if version != schema.SCHEMA_VERSION:
            bring_up_to_date(store, path)
        if not read_only:
            store.mask_commands()
        if create and (root := os.environ.get(LOGITS_VARIABLE)):
            store.logits_root = checked_root(root, LOGITS_VARIABLE)
        if path is not None:
            _opened[path] = where
        return store
    except (sa.exc.SQLAlchemyError, OSError, ImportError) as error:
        told = masked(reason(error), url.password if isinstance(url.password, str) else None)
        raise StoreError(f"{where} cannot be opened: {told}") from error


# ---- read-only results -----------------------------------------------------------------------------------


def can_write(path: Path) -> bool:
    """Whether SQLite can write the file: it needs its folder too, for the write-ahead log."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(place, os.W_OK, effective_ids=effective) for place in (path, path.absolute().parent))


def _read_only_engine(url: sa.URL, path: Path, where: str) -> sa.Engine:
    """An engine that reads the file as it is: results on a read-only disk, or of somebody else."""
    # Without the side files, which it cannot make here, SQLite reads a file of WAL mode only if told that nobody
    # writes to it.
    log, index = (path.with_name(f"{path.name}-{ending}") for ending in ("wal", "shm"))
    has_log = log.is_file() and log.stat().st_size > 0
    if has_log and not index.is_file() and not _writable_folder(path):
        raise StoreError(
            f"{where} has results in {log.name} that cannot be read in a read-only folder: copy the folder"
        )
    alone = not has_log and not _writable_folder(path)
    address = f"{path.absolute().as_uri()}?{'immutable=1' if alone else 'mode=ro'}"
    return sa.create_engine(url, creator=lambda: sqlite3.connect(address, uri=True, check_same_thread=False))


def _writable_folder(path: Path) -> bool:
    return os.access(path.absolute().parent, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _engine(url: sa.URL) -> sa.Engine:
    more: dict[str, Any] = {}
    if url.get_backend_name() != "sqlite":
        # A server may have been started again since a connection was used: each is tried before it is used again.
        more["pool_pre_ping"] = True
    if url.get_backend_name() == "postgresql":
        # Whatever the server is set to: under a stricter level a transaction that has waited for its turn would still
        # see what was there before, and a run would write about a pair that it has lost.
        more["isolation_level"] = "READ COMMITTED"
    return sa.create_engine(url, **more)


# ---- what each kind of database needs --------------------------------------------------------------------


def _prepare_sqlite(engine: sa.Engine) -> None:
    """Several processes may use the file: write-ahead log, patience, and write locks taken at the start."""

    @sa.event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's BEGIN below, not the driver's own
        # trusted_schema: views and triggers of somebody else's file call no function with effects.
        pragmas = (f"busy_timeout={_PATIENCE_S}000", "synchronous=NORMAL", "foreign_keys=ON", "trusted_schema=OFF")
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            pass  # another process makes the database at this moment: the mode is the file's, and one may set it

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("writes"):
            with _waiting_for_writers(connection.connection.driver_connection):
                connection.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            connection.exec_driver_sql("BEGIN")


@contextmanager
def _waiting_for_writers(connection: Any) -> Iterator[None]:
    """Wait until the write lock is free, in steps: SQLite's own waiting of a minute would not hear a Ctrl-C."""
    connection.execute(f"PRAGMA busy_timeout={_STEP_MS}")
    try:
        for _ in range(_PATIENCE_S * 1000 // _STEP_MS):
            try:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    break  # the same statement is about to fail again, in the words of SQLAlchemy
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout={_PATIENCE_S}000")


def _prepare_postgresql(engine: sa.Engine) -> None:
    """Writers take turns here too: what a transaction has read stays true until it has written."""

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('testbed'))")


_PREPARE = {"sqlite": _prepare_sqlite, "postgresql": _prepare_postgresql}
