"""Three runs that are started at the same moment, for the same pairs, on one database."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

import tiny
from faults.running import started, told_at_end
from postgres_server import serving_or_skip
from stored_results import evaluations, every_number
from testbed.store.manage import verify
from testbed.store.opening import open_store

MODELS, SETTINGS = ("tiny_slow", "tiny_b"), ("tiny", "tiny.noise", "tiny-even")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    report, store = tiny.run(tmp_path_factory.mktemp("undisturbed"), MODELS, SETTINGS, chunk_size=16, threads=1)
    assert not report.failed
    yield store
    store.engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def place(request, tmp_path, monkeypatch):
    """What --db says."""
    if request.param == "sqlite":
        yield str(tmp_path / "results.db")
        return
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path))
    with serving_or_skip() as server:
        yield server.url


def test_three_runs_at_once_do_every_pair_once(place, tmp_path, undisturbed):
    words = ["--models", *MODELS, "--eval-settings", *SETTINGS, "--gpus", "cpu", "--workers", "0", "--threads", "1"]
    command = [sys.executable, str(tiny.ROOT / "eval.py"), *words, "--chunk-size", "16", "--db", place]
    with ExitStack() as stack:
        runs = [stack.enter_context(started(command)) for _ in range(3)]
        told = [told_at_end(run) for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], told
    store = open_store(place)
    store.folder = tmp_path
    made = evaluations(store)
    assert Counter((e.model, e.eval_setting, e.status) for e in made) == {
        (model, setting, "completed"): 1 for model in MODELS for setting in SETTINGS
    }
    for model in MODELS:
        for setting in SETTINGS:
            np.testing.assert_array_equal(tiny.logits(store, model, setting), tiny.logits(undisturbed, model, setting))
    numbers, expected = (
        {(n.model, n.eval_setting, n.metric, n.value) for n in every_number(s)} for s in (store, undisturbed)
    )
    assert numbers == expected
    assert all(problem == "" for _, problem in verify(store))
    # One file for each pair with logits of its own, and no chunks or temporary files of whoever came too late.
    assert len(list(tmp_path.glob("logits/*/*.npy"))) == 2 * len(MODELS)
    assert not list(tmp_path.glob("logits/*/*.parts")) and not list(tmp_path.rglob(".*"))
    store.engine.dispose()
