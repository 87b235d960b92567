"""A database file that somebody else holds for longer than SQLite waits: a run waits for it, as for a server."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from queue import SimpleQueue

import numpy as np
import pytest

import tiny
from faults.running import LIMIT_S, parts, wait_until
from stored_results import bury_runs, completed, evaluations
from testbed.engine import worker
from testbed.engine.progress import Silent
from testbed.errors import StoreError
from testbed.store import opening, runs
from testbed.store.opening import open_store


@contextmanager
def held(path):
    """Nobody else can write to the database; what is in it can be read."""
    with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


@pytest.fixture
def told():
    """The lines that a quiet run would have told."""
    return SimpleQueue()


@pytest.fixture
def patience_s():
    return 300.0


@pytest.fixture
def at_work(tmp_path, monkeypatch, patience_s, told):
    """A run that has finished two chunks, in another thread; SQLite waits a second for the file, and not a minute."""
    monkeypatch.setattr(opening, "_PATIENCE_S", 1)
    monkeypatch.setattr(runs, "SERVER_PATIENCE_S", patience_s)
    monkeypatch.setattr(Silent, "note", lambda self, text: told.put(text))
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(tiny.run, tmp_path, ["tiny_slow"], ["tiny"], chunk_size=16)
        wait_until(lambda: len(parts(tmp_path)) >= 2 or run.done())
        yield run


def test_a_run_waits_for_a_file_that_is_held_for_long_and_loses_nothing(tmp_path, at_work, told):
    with held(tmp_path / "results.db"):
        line = told.get(timeout=LIMIT_S)
    report, store = at_work.result(LIMIT_S)
    assert line == f"{store.where} cannot be written: database is locked; waiting for the database, at most 300 s"
    assert not report.failed and told.empty()
    _, undisturbed = tiny.run(tmp_path / "undisturbed", ["tiny_slow"], ["tiny"], chunk_size=16)
    np.testing.assert_array_equal(
        tiny.logits(store, "tiny_slow", "tiny"), tiny.logits(undisturbed, "tiny_slow", "tiny")
    )


@pytest.mark.parametrize("patience_s", [0.5])
def test_when_patience_ends_the_run_does_in_one_line_and_goes_on_later(tmp_path, at_work, monkeypatch):
    store = open_store(str(tmp_path / "results.db"))
    with held(tmp_path / "results.db"):
        finished = {c["start"] for c in store.chunk_facts(1)}
        with pytest.raises(StoreError, match="cannot be written: database is locked"):
            at_work.result(LIMIT_S)
    assert [e.status for e in evaluations(store)] == ["running"]
    bury_runs(store)
    made = []
    monkeypatch.setattr(worker, "write_part", lambda *a, real=worker.write_part: (made.append(a[1]), real(*a)))
    report, store = tiny.run(tmp_path, ["tiny_slow"], ["tiny"], chunk_size=16)
    assert not report.failed and completed(store, "tiny_slow", "tiny")
    assert finished and made and not finished & set(made)  # what was finished is not computed again
