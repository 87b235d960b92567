"""Clocks that jump: nothing is lost, and nobody takes a living run for dead or waits for a dead one."""

from __future__ import annotations

import time
from itertools import count

import numpy as np
import pytest

import tiny
from stored_results import again, chunk, claim, evaluations
from testbed.engine import worker
from testbed.store import leases, schema
from testbed.store.runs import Busy

HOUR_S = 3600.0
REAL = leases._CLOCKS["sqlite"]  # which is the clock of the machine


def set_clock(patch, by_s):
    """The clock of the machine, which is that of a database in a file too."""
    real = time.time
    patch.setitem(leases._CLOCKS, "sqlite", f"({REAL} + ({by_s}))")
    patch.setattr(time, "time", lambda: real() + by_s)


@pytest.mark.parametrize("by_s", [-HOUR_S, HOUR_S])
def test_a_clock_that_jumps_in_the_middle_of_a_run_changes_nothing(tmp_path, monkeypatch, by_s):
    _, undisturbed = tiny.run(tmp_path / "undisturbed", ["tiny_a"], ["tiny", "tiny.noise"], chunk_size=16)
    real, turns = worker.write_part, count(1)

    def write_part(*arguments):
        if next(turns) == 3:
            set_clock(monkeypatch, by_s)
        real(*arguments)

    monkeypatch.setattr(worker, "write_part", write_part)
    report, store = tiny.run(tmp_path / "jumped", ["tiny_a"], ["tiny", "tiny.noise"], chunk_size=16)
    assert not report.failed and next(turns) > 4
    assert [e.status for e in evaluations(store)] == ["completed"] * 2
    assert all(e.seconds >= 0 for e in evaluations(store))
    for setting in ("tiny", "tiny.noise"):
        np.testing.assert_array_equal(
            tiny.logits(store, "tiny_a", setting), tiny.logits(undisturbed, "tiny_a", setting)
        )


@pytest.fixture
def held(store):
    """A pair that another run of this machine holds, with a chunk done."""
    other = again(store)
    other.begin_run()
    held = claim(other)
    other.record_chunk(held.evaluation_id, **chunk())
    store.begin_run()
    return other


def test_a_run_whose_heartbeat_is_of_the_future_is_at_work_while_its_process_lives(store, held, monkeypatch):
    set_clock(monkeypatch, -HOUR_S)
    with pytest.raises(Busy, match="under way in another run"):
        claim(store)


def test_a_dead_run_whose_heartbeat_is_of_the_future_is_taken_over_at_once(store, held, monkeypatch):
    set_clock(monkeypatch, -HOUR_S)
    with store.writing() as connection:
        r = schema.runs
        connection.execute(r.update().where(r.c.id == held.run_id).values(pid=2**22 + 5))  # above any process
    assert claim(store).done == ((0, 2),)


def test_a_clock_that_jumps_ahead_costs_a_living_run_at_most_a_take_over(store, held, monkeypatch):
    """It looks silent until its next heartbeat. Whoever takes over has its chunk; it writes nothing more itself."""
    set_clock(monkeypatch, HOUR_S)
    store.heartbeat()
    assert claim(store).done == ((0, 2),)
    with pytest.raises(Busy):
        claim(held)


def test_after_its_next_heartbeat_it_is_at_work_again(store, held, monkeypatch):
    set_clock(monkeypatch, HOUR_S)
    held.heartbeat()
    with pytest.raises(Busy, match="under way in another run"):
        claim(store)


def test_who_watches_is_told_no_negative_times(store, held, monkeypatch):
    from testbed.store.run_states import watched

    set_clock(monkeypatch, -HOUR_S)
    held.heartbeat()
    seen = watched(store)
    assert all(run.for_s >= 0 and run.silent_s >= 0 for run in seen.runs)
