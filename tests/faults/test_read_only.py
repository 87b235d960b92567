"""Results that may only be read, on a read-only disk or of somebody else, are read; to write says one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from faults import writers
from stored_results import add, results
from testbed.commands.database import main
from testbed.errors import StoreError
from testbed.store.opening import open_store

NOBODY = 65534


@contextmanager
def as_reader():
    """Root may write anywhere: as root, the test goes on as nobody for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder(tmp_path):
    """A results folder with one result of 50 %, closed as a run leaves it, in a place that everybody may enter."""
    place = Path(tempfile.mkdtemp(prefix="testbed-read-only-"))
    place.chmod(0o755)
    store = open_store(str(place / "results.db"), create=True)
    add(store, "m", "s", 50.0, logits=np.eye(4, dtype=np.float32), targets=np.arange(4))
    store.engine.dispose()
    shutil.copytree(place, tmp_path / "copy")
    for words in (("--status",), ("--rename-model", "m", "n")):  # modules that nobody may not read are loaded now
        assert call(tmp_path / "copy", *words).exit_code == 0
    assert [path.name for path in place.glob("results.db*")] == ["results.db"]
    yield place
    place.chmod(0o755)
    shutil.rmtree(place)


def forbid(folder, file=0o444, place=0o555):
    for path in folder.glob("results.db*"):
        path.chmod(file)
    folder.chmod(place)


def call(folder, *arguments):
    return CliRunner().invoke(main, ["--db", str(folder / "results.db"), *arguments])


def values(folder):
    return [number.value for number in results(open_store(str(folder / "results.db")))]


@pytest.mark.parametrize("modes", [(0o444, 0o555), (0o644, 0o555), (0o444, 0o755)])
def test_read_only_results_are_read(folder, modes):
    forbid(folder, *modes)
    with as_reader():
        assert values(folder) == [50.0]
        told = call(folder, "--status")
    assert told.exit_code == 0 and "done" in told.output


def test_to_write_into_read_only_results_is_one_line_and_changes_nothing(folder):
    before = (folder / "results.db").read_bytes()
    forbid(folder)
    with as_reader():
        told = call(folder, "--rename-model", "m", "n")
        with pytest.raises(StoreError, match="is read-only"):
            open_store(str(folder / "results.db"), create=True).begin_run()
    assert told.exit_code == 1 and told.output.count("\n") == 1
    assert f"Error: database {folder / 'results.db'} is read-only: expected a file and a folder" in told.output
    assert (folder / "results.db").read_bytes() == before


def test_what_a_living_run_has_written_is_read_too(folder):
    """The newest results are in the write-ahead log, which a reader must not pass over."""
    writer = open_store(str(folder / "results.db"))
    with writer.engine.connect():  # held open, so that the log stays
        add(writer, "m", "t", 75.0)
        assert (folder / "results.db-wal").stat().st_size > 0
        forbid(folder)
        with as_reader():
            assert values(folder) == [50.0, 75.0]
        folder.chmod(0o755)
    writer.engine.dispose()


def test_a_log_that_cannot_be_read_is_no_reason_to_show_older_results(folder):
    writer = open_store(str(folder / "results.db"))
    with writer.engine.connect():
        add(writer, "m", "t", 75.0)
        log = (folder / "results.db-wal").read_bytes()
    writer.engine.dispose()
    (folder / "results.db-wal").write_bytes(log)
    forbid(folder)
    with as_reader(), pytest.raises(StoreError) as error:
        open_store(str(folder / "results.db"))
    assert str(error.value).endswith(
        "has results in results.db-wal that cannot be read in a read-only folder: copy the folder"
    )


def test_an_older_read_only_database_says_what_to_do(folder):
    with sqlite3.connect(folder / "results.db") as connection:
        connection.execute("UPDATE schema_version SET version = version - 1")
    connection.close()
    forbid(folder)
    with as_reader(), pytest.raises(StoreError, match="is of an older program and read-only: copy its folder"):
        open_store(str(folder / "results.db"))


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3\0", b"x" * 5000])
def test_a_damaged_database_is_one_line(tmp_path, damage):
    whole = open_store(str(tmp_path / "results.db"), create=True)
    add(whole, "m", "s", 50.0)
    whole.engine.dispose()
    path = tmp_path / "results.db"
    content = path.read_bytes()
    path.write_bytes(damage + content[len(damage) : 4096] + b"\xff" * (len(content) - 4096))
    told = call(tmp_path, "--status")
    assert told.exit_code == 1 and told.output.startswith("Error: database ") and told.output.count("\n") == 1


@pytest.mark.parametrize("what", writers.WRITERS)
def test_whoever_writes_into_a_folder_that_may_not_be_written_says_one_line(tmp_path, what):
    folder = Path(tempfile.mkdtemp(prefix="testbed-read-only-"))
    try:
        db, there = writers.results_in(folder / "results"), folder / "closed"
        there.mkdir()
        assert (
            writers.call(what, db, folder / "open").returncode == 0
        )  # modules that nobody may not read are loaded now
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, -1)
        there.chmod(0o555)
        with as_reader():
            done = writers.call(what, db, there)
        told = done.stderr.strip().splitlines()
        assert done.returncode == 1 and told[-1].startswith("Error: ") and "ermission denied" in told[-1], done.stderr
        assert sum("Error" in line for line in told) == 1
        assert list(there.iterdir()) == []
    finally:
        shutil.rmtree(folder)
