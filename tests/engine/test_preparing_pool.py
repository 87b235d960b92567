"""Pictures prepared by processes: the same bits whoever prepares them, and nothing lost or left behind by a kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import tiny
from faults.running import TimeOfAHang, descendants, running, state, told_at_end, wait_until
from stored_results import completed
from testbed.engine import dispatch
from testbed.engine.pools import end_processes
from testbed.engine.predict import predict, predict_all
from testbed.engine.preparing import LocalPreparer, Order, Tally
from testbed.engine.preparing_pool import PreparingPool, preparing_processes
from testbed.engine.progress import Silent
from testbed.engine.shared_preparing import SharedPreparer
from testbed.engine.watching import Watch
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import ImageError
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")


@pytest.fixture(scope="module")
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


@pytest.fixture
def shared(tmp_path):
    """A function that makes a preparer over processes of its own."""
    pools = []

    def make(processes=2, **options):
        told = RunOptions(registry=(str(tiny.REGISTRY),), cache_folder=str(tmp_path / "cache"), **options)
        pools.append(PreparingPool(told, processes, 1))
        return SharedPreparer(told, pools[-1].connection(0), "cpu", lambda text: None)

    yield make
    for pool in pools:
        pool.close(end_processes)


def prepared(preparer, order):
    """All pictures, the numbers of their rows, and what was counted."""
    tally = Tally()
    batches = [(b.rows.numbers.tolist(), b.images.numpy().copy()) for b in preparer.batches(order, tally)]
    return np.concatenate([images for _, images in batches]), [n for rows, _ in batches for n in rows], tally.content


@pytest.mark.parametrize("setting", ["tiny", "tiny.noise", "tiny.motion_blur"])
@pytest.mark.parametrize("processes", [1, 3])
def test_processes_give_the_bits_of_threads(registry, shared, setting, processes):
    entry, setting = registry.model("tiny_a"), registry.runnable(setting)
    preparer, local = shared(processes), LocalPreparer(RunOptions(cache_gb=0))
    rows = setting.rows(preparer.samples(setting))
    for size in (7, 64):
        ours, theirs = (prepared(p, Order(setting, entry, rows, size)) for p in (preparer, local))
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]
        assert ours[1] == list(range(200))


def _looks(images):
    return images.flatten(1)[:, :10].clone()


def _zeroes(images):
    logits = _looks(images)
    images.zero_()
    return logits


def _zeroes_by_numpy(images):
    logits = _looks(images)
    images.numpy()[:] = 0
    return logits


@pytest.mark.parametrize("setting", ["tiny", "tiny.noise"])  # bytes, and numbers that lie in shared memory themselves
def test_what_a_model_writes_into_its_images_no_other_sees(registry, shared, setting):
    """Batches of 7, so that each place in shared memory is used many times."""
    setting, preparer, options = registry.runnable(setting), shared(), RunOptions(cache_gb=0)
    networks = {"tiny_a": _zeroes, "tiny_b": _zeroes_by_numpy, "tiny_slow": _zeroes, "tiny_hungry": _looks}
    entries = [Model(name, None, lambda network=network: network, 7) for name, network in networks.items()]
    models = [LoadedModel(entry, "cpu", options) for entry in entries]
    rows = setting.rows(preparer.samples(setting))
    found = {entry.name: [] for entry in entries}
    for outputs in predict(models, setting, rows, options, preparer):
        found[outputs.model].append(outputs.logits)
    alone = predict_all(models[-1], setting, options, rows)
    for logits in found.values():
        np.testing.assert_array_equal(np.concatenate(logits), alone.logits)


def test_batches_that_are_too_large_for_shared_memory_are_prepared_by_the_worker(registry, shared):
    preparer = shared()
    setting = registry.runnable("tiny.noise")
    order = Order(setting, registry.model("tiny_a"), setting.rows(preparer.samples(setting)), 64)
    expected = prepared(preparer, order)
    preparer._nbytes = 1000
    np.testing.assert_array_equal(prepared(preparer, order)[0], expected[0])


def test_batch_that_is_not_taken_leaves_the_next_order_alone(registry, shared):
    preparer = shared(3)
    setting, entry = registry.runnable("tiny.noise"), registry.model("tiny_a")
    order = Order(setting, entry, setting.rows(preparer.samples(setting)), 4)
    expected = prepared(preparer, order)
    for _ in range(5):
        started = preparer.batches(order, Tally())
        next(started)
        started.close()
    again = prepared(preparer, order)
    np.testing.assert_array_equal(again[0], expected[0])
    assert again[1:] == expected[1:]


def test_unreadable_pictures_are_an_error_or_left_out(registry, shared, image_folder):
    names = [f"{label}/{i}.png" for label in "abc" for i in range(6)]
    folder = image_folder(names, size=9)
    for bad in ("a/0.png", "a/1.png", "a/2.png", "b/4.png"):
        (folder / bad).write_bytes(b"no picture")
    setting, entry = registry.runnable(f"folder:{folder}"), registry.model("tiny_pictures")
    preparer = shared()
    rows = setting.rows(preparer.samples(setting))
    with pytest.raises(ImageError, match=r"a/0\.png"):
        prepared(preparer, Order(setting, entry, rows, 3))
    ours, theirs = (
        prepared(p, Order(setting, entry, rows, 3))  # the whole first batch is unreadable
        for p in (shared(skip_bad_images=True), LocalPreparer(RunOptions(skip_bad_images=True, cache_gb=0)))
    )
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]
    assert ours[1] == [3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17]


def test_cores_that_devices_leave_prepare_unless_told(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    assert preparing_processes(None, ["cuda:0", "cuda:1"]) == 6
    assert preparing_processes(None, [f"cuda:{i}" for i in range(8)]) == 1
    assert preparing_processes(None, ["cpu", "cpu"]) == 8
    assert preparing_processes(3, ["cuda:0"]) == 3
    assert preparing_processes(0, ["cpu"]) == 0


# ---- in runs -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Logits of each model by itself, prepared by the worker's own threads."""
    found = {}
    for model in ("tiny_a", "tiny_b"):
        _, store = tiny.run(
            tmp_path_factory.mktemp(model), [model], ["tiny.noise"], inline=False, threads=1, chunk_size=16, workers=0
        )
        found[model] = tiny.logits(store, model, "tiny.noise")
    return found


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("workers", [1, 3])
def test_logits_are_the_same_for_any_number_of_processes_devices_and_models(tmp_path, alone, devices, workers):
    how = dict(devices=("cpu",) * devices, workers=workers, inline=False, threads=1, chunk_size=48)
    report, store = tiny.run(tmp_path, ["tiny_a", "tiny_b", "tiny_slow"], ["tiny.noise"], **how)
    assert not report.failed
    for model, expected in alone.items():
        np.testing.assert_array_equal(tiny.logits(store, model, "tiny.noise"), expected)


def test_killed_preparing_process_is_replaced_and_costs_nothing(tmp_path, alone, monkeypatch):
    monkeypatch.setenv("TINY_MARKER", str(tmp_path / "killed"))
    lines = []
    monkeypatch.setattr(Silent, "note", lambda self, text: lines.append(text))
    report, store = tiny.run(tmp_path, ["tiny_a"], ["picture-deadly"], inline=False, threads=1, workers=2)
    assert (tmp_path / "killed").exists()
    assert not report.failed
    assert any("a preparing process died (SIGKILL) at" in line for line in lines)
    np.testing.assert_array_equal(tiny.logits(store, "tiny_a", "picture-deadly"), alone["tiny_a"])


def test_pictures_that_kill_every_process_fail_their_pair_only(tmp_path):
    settings = ["picture-always-deadly", "tiny"]
    report, store = tiny.run(tmp_path, ["tiny_a"], settings, inline=False, threads=1, workers=2)
    assert "of picture-always-deadly from number 0 on killed its process 3 times (SIGKILL)" in tiny.failure(report)
    assert completed(store, "tiny_a", "tiny")


def test_error_of_a_perturbation_fails_its_pairs_with_its_own_words(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_a"], ["picture-raises", "tiny"], inline=False, threads=1, workers=1)
    assert tiny.failure(report) == "ZeroDivisionError: this perturbation always fails"
    assert completed(store, "tiny_a", "tiny")


@needs_proc
def test_perturbation_that_hangs_is_ended_by_the_timeout_and_its_chunk_is_run_again(tmp_path, alone, monkeypatch):
    monkeypatch.setenv("TINY_MARKER", str(tmp_path / "marker"))
    clock = TimeOfAHang(tmp_path / "marker", 3.5)
    monkeypatch.setattr(dispatch, "Watch", lambda timeout_s: Watch(timeout_s, clock))
    report, store = tiny.run(tmp_path, ["tiny_a"], ["picture-hangs"], inline=False, threads=1, workers=1, timeout=3)
    assert not report.failed
    np.testing.assert_array_equal(tiny.logits(store, "tiny_a", "picture-hangs"), alone["tiny_a"])


def in_shared_memory():
    """What has a name there, but for what a PostgreSQL server of somebody else has."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("PostgreSQL.")}


@needs_proc
@pytest.mark.parametrize("victim", ["testbed preparing", "run"])
def test_nothing_of_a_killed_run_goes_on_or_stays_in_shared_memory(tmp_path, alone, victim):
    """SIGKILL of the broker: the run goes on with another. SIGKILL of the run: everybody below it ends."""
    before = in_shared_memory()
    with running(tmp_path, "tiny_slow", "tiny.noise", "--workers", "2") as process:
        wait_until(lambda: list(tmp_path.glob("logits/*/*.parts/*.npz")), process)
        below = descendants(process.pid)
        # The two preparing processes are all that it has below it.
        brokers = [pid for pid in below if len(descendants(pid)) == 2]
        assert len(brokers) == 1
        os.kill(process.pid if victim == "run" else brokers[0], signal.SIGKILL)
        told_at_end(process)
        wait_until(lambda: all(state(pid) in ("", "Z") for pid in below))
    assert in_shared_memory() <= before
    assert process.returncode == (-signal.SIGKILL if victim == "run" else 0)
    report, store = tiny.run(tmp_path, ["tiny_slow"], ["tiny.noise"], inline=False, threads=1, chunk_size=16)
    assert not report.failed
    np.testing.assert_array_equal(tiny.logits(store, "tiny_slow", "tiny.noise"), alone["tiny_a"])
