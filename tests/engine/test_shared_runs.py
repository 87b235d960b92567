"""Shards at work: a database for each, merged, or one server for all, one of which is killed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tiny
from faults.running import started, told_at_end, wait_until
from postgres_server import serving_or_skip
from stored_results import evaluations, every_number
from testbed.engine.shards import Shard
from testbed.store.merging import merge
from testbed.store.opening import open_store

MODELS = ["tiny_a", "tiny_b", "ensemble:tiny_a+tiny_b"]
SETTINGS = ["tiny", "tiny-even", "tiny-some-even", "tiny.noise", "tiny.motion_blur"]
N_PAIRS = len(MODELS) * len(SETTINGS)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The store of one run without shards."""
    report, store = tiny.run(tmp_path_factory.mktemp("undisturbed"), MODELS, SETTINGS)
    assert not report.failed
    yield store
    store.engine.dispose()


def assert_same(store, expected, models=MODELS, settings=SETTINGS):
    for model in models:
        for setting in settings:
            np.testing.assert_array_equal(tiny.logits(store, model, setting), tiny.logits(expected, model, setting))

    def told(source):
        numbers = (n for n in every_number(source) if n.model in models and n.eval_setting in settings)
        return {(n.model, n.eval_setting, n.metric, *n[3:8]) for n in numbers}

    assert told(store) == told(expected)


def test_a_run_passes_by_what_another_has_completed_since_it_began(tmp_path, monkeypatch):
    """The other had begun it before, so that its number is not a new one."""
    from testbed.engine import run

    first = []

    class Late(run.Dispatcher):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            if not first:
                first.append(True)
                report, other = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
                assert len(report.outcome.completed) == 1
                self._newest = other.newest_evaluation()  # as if the other had claimed them before this one came
                other.engine.dispose()

    monkeypatch.setattr(run, "Dispatcher", Late)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
    assert len(report.outcome.completed) + len(report.outcome.derived) == 2
    assert sorted(e.id for e in evaluations(store)) == [1, 2]
    store.engine.dispose()


# ---- a database for each -----------------------------------------------------------------------------------------


def test_three_shards_with_a_database_each_merged_are_one_run(tmp_path, undisturbed):
    merged = open_store(str(tmp_path / "results.db"), create=True)
    done = []
    for number in (1, 2, 3):
        report, store = tiny.run(tmp_path / str(number), MODELS, SETTINGS, shard=Shard(number, 3))
        assert not report.failed
        done += [pair.key for pair in (*report.outcome.completed, *report.outcome.derived)]
        taken = merge(merged, store)
        assert taken.completed == len(report.plan.pairs) and not taken.unfinished
        store.engine.dispose()
    assert len(done) == len(set(done))
    report, store = tiny.run(tmp_path, MODELS, SETTINGS)  # what no shard could do: ensembles of members of several
    assert not report.outcome.completed and len(done) + len(report.outcome.derived) == N_PAIRS
    assert {pair.stored_model for pair in report.outcome.derived} <= {"ensemble:tiny_a+tiny_b"}
    assert_same(merged, undisturbed)
    for opened in (merged, store):
        opened.engine.dispose()


# ---- on one server -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    with serving_or_skip() as running:
        yield running


@pytest.fixture
def url(server):
    """Of a database for one test, as its results folder is."""
    return server.new_database()


def shard(url, number, models=MODELS, settings=SETTINGS, count=3):
    words = ["--models", *models, "--eval-settings", *settings, "--shard", f"{number}/{count}", "--db", url]
    words += ["--gpus", "cpu", "--threads", "1", "--workers", "0"]
    return started([sys.executable, str(tiny.ROOT / "eval.py"), *words])


def test_three_shards_on_one_server_do_every_pair_once(url, tmp_path, monkeypatch, undisturbed):
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path))
    with shard(url, 1) as a, shard(url, 2) as b, shard(url, 3) as c:
        told = [told_at_end(run) for run in (a, b, c)]
        assert [run.returncode for run in (a, b, c)] == [0, 0, 0], told
    assert "shard 1 of 3: " in told[0] and all("under way in another run" not in text for text in told)
    store = open_store(url)
    made = evaluations(store)
    assert len(made) == N_PAIRS and {e.status for e in made} == {"completed"}
    assert_same(store, undisturbed)
    # Numbers are not given twice. What is derived is cheap, and may be made twice if two runs come to it at once.
    assert max(e.id for e in made) <= N_PAIRS + 2
    store.engine.dispose()


def running(store):
    return [e for e in evaluations(store) if e.status == "running"]


def test_the_share_of_a_killed_shard_is_done_by_the_others(url, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path))
    models, settings = ["tiny_slow", "tiny_self_attacked"], ["tiny", "tiny.noise"]
    _, expected = tiny.run(tmp_path / "undisturbed", models, settings)
    small = [*settings, "--chunk-size", "16"]
    store = open_store(url, create=True)
    with shard(url, 1, models, small, count=2) as killed:
        wait_until(lambda: any(store.chunk_facts(e.id) for e in running(store)), killed)
        killed.kill()
        killed.wait()
    with shard(url, 2, models, small, count=2) as helper:
        told = told_at_end(helper)
        assert helper.returncode == 0, told
    assert "going on after" in told and "shard 2 of 2: " in told
    assert_same(store, expected, models, settings)
    assert not [e for e in evaluations(store) if e.status != "completed"]
    store.engine.dispose()


def test_a_forgotten_results_folder_is_one_line_and_nothing_is_made_again(url, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path / "right"))
    with shard(url, 1, ["tiny_a"], ["tiny"], count=1) as run:
        assert told_at_end(run) and run.returncode == 0
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path / "wrong"))
    with shard(url, 1, ["tiny_a"], ["tiny", "tiny.noise"], count=1) as run:
        told = told_at_end(run)
    assert run.returncode == 1
    assert f"{tmp_path / 'wrong'} has none of the files of" in told and "TESTBED_RESULTS" in told
    store = open_store(url)
    assert [(e.eval_setting, e.status) for e in evaluations(store)] == [("tiny", "completed")]
    store.engine.dispose()
