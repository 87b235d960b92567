"""Databases of older programs: brought up to date, with a copy kept. Those in older_schemas/ were made by them."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from faults.running import LIMIT_S
from stored_results import claim, every_number
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.opening import open_store

OLDER = Path(__file__).with_name("older_schemas")
VERSIONS = sorted(schema.MIGRATIONS)

pytestmark = pytest.mark.backend("sqlite", "older files, and copies of them")


def older(folder, version):
    """A database as a program of that schema left it."""
    path = folder / "results.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((OLDER / f"{version}.sql").read_text())
        connection.execute("PRAGMA journal_mode=WAL")
    return path


def content(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def columns(store):
    """Of every table: names and types, whatever their order."""
    inspector = sa.inspect(store.engine)

    def kind(column):
        return str(column["type"]).replace("REAL", "DOUBLE")  # which SQLite has one type for

    return {t: sorted((c["name"], kind(c)) for c in inspector.get_columns(t)) for t in schema.tables.tables}


def indexes(store):
    return {i["name"] for t in schema.tables.tables for i in sa.inspect(store.engine).get_indexes(t)}


def test_there_is_a_database_of_every_older_schema():
    assert sorted(int(path.stem) for path in OLDER.glob("*.sql")) == VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_database_is_brought_up_to_date_and_kept_as_it_was(tmp_path, store, capsys, version):
    path = older(tmp_path, version)
    before = content(path)
    upgraded = open_store(str(path))
    assert (columns(upgraded), indexes(upgraded)) == (columns(store), indexes(store))
    numbers = [(n.model, n.eval_setting, n.metric, n.value, n.ci_low, n.n) for n in every_number(upgraded)]
    assert numbers == [("m", "even", "top1", 66.5, 65.5, 3), ("m", "s", "top1", 50.0, 49.0, 6)]
    upgraded.begin_run()
    assert claim(upgraded, "n", "s", fingerprint="f" * 64, dtype="float32").done == ((0, 2),)

    copy = tmp_path / f"results.db.schema{version}"
    assert content(copy) == before
    assert capsys.readouterr().err == (
        f"database {path}: brought from schema {version} to {schema.SCHEMA_VERSION}; as it was, it is kept in {copy}\n"
    )
    open_store(str(path))
    assert capsys.readouterr().err == ""
    assert {p.name for p in tmp_path.iterdir()} - {"results.db-wal", "results.db-shm", "results"} == {
        *("results.db", copy.name)
    }


def test_what_an_older_program_had_only_in_its_log_is_in_the_copy(tmp_path):
    path = older(tmp_path, 5)
    with closing(sqlite3.connect(path)) as other:  # it is open while the database is brought up to date
        other.execute("UPDATE models SET arch = 'changed' WHERE name = 'm'")
        other.commit()
        open_store(str(path))
    with closing(sqlite3.connect(tmp_path / "results.db.schema5")) as copy:
        assert copy.execute("SELECT arch FROM models WHERE name = 'm'").fetchone() == ("changed",)
        assert copy.execute("SELECT version FROM schema_version").fetchone() == (5,)


def test_a_try_that_failed_leaves_one_copy_and_another_database_of_that_name_gets_its_own(tmp_path, monkeypatch):
    path = older(tmp_path, 5)

    def fail(connection):
        connection.execute(sa.text("ALTER TABLE no_such_table ADD COLUMN more VARCHAR(8)"))

    with monkeypatch.context() as broken:
        broken.setattr(schema, "MIGRATIONS", {**schema.MIGRATIONS, 5: fail})
        for _ in range(2):
            with pytest.raises(StoreError, match="no_such_table"):
                open_store(str(path))
    open_store(str(path)).engine.dispose()
    kept = [p.name for p in tmp_path.glob("*.schema*")]
    assert kept == ["results.db.schema5"]
    path.unlink()
    path = older(tmp_path, 5)
    with closing(sqlite3.connect(path)) as other:
        other.execute("UPDATE models SET arch = 'changed'")
        other.commit()
    open_store(str(path))
    assert sorted(p.name for p in tmp_path.glob("*.schema*")) == ["results.db.schema5", "results.db.schema5-2"]


def test_two_that_open_an_older_database_at_once_keep_one_copy(tmp_path):
    path = older(tmp_path, 4)
    code = "import sys; from testbed.store.opening import open_store; open_store(sys.argv[1])"
    both = [subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE) for _ in range(2)]
    try:
        told = [process.communicate(timeout=LIMIT_S)[1] for process in both]
    finally:
        for process in both:
            process.kill()
            process.wait()
    assert [process.returncode for process in both] == [0, 0], told
    assert b"".join(told).count(b"brought from schema 4") == 1
    assert [p.name for p in tmp_path.glob("*.schema*")] == ["results.db.schema4"]


def no_large_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))  # SQLite needs 32 KB beside the database


def test_without_room_for_the_copy_the_older_database_is_left_as_it_was(tmp_path):
    path = older(tmp_path, 5)
    before = content(path)
    code = "import sys; from testbed.store.opening import open_store; open_store(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        preexec_fn=no_large_files,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"testbed.errors.StoreError: database {path} is of an older program (schema 5) and was left")
    assert f"since the copy that is kept of it, {path}.schema5, cannot be written: " in told
    assert content(path) == before
    assert {p.name for p in tmp_path.iterdir()} <= {"results.db", "results.db-wal", "results.db-shm"}


def test_the_copy_is_as_private_as_the_database(tmp_path):
    path = older(tmp_path, 5)
    path.chmod(0o640)
    open_store(str(path))
    assert (tmp_path / "results.db.schema5").stat().st_mode & 0o777 == 0o640
