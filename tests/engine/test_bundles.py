"""Models that are prepared together: the work is shared, results and failures are each model's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tiny
from stored_results import completed
from testbed import StandardTransform
from testbed.engine.bundles import bundles_of
from testbed.engine.loaded import LoadedModels, nbytes_of
from testbed.engine.plan import make_plan
from testbed.entries.registry import Registry
from testbed.options import RunOptions
from testbed.store.opening import open_store


@pytest.fixture
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


@pytest.fixture
def chunks(monkeypatch):
    """Every chunk that is recorded, as a list of (device, first row, end) by model."""
    from testbed.engine import recording

    recorded, real = {}, recording.Recorder.chunks

    def noted(self, done):
        for event, device in done:
            of_model, place = recorded.setdefault(event.share.model, []), (device, event.task.start, event.task.stop)
            if place not in of_model:  # after Ctrl-C what was heard last is recorded once more
                of_model.append(place)
        return real(self, done)

    monkeypatch.setattr(recording.Recorder, "chunks", noted)
    return recorded


def bundles(registry, tmp_path, models, settings, **options):
    told = RunOptions(registry=(str(tiny.REGISTRY),), **options)
    store = open_store(str(tmp_path / "results.db"), create=True)
    found = bundles_of(make_plan(registry, store, models, settings, told), registry, told)
    return [(sorted(bundle.models), bundle.pairs[0].setting.name, bundle.batch) for bundle in found]


def test_models_that_want_the_same_pictures_are_one_bundle_of_each_setting(registry, tmp_path):
    entry = registry.model("tiny_a")
    registry.models.add(replace(entry, name="cropped", transform=StandardTransform(8, 8)), "here")
    registry.models.add(replace(entry, name="double", eval_batch_size=32), "here")
    registry.models.add(replace(entry, name="odd", eval_batch_size=24), "here")
    names = ["tiny_a", "cropped", "tiny_b", "double", "odd"]
    assert bundles(registry, tmp_path, names, ["tiny", "tiny.noise"]) == [
        (["double", "tiny_a", "tiny_b"], "tiny", 32),
        (["double", "tiny_a", "tiny_b"], "tiny.noise", 32),
        (["cropped"], "tiny", 16),
        (["cropped"], "tiny.noise", 16),
        (["odd"], "tiny", 24),
        (["odd"], "tiny.noise", 24),
    ]


def test_one_batch_size_for_all_makes_one_bundle(registry, tmp_path):
    registry.models.add(replace(registry.model("tiny_a"), name="odd", eval_batch_size=24), "here")
    assert bundles(registry, tmp_path, ["tiny_a", "odd"], ["tiny"], batch_size=8) == [(["odd", "tiny_a"], "tiny", 8)]


def test_a_model_that_fails_leaves_its_bundle_and_hurts_nobody(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_a", "tiny_raises", "tiny_unloadable", "tiny_nan", "tiny_b"], ["tiny"])
    errors = {pair.model.name: pair.error for pair in report.failed}
    assert set(errors) == {"tiny_raises", "tiny_unloadable", "tiny_nan"}
    assert "this classifier always fails" in errors["tiny_raises"]
    assert "no such weights" in errors["tiny_unloadable"]
    assert "gives NaN" in errors["tiny_nan"]
    for model in ("tiny_a", "tiny_b"):
        _, alone = tiny.run(tmp_path / model, [model], ["tiny"])
        np.testing.assert_array_equal(tiny.logits(store, model, "tiny"), tiny.logits(alone, model, "tiny"))


def test_a_model_that_runs_out_of_memory_halves_its_own_batches_only(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_a", "tiny_greedy"], ["tiny"])
    assert not report.failed
    assert completed(store, "tiny_greedy", "tiny").provenance.other["batch_size"] == 4
    assert completed(store, "tiny_a", "tiny").provenance.other["batch_size"] == 16


def test_a_model_that_kills_its_worker_is_found_and_the_others_are_finished(tmp_path):
    report, store = tiny.run(
        tmp_path, ["tiny_a", "tiny_always_deadly", "tiny_b"], ["tiny"], inline=False, threads=1, chunk_size=64
    )
    assert "its worker died 3 times at images 0 to 64" in tiny.failure(report)
    assert completed(store, "tiny_a", "tiny") and completed(store, "tiny_b", "tiny")


def test_models_of_different_batch_size_get_their_own_batches(registry, tmp_path, monkeypatch):
    """Prepared in the larger batches, shown in each model's own."""
    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny.noise"])
    seen = []
    registry.models.add(
        replace(
            registry.model("tiny_a"),
            name="double",
            eval_batch_size=32,
            classify=lambda images, model: (seen.append(len(images)), model(images))[1],
        ),
        "here",
    )
    from testbed.engine.run import run_evaluations

    options = RunOptions(registry=(str(tiny.REGISTRY),), cache_gb=0)
    other = open_store(str(tmp_path / "other.db"), create=True)
    run_evaluations(registry, other, ["tiny_a", "double"], ["tiny.noise"], options, ["cpu"], inline=True, quiet=True)
    assert seen == [32] * 6 + [8]
    np.testing.assert_array_equal(
        tiny.logits(other, "tiny_a", "tiny.noise"), tiny.logits(store, "tiny_a", "tiny.noise")
    )


def test_pairs_that_were_left_at_different_chunks_go_on_together(tmp_path, chunks):
    """One model has finished some chunks before the other joins it, in chunks of another size."""
    from testbed.engine import recording

    whole = recording.Recorder.chunks

    def stops_after_three(self, done):
        lost = whole(self, done)
        if len(chunks["tiny_a"]) == 3:
            raise KeyboardInterrupt
        return lost

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording.Recorder, "chunks", stops_after_three)
        report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=32)
    assert report.interrupted
    report, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny"], chunk_size=80)
    assert not report.failed
    rows = {model: [(start, stop) for _, start, stop in done] for model, done in chunks.items()}
    assert rows["tiny_a"] == [(0, 32), (32, 64), (64, 96), (96, 176), (176, 200)]
    assert rows["tiny_b"] == [(0, 80), (80, 96), (96, 176), (176, 200)]
    for model in ("tiny_a", "tiny_b"):
        _, alone = tiny.run(tmp_path / model, [model], ["tiny"])
        np.testing.assert_array_equal(tiny.logits(store, model, "tiny"), tiny.logits(alone, model, "tiny"))


# ---- how many stay loaded ----------------------------------------------------------------------------------------


def test_models_that_do_not_fit_together_are_taken_in_turns(registry):
    names = ["tiny_a", "tiny_wide", "tiny_b", "tiny_slow"]
    models = LoadedModels("cpu", registry, RunOptions())
    loaded, failed = [], []
    (turn,) = models.in_turns(names, loaded.append, lambda *what: failed.append(what))
    assert [m.entry.name for m in turn] == names == loaded
    small, wide = nbytes_of(turn[0]), nbytes_of(turn[1])
    models.budget = small + wide
    turns = [[m.entry.name for m in t] for t in models.in_turns(names, loaded.append, failed.append)]
    assert turns == [["tiny_a", "tiny_wide"], ["tiny_b", "tiny_slow"]]
    models.budget = small
    turns = [[m.entry.name for m in t] for t in models.in_turns(names, loaded.append, failed.append)]
    assert turns == [["tiny_a"], ["tiny_wide"], ["tiny_b"], ["tiny_slow"]]
    assert not failed


def test_chunks_get_smaller_towards_the_end_of_a_run_on_several_devices(tmp_path, chunks):
    tiny.run(tmp_path, ["tiny_slow"], ["tiny"], devices=("cpu", "cpu"), inline=False, threads=1, batch_size=8)
    done = sorted(chunks["tiny_slow"], key=lambda chunk: chunk[1])
    sizes = [stop - start for _, start, stop in done]
    assert len({device for device, _, _ in done}) == 2
    assert sizes[0] == 48  # a quarter of 200 in whole batches
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] == 8


def test_one_hundred_images_occupy_two_devices(tmp_path, chunks):
    tiny.run(tmp_path, ["tiny_slow"], ["tiny"], devices=("cpu", "cpu"), inline=False, threads=1, limit=100)
    assert len({device for device, _, _ in chunks["tiny_slow"]}) == 2
