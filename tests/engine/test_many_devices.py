"""A run of many devices in simulated time, with the parent's own plan, bundles, dispatcher, recorder and database."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stored_results import evaluations
from testbed.engine.plan import make_plan
from testbed.options import RunOptions
from testbed.store.opening import open_store

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
DEVICES, MODELS, SETTINGS, IMAGES = 20, 40, 2, 6000


def simulated(folder: Path, **more):
    """What a run came to, and its store. What this process takes is left out: every call comes to the same."""
    import scale
    from simulated import simulated_registry

    registry = simulated_registry(MODELS, SETTINGS, IMAGES)
    store = open_store(str(folder / "results.db"), create=True)
    options = RunOptions(cache_folder=str(folder / "cache"), results_folder=str(folder))
    plan = make_plan(registry, store, *scale.entries_of(registry), options)
    return scale.simulate(registry, store, plan, options, DEVICES, waits_for="nothing", **more), store


def test_every_pair_is_done_once_and_devices_are_busy_until_the_tail(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    result, store = simulated(tmp_path)
    done = Counter((e.model, e.eval_setting) for e in evaluations(store) if e.completed)
    assert len(done) == MODELS * SETTINGS == result.pairs and set(done.values()) == {1}
    assert result.busy > 0.98
    store.engine.dispose()


def test_a_parent_that_is_too_slow_shows_in_idle_devices(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    result, store = simulated(tmp_path, joining_s=20.0)
    assert result.hours * 3600 > 20.0 * MODELS * SETTINGS
    assert result.busy == pytest.approx(simulated(tmp_path / "again", joining_s=20.0)[0].busy)
    assert result.busy < 0.9
    store.engine.dispose()
