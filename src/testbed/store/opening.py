"""Opening the results database: where it is, what each kind of database needs, and its schema brought up to date."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.database import Store, reason

DB_VARIABLE = "TESTBED_DB"
RESULTS_VARIABLE = "TESTBED_RESULTS"
DEFAULT_DB = "results/results.db"


def database_place(given: str | None = None) -> tuple[sa.URL, Path]:
    """The SQLAlchemy URL and the results folder for --db, TESTBED_DB or the default."""
    place = given or os.environ.get(DB_VARIABLE) or DEFAULT_DB
    try:
        as_file = "://" not in place
        url = sa.URL.create("sqlite", database=str(Path(place).expanduser())) if as_file else sa.make_url(place)
    except (sa.exc.ArgumentError, ValueError) as error:
        raise StoreError(f"--db: expected a file or a URL like postgresql+psycopg://user@host/name: {error}") from error
    file = _sqlite_file(url)
    return url, file.parent if file is not None else Path(os.environ.get(RESULTS_VARIABLE, "results"))


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
    where = f"database {path if path is not None else url.render_as_string(hide_password=True)}"
    if path is not None and not create and not path.is_file():
        raise StoreError(f"there is no results {where} yet: run eval.py first, or name one with --db")
    try:
        if create:
            folder.mkdir(parents=True, exist_ok=True)
        engine = sa.create_engine(url)
        if engine.dialect.name in _PREPARE:
            _PREPARE[engine.dialect.name](engine)
        store = Store(engine, folder, where)
        with store.reading() as connection:
            version = schema.stored_version(connection, where)
        if version != schema.SCHEMA_VERSION:
            with store.writing() as connection:
                schema.create_or_upgrade(connection, where)
        return store
    except (sa.exc.SQLAlchemyError, OSError, ImportError) as error:
        raise StoreError(f"{where} cannot be opened: {reason(error)}") from error


def _prepare_sqlite(engine: sa.Engine) -> None:
    """Several processes may use the file: write-ahead log, patience, and write locks taken at the start."""

    @sa.event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's BEGIN below, not the driver's own
        for pragma in ("busy_timeout=60000", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            pass  # another process makes the database at this moment: the mode is the file's, and one may set it

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _prepare_postgresql(engine: sa.Engine) -> None:
    """Writers take turns here too: what a transaction has read stays true until it has written."""

    @sa.event.listens_for(engine, "begin")
    def _on_begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('testbed'))")


_PREPARE = {"sqlite": _prepare_sqlite, "postgresql": _prepare_postgresql}
