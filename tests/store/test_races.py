"""Runs that reach for the same pair at the same moment: it is given once, and whoever lost it writes nothing more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
import sqlalchemy as sa

from faults.fuzzing import rounds
from stored_results import again, chunk, claim, evaluations, results
from testbed.metrics.estimate import Estimate
from testbed.store import leases, schema
from testbed.store.claims import TakenOver
from testbed.store.runs import Busy

RUNS = 4
PAIRS = [("m", f"s{number}") for number in range(5)]


@pytest.fixture
def runs(store):
    """Several runs on one database, each with connections of its own."""
    found = [again(store) for _ in range(RUNS)]
    for run in found:
        run.begin_run()
    yield found
    for run in found:
        run.engine.dispose()


@pytest.fixture
def at_once():
    """A function that calls others at the same moment, each in a thread; what they returned."""
    with ThreadPoolExecutor(RUNS) as threads:

        def call(*functions):
            start = threading.Barrier(len(functions))

            def wait_and(function):
                start.wait(60)
                return function()

            return [done.result(120) for done in [threads.submit(wait_and, function) for function in functions]]

        yield call


def fall_silent(store, run_id):
    """Let a run look, by the clock of the database, as if it had last been heard of a moment too long ago."""
    with store.writing() as connection:
        silent = schema.runs.update().where(schema.runs.c.id == run_id)
        connection.execute(silent.values(heartbeat_at=leases.clock(connection) - leases.STALE_AFTER_S - 0.1))


def claimed(run, pair):
    """The claim, or nothing where another run has the pair."""
    try:
        return claim(run, *pair)
    except Busy:
        return None


def holder(store, evaluation_id):
    e = schema.evaluations
    with store.reading() as connection:
        return connection.execute(sa.select(e.c.run_id).where(e.c.id == evaluation_id)).scalar_one()


@pytest.mark.parametrize("left_by_another", [False, True], ids=["free", "held by a run that fell silent"])
def test_pairs_that_several_runs_reach_for_are_given_once_each(store, runs, at_once, left_by_another):
    if left_by_another:
        store.begin_run()
        for pair in PAIRS:
            store.record_chunk(claim(store, *pair).evaluation_id, **chunk(2))
        fall_silent(store, store.run_id)

    def reach(number, run):
        order = Random(number).sample(PAIRS, len(PAIRS))
        return lambda: {pair: held for pair in order if (held := claimed(run, pair)) is not None}

    given = at_once(*(reach(number, run) for number, run in enumerate(runs)))
    assert sorted(pair for held in given for pair in held) == sorted(PAIRS)
    for run, held in zip(runs, given, strict=True):
        assert all(holder(store, h.evaluation_id) == run.run_id for h in held.values())
        assert all(h.done == (((2, 4),) if left_by_another else ()) for h in held.values())
    assert len(evaluations(store)) == len(PAIRS)


@pytest.mark.parametrize("seed", range(rounds(short=4, long=100)))
def test_a_run_whose_pair_is_taken_over_in_the_middle_of_its_writes_writes_nothing_after(runs, at_once, seed):
    """Every chunk of the first run that stands at the end was there when the second took the pair."""
    first, second, *_ = runs
    held = claim(first, n_images=2000)
    begun = threading.Event()

    def write_on():
        for start in range(0, 2000, 2):
            try:
                first.record_chunk(held.evaluation_id, **chunk(start, device="first"))
            except TakenOver:
                return start
            begun.set()
        return None

    def take_over():
        begun.wait(60)
        threading.Event().wait(Random(seed).uniform(0, 0.05))
        fall_silent(second, first.run_id)
        return claim(second, n_images=2000)

    refused_at, taken = at_once(write_on, take_over)
    assert refused_at is not None
    assert taken.evaluation_id == held.evaluation_id
    facts = second.chunk_facts(held.evaluation_id)
    assert tuple((f["start"], f["stop"]) for f in facts) == tuple(sorted(taken.done))
    assert refused_at == len(facts) * 2
    first.heartbeat()  # it is heard of again, which gives it nothing back
    for late in (
        lambda: first.fail(held.evaluation_id, "late"),
        lambda: first.complete(held.evaluation_id, {"top1": Estimate(1.0)}),
    ):
        with pytest.raises(TakenOver):
            late()
    second.complete(held.evaluation_id, {"top1": Estimate(2.0)})
    assert [n.value for n in results(second)] == [2.0]


@pytest.mark.parametrize("seed", range(rounds(short=4, long=100)))
def test_a_heartbeat_and_a_take_over_at_the_same_moment_leave_the_pair_to_one_of_them(runs, at_once, seed):
    first, second, *_ = runs
    for number in range(5):
        pair = ("m", f"s{number}")
        held = claim(first, *pair)
        fall_silent(second, first.run_id)
        pause = Random(seed * 100 + number).uniform(0, 0.004)
        _, taken = at_once(lambda: (threading.Event().wait(pause), first.heartbeat()), lambda: claimed(second, pair))  # noqa: B023
        if taken is None:
            first.record_chunk(held.evaluation_id, **chunk(0))
        else:
            with pytest.raises(TakenOver):
                first.record_chunk(held.evaluation_id, **chunk(0))
            second.record_chunk(taken.evaluation_id, **chunk(0))


def test_results_that_two_runs_bring_to_their_end_at_the_same_moment_stand_once(runs, at_once):
    """One of them slept: it may come to its end just when the other, which has taken over, does."""
    first, second, *_ = runs
    for number in range(5):
        pair = ("m", f"s{number}")
        held = claim(first, *pair)
        fall_silent(second, first.run_id)
        taken = claim(second, *pair)

        def end(run, evaluation_id, value):
            try:
                run.complete(evaluation_id, {"top1": Estimate(value)})
            except TakenOver:
                return None
            return value

        stood = at_once(
            lambda: end(first, held.evaluation_id, 1.0),  # noqa: B023
            lambda: end(second, taken.evaluation_id, 2.0),  # noqa: B023
        )
        assert stood == [None, 2.0]
        assert [n.value for n in results(second, [pair[0]], [pair[1]])] == [2.0]
