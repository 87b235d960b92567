"""A PostgreSQL server that goes away in the middle of a run, and comes back."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time

import numpy as np
import pytest
import sqlalchemy as sa

import tiny
from faults.running import lines_until, parts, started, told_at_end, wait_until
from postgres_server import FAST, IMMEDIATE, serving_or_skip
from stored_results import chunk, completed, evaluations
from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.store import transactions
from testbed.store.claims import Work
from testbed.store.find import every_evaluation, find, numbers
from testbed.store.opening import open_store
from testbed.store.transactions import ServerAway


@pytest.fixture(scope="module")
def server():
    with serving_or_skip() as running:
        yield running


@pytest.fixture
def store(server, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path))
    store = open_store(server.new_database(), create=True)
    yield store
    store.engine.dispose()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    _, store = tiny.run(folder, ["tiny_slow"], ["tiny"], inline=False, chunk_size=16, threads=1)
    return tiny.logits(store, "tiny_slow", "tiny")


def back_in(server, seconds):
    thread = threading.Timer(seconds, server.start)
    thread.start()
    return thread


@pytest.mark.parametrize("how", [FAST, IMMEDIATE])
def test_a_run_waits_for_a_server_that_restarts_and_loses_nothing(server, store, tmp_path, undisturbed, how):
    """Which write meets the restart is left to chance."""
    words = ["--models", "tiny_slow", "--eval-settings", "tiny", "--gpus", "cpu", "--threads", "1", "--overwrite"]
    command = [sys.executable, str(tiny.ROOT / "eval.py"), *words, "--chunk-size", "16", "--db", str(store.engine.url)]
    with started(command) as run:
        wait_until(lambda: len(parts(tmp_path, "tiny")) >= 2, run)
        server.stop(how)
        told = lines_until("waiting for the server, at most 300 s", run)
        server.start()
        told += told_at_end(run)
    assert run.returncode == 0, told
    assert "FAILED" not in told
    found = completed(store, "tiny_slow", "tiny")
    assert [e.status for e in evaluations(store)] == ["completed"]
    np.testing.assert_array_equal(tiny.logits(store, "tiny_slow", "tiny"), undisturbed)
    assert found.n_images == 200


def test_who_watches_looks_again_when_the_server_is_back(server, store):
    store.begin_run()
    words = ["--db", str(store.engine.url), "--watch", "--every", "0.2", "--format", "json"]
    with started([sys.executable, str(tiny.ROOT / "db.py"), *words]) as watching:

        def next_look_is(name):
            return name in json.loads(watching.stdout.readline())

        wait_until(lambda: next_look_is("runs"), watching)
        server.stop(FAST)
        wait_until(lambda: next_look_is("error"), watching)
        server.start()
        wait_until(lambda: next_look_is("runs"), watching)
        watching.send_signal(signal.SIGINT)
        told = told_at_end(watching)
    assert (watching.returncode, told) == (0, "")


WRITES = {
    "claim": lambda store, ids, held: store.claim(*ids, "", Work(n_images=6, chunk_size=2), True),
    "chunk": lambda store, ids, held: store.record_chunk(held, **chunk(0)),
    "place": lambda store, ids, held: store.move_logits(held, "here.npy"),
    "failure": lambda store, ids, held: store.fail(held, "memory ran out"),
    "result": lambda store, ids, held: store.complete(held, {"top1": Estimate(50.0)}),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_write_is_tried_again_when_the_server_went_in_its_middle(server, store, what):
    ids = store.ensure_model("m"), store.ensure_eval_setting(f"restart at {what}")
    store.begin_run()
    held = store.claim(*ids, "", Work(n_images=6, chunk_size=2), True).evaluation_id
    told, away = [], []
    store.tell, store.patience_s = told.append, 60.0

    @sa.event.listens_for(store.engine, "commit")
    def lose_the_server_once(connection):
        if not away:
            server.stop(IMMEDIATE)
            away.append(threading.Timer(0.1, server.start))
            away[0].start()

    WRITES[what](store, ids, held)
    away[0].join()
    assert len(told) == 1 and told[0].endswith("waiting for the server, at most 60 s")
    (evaluation,) = evaluations(store, "m", f"restart at {what}")
    assert evaluation.id == held
    assert evaluation.status == {"failure": "failed", "result": "completed"}.get(what, "running")
    assert len(store.chunk_facts(held)) == (what == "chunk")


READS = {
    "result": lambda store: find(store, ["m"]),
    "numbers": lambda store: numbers(store, ["m"]),
    "state": lambda store: every_evaluation(store, "m"),
    "runs": lambda store: store.living_runs(),
}


@pytest.mark.parametrize("what", READS)
def test_a_question_is_asked_again_when_the_server_was_away(server, store, what):
    """As the dispatcher asks before it begins a pair, and whoever measures one."""
    before, told = READS[what](store), []
    store.tell, store.patience_s = told.append, 60.0
    server.stop(FAST)
    back = back_in(server, 0.3)
    assert READS[what](store) == before
    back.join()
    assert len(told) == 1


def test_without_patience_a_server_that_is_away_is_one_line(server, store):
    server.stop(FAST)
    try:
        with pytest.raises(ServerAway, match=r"^database postgresql\+psycopg://.* cannot be read: ") as error:
            store.living_runs()
        assert isinstance(error.value, StoreError) and "\n" not in str(error.value)
    finally:
        server.start()


def test_patience_has_an_end(server, store, monkeypatch):
    monkeypatch.setattr(transactions, "_PAUSE_S", 0.01)
    store.patience_s = 0.3
    server.stop(FAST)
    began = time.monotonic()
    try:
        with pytest.raises(ServerAway):
            store.living_runs()
        assert time.monotonic() - began >= 0.3
    finally:
        server.start()
