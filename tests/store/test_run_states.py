"""How far runs are, as somebody else reads it. These run again on PostgreSQL in test_postgres.py."""

from __future__ import annotations

import pytest

from store.test_claims import change_run, dead_pid
from stored_results import again, chunk, claim
from testbed.metrics.estimate import Estimate
from testbed.store.run_states import RECENT_S, watched


def progress(work="w", planned=4, done=0, pairs_failed=0, images=600, speed=10.0, **of_images):
    """As testbed.engine.telling tells it."""
    counts = {"finished": 0, "elsewhere": 0, "failed": 0, "under_way": 0, **of_images}
    device = {"device": "cpu", "images": 0, "images_per_second": speed, "at": None, "silent_s": None}
    return {
        "work": work,
        "pairs": {"planned": planned, "done": done, "failed": pairs_failed},
        "images": {"planned": images, **counts},
        "images_per_second": speed,
        "devices": [device],
    }


def begin(store, **told):
    """A run of this process, which has told so."""
    run = again(store)
    run.begin_run()
    change_run(run, run.run_id, progress=progress(**told))
    return run


def finish(run, *settings):
    for setting in settings:
        run.complete(claim(run, "m", setting).evaluation_id, {"top1": Estimate(50.0)})


def test_a_database_without_runs_has_nothing_to_tell(store):
    now = watched(store)
    assert (now.runs, now.failures, now.pairs_stopped, now.sums.pairs_planned) == ([], [], 0, 0)


def test_what_a_run_is_at_is_read_with_its_pairs(store):
    run = begin(store, planned=3, images=600, speed=20.0, finished=100, under_way=100)
    finish(run, "s1")
    run.record_chunk(claim(run, "m", "s2").evaluation_id, **chunk(0))
    run.fail(claim(run, "m", "s3").evaluation_id, "out of memory")
    now = watched(store)
    (state,) = now.runs
    assert (state.id, state.state) == (run.run_id, "living")
    assert (state.pairs_done, state.pairs_failed, state.pairs_under_way, state.images_done) == (1, 1, 1, 200)
    sums = now.sums
    assert (sums.pairs_planned, sums.pairs_done, sums.pairs_failed, sums.pairs_under_way) == (3, 1, 1, 1)
    assert (sums.images_planned, sums.images_done, sums.images_per_second, sums.seconds_left) == (600, 200, 20.0, 20.0)
    assert now.failures == [("m", "s3", "out of memory")]
    assert len(now.devices) == 1


def test_runs_of_the_same_pairs_are_one_work_and_no_pair_is_counted_twice(store):
    """The second began when one pair was done, so that its plan is shorter."""
    first = begin(store, planned=4, images=600, speed=10.0, finished=100, under_way=50)
    finish(first, "s1")
    second = begin(store, planned=3, images=500, speed=40.0, finished=200, under_way=0)
    finish(second, "s2", "s3")
    sums = watched(store).sums
    assert (sums.pairs_planned, sums.pairs_done) == (4, 3)
    assert (sums.images_planned, sums.images_done, sums.images_per_second) == (600, 350, 50.0)
    assert sums.seconds_left == pytest.approx(250 / 50)


def test_a_pair_that_a_run_of_another_command_has_done_is_done(store):
    finish(begin(store, work="other", planned=1, images=100, finished=100), "s1")
    run = begin(store, planned=4, done=1, images=400, elsewhere=100)
    sums = watched(store).sums
    assert (sums.pairs_planned, sums.pairs_done) == (5, 2)
    assert (sums.images_planned, sums.images_done) == (500, 200)
    assert {state.id: state.pairs_done for state in watched(store).runs}[run.run_id] == 0


def test_works_are_added_and_the_longest_tells_the_time_left(store):
    begin(store, work="a", images=100, speed=10.0)
    begin(store, work="b", images=900, speed=10.0)
    assert watched(store).sums.seconds_left == 90.0
    begin(store, work="c", images=10, speed=0.0)
    assert watched(store).sums.seconds_left is None
    assert watched(store).sums.pairs_planned == 12


def test_images_of_failed_pairs_are_not_waited_for(store):
    run = begin(store, planned=3, images=300, speed=10.0, finished=100, pairs_failed=2, failed=200)
    finish(run, "s1")
    for setting in ("s2", "s3"):
        run.fail(claim(run, "m", setting).evaluation_id, "out of memory")
    sums = watched(store).sums
    assert (sums.images_planned, sums.images_done, sums.seconds_left) == (100, 100, 0.0)
    # They are, once somebody tries them again.
    claim(begin(store, planned=2, images=200, speed=10.0), "m", "s2")
    sums = watched(store).sums
    assert (sums.images_planned, sums.images_done, sums.seconds_left) == (200, 100, 5.0)


def test_a_work_that_nobody_is_at_is_not_waited_for(store):
    gone = begin(store, work="a", images=100)
    change_run(store, gone.run_id, pid=dead_pid())
    assert watched(store).sums.seconds_left is None
    begin(store, work="b", images=900, speed=10.0)
    assert watched(store).sums.seconds_left == 90.0


def test_a_killed_run_is_silent_and_what_it_had_under_way_is_stopped(store):
    dead = begin(store, planned=2, finished=100, under_way=50)
    finish(dead, "s1")
    claim(dead, "m", "s2")
    change_run(store, dead.run_id, pid=dead_pid())
    now = watched(store)
    (state,) = now.runs
    assert (state.state, state.devices, state.images_per_second) == ("silent", [], 0.0)
    assert (now.pairs_stopped, now.sums.pairs_under_way, now.sums.images_done) == (1, 0, 100)
    # The same command takes it over.
    next_run = begin(store, planned=1)
    claim(next_run, "m", "s2")
    assert watched(store).pairs_stopped == 0


def test_a_run_that_has_ended_is_told_of_for_a_while_with_its_last_counts(store):
    run = again(store)
    run.begin_run()
    told = progress(planned=1, images=100, finished=100)
    with run.at_work(lambda: told):
        finish(run, "s1")
    run.end_run()
    now = watched(store)
    assert [(state.state, state.pairs_done) for state in now.runs] == [("ended", 1)]
    assert (now.sums.pairs_planned, now.sums.pairs_done, now.sums.seconds_left) == (1, 1, 0.0)
    assert "devices" not in now.runs[0].progress  # they would be kept for ever
    change_run(store, run.run_id, heartbeat_at=now.at - RECENT_S - 1)
    assert watched(store).runs == []


def test_what_counts_is_what_was_done_since_somebody_began_and_somebody_was_always_at_work(store):
    """It began an hour ago; a run of the same pairs has helped it and ended half an hour ago."""
    at = watched(store).at
    first = begin(store, planned=4)
    helper = begin(store, planned=4, finished=100)
    finish(helper, "s1", "s2")
    helper.end_run()
    change_run(store, helper.run_id, begun_at=at - 3000, heartbeat_at=at - 1800, progress=progress(finished=100))
    change_run(store, first.run_id, begun_at=at - 3600)
    now = watched(store)
    assert [state.id for state in now.runs] == [first.run_id]  # the other is told of no longer, but counts
    assert (now.sums.pairs_planned, now.sums.pairs_done, now.sums.images_done) == (4, 2, 100)


def test_a_run_that_ends_before_another_of_its_work_still_counts(store):
    first = begin(store, planned=4, images=600, finished=100)
    second = begin(store, planned=4, images=600, finished=200)
    finish(first, "s1", "s2")
    finish(second, "s3")
    first.end_run()
    change_run(store, first.run_id, progress=progress(planned=4, images=600, finished=100))
    sums = watched(store).sums
    assert (sums.pairs_planned, sums.pairs_done, sums.images_done) == (4, 3, 300)


def test_after_a_pause_counting_begins_anew(store):
    before, after = begin(store, planned=9), begin(store, planned=4)
    at = watched(store).at
    before.end_run()
    change_run(store, before.run_id, begun_at=at - 600, heartbeat_at=at - 300, progress=progress(planned=9))
    change_run(store, after.run_id, begun_at=at - 200)
    assert watched(store).sums.pairs_planned == 4
    assert len(watched(store).runs) == 2


def test_a_run_of_an_older_program_tells_nothing_of_its_plan(store):
    run = begin(store)
    change_run(store, run.run_id, progress=None, begun_at=None)
    finish(run, "s1")
    now = watched(store)
    assert [(state.state, state.pairs_done, state.devices) for state in now.runs] == [("living", 1, [])]
    assert now.sums.pairs_planned == 0


def test_runs_are_in_the_order_of_what_matters(store):
    ended, silent, second, first = (begin(store) for _ in range(4))
    at = watched(store).at
    ended.end_run()
    change_run(store, silent.run_id, machine="elsewher", heartbeat_at=at - 120)
    change_run(store, first.run_id, begun_at=at - 60)
    assert [state.id for state in watched(store).runs] == [r.run_id for r in (first, second, silent, ended)]


def test_a_heartbeat_that_comes_late_does_not_revive_a_run(store):
    run = begin(store)
    run.end_run()
    run.heartbeat()
    assert watched(store).runs[0].state == "ended"
    assert run.run_id not in store.living_runs()
