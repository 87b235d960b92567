"""Who may work on a pair."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest
import sqlalchemy as sa

from stored_results import add, again, chunk, claim, completed, evaluations, results
from testbed.metrics.estimate import ACCURACY, Estimate
from testbed.store import leases, schema
from testbed.store.claims import Chunk
from testbed.store.leases import STALE_AFTER_S
from testbed.store.runs import Busy


def change_run(store, run_id, **values):
    with store.writing() as connection:
        connection.execute(schema.runs.update().where(schema.runs.c.id == run_id).values(**values))


def dead_pid():
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def other(store):
    """Another run on the same database, which holds the pair m on s and has finished one chunk of it."""
    other = again(store)
    other.begin_run()
    held = claim(other)
    other.record_chunk(held.evaluation_id, **chunk(2))
    store.begin_run()
    return other


def test_pair_is_busy_while_the_run_that_holds_it_lives(store, other):
    with pytest.raises(Busy) as error:
        claim(store)
    with other.reading() as connection:
        pid = connection.execute(sa.select(schema.runs.c.pid).where(schema.runs.c.id == other.run_id)).scalar_one()
    assert str(error.value) == f"under way in another run ({socket.gethostname()}, process {pid})"
    assert claim(store, "m", "another setting").done == ()
    assert claim(store, "m", "s", variant="limit=3").done == ()
    assert claim(store, "m", "s", version=2).done == ()


@pytest.mark.parametrize(
    ("how", "silent_for", "taken_over"),
    [
        ("its process is gone", 0, True),
        ("its process lives but has been silent", STALE_AFTER_S + 1, True),
        ("on another machine, heard of lately", STALE_AFTER_S - 10, False),
        ("on another machine, silent", STALE_AFTER_S + 1, True),
        ("it has ended", 0, True),
    ],
)
def test_pair_of_a_dead_run_is_taken_over_with_its_chunks(store, other, how, silent_for, taken_over):
    values = {"heartbeat_at": time.time() - silent_for}
    if how == "its process is gone":
        values["pid"] = dead_pid()
    if "another machine" in how:
        values.update(host="elsewhere", machine="elsewher", pid=dead_pid())
    change_run(store, other.run_id, **values)
    if how == "it has ended":
        other.end_run()
    if not taken_over:
        with pytest.raises(Busy, match=r"\(elsewhere, process \d+\)"):
            claim(store)
        return
    held = claim(store)
    assert held.done == ((2, 4),)
    with pytest.raises(Busy):
        claim(other)


def test_run_may_claim_its_own_pair_again(store, other):
    assert claim(other).done == ((2, 4),)


def test_pair_that_failed_may_be_tried_again_while_the_run_goes_on(store, other):
    held = claim(other)
    other.fail(held.evaluation_id, "out of memory")
    taken = claim(store)
    assert (taken.evaluation_id, taken.done) == (held.evaluation_id, ((2, 4),))


def heard_of(store, run_id):
    with store.reading() as connection:
        return connection.execute(sa.select(schema.runs.c.heartbeat_at).where(schema.runs.c.id == run_id)).scalar_one()


def test_a_heartbeat_is_the_time_of_the_database_to_the_millisecond(store, monkeypatch):
    """Whatever this machine's clock says."""
    store.begin_run()
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real - 7200)
    change_run(store, store.run_id, heartbeat_at=1.0)
    store.heartbeat()
    assert abs(heard_of(store, store.run_id) - real) < 30  # in single precision it would be a minute off
    assert heard_of(store, store.run_id) % 1 != 0
    assert store.living_runs() == {store.run_id}


def test_a_run_at_work_is_heard_of_while_its_main_thread_does_something_else(store, monkeypatch):
    monkeypatch.setattr(leases, "HEARTBEAT_S", 0.01)
    store.begin_run()
    change_run(store, store.run_id, heartbeat_at=1.0)
    with store.at_work():
        deadline = time.monotonic() + 60
        while heard_of(store, store.run_id) == 1.0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    change_run(store, store.run_id, heartbeat_at=1.0)
    time.sleep(0.1)
    assert heard_of(store, store.run_id) == 1.0  # it has ended


def test_a_process_of_another_machine_with_the_same_name_is_not_asked_for(store, other):
    """As of two containers: both are called alike, and their processes have the same few numbers."""
    change_run(store, other.run_id, machine="elsewher", pid=dead_pid())
    with pytest.raises(Busy):
        claim(store)
    change_run(store, other.run_id, machine=None)  # of an older program
    with pytest.raises(Busy):
        claim(store)


def test_a_result_that_is_written_again_after_its_answer_was_lost_stands_once(store):
    store.begin_run()
    held = claim(store)
    for _ in range(2):
        assert store.complete(held.evaluation_id, {"top1": Estimate(50.0)}) == []
    assert [(e.status, e.id) for e in evaluations(store)] == [("completed", held.evaluation_id)]


@pytest.mark.parametrize(
    "change",
    [{"fingerprint": "other data"}, {"n_images": 7}, {"resumable": False}],
    ids=["other data", "other number of images", "overwrite"],
)
def test_work_of_another_kind_is_begun_anew(store, change):
    store.begin_run()
    first = claim(store)
    store.record_chunk(first.evaluation_id, **chunk(0))
    anew = claim(store, **change)
    assert anew.done == ()
    assert anew.evaluation_id != first.evaluation_id  # it names the logits file, so it is never given twice
    assert store.chunk_facts(first.evaluation_id) == []


def test_resumed_pair_keeps_its_chunk_size(store):
    store.begin_run()
    assert claim(store, chunk_size=2).chunk_size == 2
    assert claim(store, chunk_size=3).chunk_size == 2


def test_pair_that_failed_before_it_began_gets_its_sample_list_when_it_runs(store):
    store.begin_run()
    held = claim(store, samples_path="")
    store.fail(held.evaluation_id, "no such weights")
    assert claim(store, samples_path="samples.npz").evaluation_id == held.evaluation_id
    claim(store, samples_path="")  # as a later failure does
    (evaluation,) = evaluations(store)
    assert evaluation.samples_path == "samples.npz"


def test_chunk_whose_file_was_lost_is_recorded_again(store):
    store.begin_run()
    held = claim(store)
    for start, seconds in ((2, 1.0), (0, 1.0), (2, 3.0)):
        store.record_chunk(held.evaluation_id, **chunk(start, seconds=seconds, bad_rows=[start]))
    facts = store.chunk_facts(held.evaluation_id)
    assert [(f["start"], f["seconds"], f["bad_rows"]) for f in facts] == [(0, 1.0, [0]), (2, 3.0, [2])]
    store.forget_chunks(held.evaluation_id)
    assert store.chunk_facts(held.evaluation_id) == []


def test_chunks_of_one_turn_are_recorded_together_but_for_those_of_pairs_that_were_lost(store, other):
    held, lost = claim(store, "a").evaluation_id, claim(store, "n").evaluation_id
    change_run(store, store.run_id, ended_at="now")
    claim(other, "n")
    told = [Chunk(evaluation_id, **chunk(start)) for start in (0, 2) for evaluation_id in (held, lost)]
    assert store.record_chunks(told) == {lost}
    assert [c["start"] for c in store.chunk_facts(held)] == [0, 2]
    assert store.chunk_facts(lost) == []


def test_of_rows_that_come_twice_in_one_turn_the_last_count(store):
    store.begin_run()
    held = claim(store).evaluation_id
    places = [(0, 4), (4, 6), (0, 2), (0, 2), (2, 4)]
    store.record_chunks([Chunk(held, **{**chunk(start), "stop": stop}) for start, stop in places])
    assert [(c["start"], c["stop"]) for c in store.chunk_facts(held)] == [(0, 2), (2, 4), (4, 6)]


def test_chunks_of_a_result_that_is_whole_are_forgotten(store):
    store.begin_run()
    held = claim(store).evaluation_id
    store.record_chunk(held, **chunk(0))
    store.complete(held, {"top1": Estimate(50.0)})
    assert store.chunk_facts(held) == []


def test_resumed_pair_keeps_the_place_of_its_logits_and_one_begun_anew_tells_the_old_one(store):
    store.begin_run()
    assert claim(store, logits_path="a.npy").logits_path == "a.npy"
    resumed = claim(store, logits_path="b.npy")
    assert (resumed.logits_path, resumed.abandoned) == ("a.npy", None)
    anew = claim(store, logits_path="c.npy", resumable=False)
    assert (anew.logits_path, anew.abandoned) == ("c.npy", "a.npy")


def test_pair_that_an_older_program_left_without_a_place_for_its_logits_gets_one(store):
    store.begin_run()
    claim(store)
    assert claim(store, logits_path="a.npy").logits_path == "a.npy"
    assert evaluations(store)[0].logits_path == "a.npy"


def test_living_runs_are_those_that_neither_ended_nor_died(store, other):
    assert store.living_runs() == {store.run_id, other.run_id}
    change_run(store, store.run_id, pid=dead_pid())
    assert store.living_runs() == {other.run_id}
    other.end_run()
    assert store.living_runs() == set()


def test_completed_pair_stays_until_its_rerun_is_complete(store):
    store.begin_run()
    first = add(store, value=40.0)
    rerun = claim(store, resumable=False)
    assert completed(store, "m", "s").id == first
    store.fail(rerun.evaluation_id, "killed")
    assert completed(store, "m", "s").id == first
    assert [e.status for e in evaluations(store)] == ["completed", "failed"]


def test_names_are_entered_once(store):
    first = store.ensure_model("m", "arch", ["tag"])
    assert store.ensure_model("m") == first
    assert store.ensure_eval_setting("s", 1, size=10) != store.ensure_eval_setting("s", 2)
    with store.reading() as connection:
        assert connection.execute(sa.select(schema.models.c.arch, schema.models.c.tags)).all() == [("arch", ["tag"])]


WRITES = {
    "chunk": lambda store, id_: store.record_chunk(id_, **chunk(4)),
    "forget chunks": lambda store, id_: store.forget_chunks(id_),
    "place": lambda store, id_: store.move_logits(id_, "elsewhere.npy"),
    "failure": lambda store, id_: store.fail(id_, "its parts are gone"),
    "result": lambda store, id_: store.complete(id_, {"top1": Estimate(1.0)}),
}


@pytest.mark.parametrize("what", WRITES)
@pytest.mark.parametrize("since", ["taken over", "finished by the other", "begun anew by the other", "removed"])
def test_run_that_slept_writes_nothing_about_a_pair_that_is_no_longer_its_own(store, other, what, since):
    held = claim(other)
    change_run(store, other.run_id, heartbeat_at=time.time() - STALE_AFTER_S - 1)
    if since == "removed":
        with store.writing() as connection:
            connection.execute(schema.evaluations.delete())
    else:
        taken = claim(store, resumable=since != "begun anew by the other")
        if since == "finished by the other":
            store.complete(taken.evaluation_id, {"top1": Estimate(50.0)})
    other.heartbeat()  # it lives again, and that alone gives it nothing back
    before = everything(store)
    with pytest.raises(Busy, match="taken over by another run while this one was silent"):
        WRITES[what](other, held.evaluation_id)
    assert everything(store) == before


@pytest.mark.parametrize("what", WRITES)
def test_run_that_slept_goes_on_with_what_it_still_holds(store, other, what):
    change_run(store, other.run_id, heartbeat_at=time.time() - STALE_AFTER_S - 1)
    assert store.living_runs() == {store.run_id}
    other.heartbeat()
    assert store.living_runs() == {store.run_id, other.run_id}
    WRITES[what](other, claim(other).evaluation_id)
    with store.reading() as connection:
        assert connection.execute(sa.select(schema.evaluations.c.run_id)).scalars().all() == [other.run_id]


def everything(store):
    with store.reading() as connection:
        tables = (schema.evaluations, schema.chunks, schema.metrics)
        return [sorted(map(repr, connection.execute(sa.select(table)))) for table in tables]


def test_chunks_of_another_run_are_inherited_and_own_ones_are_not(store, other):
    assert not claim(other, logits_path="a.npy").inherited
    other.end_run()
    resumed = claim(store, logits_path="b.npy")
    assert (resumed.logits_path, resumed.inherited) == ("a.npy", True)
    store.move_logits(resumed.evaluation_id, "b.npy")
    again_claimed = claim(store, logits_path="c.npy")
    assert (again_claimed.logits_path, again_claimed.inherited) == ("b.npy", False)


@pytest.mark.parametrize(
    ("left", "cleared"),
    [("nothing", True), ("chunk", False), ("other version", False), ("other variant", False), ("not asked for", False)],
)
def test_failure_beside_a_finished_result_is_cleared_unless_it_has_chunks(store, left, cleared):
    """As older programs left it when a run woke up whose pairs had been taken over."""
    store.begin_run()
    add(store)
    place = {"other version": {"version": 2}, "other variant": {"variant": "limit=3"}}.get(left, {})
    failed = claim(store, **place).evaluation_id
    if left == "chunk":
        store.record_chunk(failed, **chunk())
    store.fail(failed, "[Errno 2] No such file or directory")
    store.clear_failures([] if left == "not asked for" else [("m", "s", 1)], "")
    assert [e.status for e in evaluations(store)].count("failed") == (not cleared)
    assert completed(store, "m", "s")


def test_newest_evaluation_is_the_last_one_that_began_or_0(store):
    assert store.newest_evaluation() == 0
    store.begin_run()
    first, second = claim(store, "m"), claim(store, "n")
    assert first.evaluation_id < second.evaluation_id == store.newest_evaluation()


def test_a_pair_that_nobody_began_is_inherited_from_nobody(store):
    store.begin_run()
    held = claim(store, logits_path="logits/s/m.npy")
    assert (held.done, held.inherited, held.abandoned) == ((), False, None)


def test_a_metric_keeps_its_unit_and_one_without_has_none(store):
    store.begin_run()
    add(store, metrics={"top1": Estimate(50.0, kind=ACCURACY), "count": Estimate(3.0)})
    assert {n.metric: n.unit for n in results(store)} == {"top1": "%", "count": None}
