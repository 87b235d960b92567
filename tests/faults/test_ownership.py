"""A run that slept while another took over its pairs writes nothing about them and damages no file of the other."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import numpy as np
import pytest

import tiny
from faults.running import parts, put_to_sleep, running, told_at_end, wait_until
from stored_results import claim, completed, evaluations
from testbed.data import writing
from testbed.engine import dispatch, recording, worker
from testbed.store import files, schema
from testbed.store.database import STALE_AFTER_S, Store
from testbed.store.manage import verify
from testbed.store.opening import open_store


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    settings = ["tiny", "tiny.noise"]
    _, store = tiny.run(folder, ["tiny_slow"], settings, inline=False, chunk_size=16, threads=1)
    return {setting: tiny.logits(store, "tiny_slow", setting) for setting in settings}


def fall_silent(store):
    """Let every run that goes on look as if it had been silent for a minute."""
    with store.writing() as connection:
        silent = schema.runs.update().where(schema.runs.c.ended_at.is_(None))
        connection.execute(silent.values(heartbeat_at=time.time() - STALE_AFTER_S - 1))


def assert_no_damage(store):
    assert {problem for _, problem in verify(store)} == {""}


def assert_whole(store, settings, undisturbed):
    """One finished row for each pair, the right bits, nothing else in the folder."""
    assert [(e.eval_setting, e.status) for e in evaluations(store)] == [(s, "completed") for s in settings]
    for setting in settings:
        np.testing.assert_array_equal(tiny.logits(store, "tiny_slow", setting), undisturbed[setting])
    assert_no_damage(store)
    kept = {store.folder / path for e in evaluations(store) for path in (e.logits_path, e.samples_path)}
    assert set(Path(store.folder).glob("logits/*/*")) == kept


@pytest.mark.parametrize("wakes", ["after the other has ended", "while the other is at it"])
def test_run_that_slept_leaves_a_pair_that_was_taken_over_to_the_other(tmp_path, undisturbed, wakes):
    """Only the parent sleeps: its worker finishes what it has in hand, and writes that late."""
    with running(tmp_path, "tiny_slow", "tiny tiny.noise") as sleeper:
        wait_until(lambda: len(parts(tmp_path, "tiny")) >= 3, sleeper)
        put_to_sleep(sleeper, tmp_path)
        store = open_store(str(tmp_path / "results.db"))
        (place,) = {part.parent for part in parts(tmp_path, "tiny")}
        fall_silent(store)
        with running(tmp_path, "tiny_slow", "tiny") as other:
            if wakes == "while the other is at it":
                wait_until(lambda: any(part.parent != place for part in parts(tmp_path, "tiny")), other)
                sleeper.send_signal(signal.SIGCONT)
            told = told_at_end(other)
            assert other.returncode == 0, told
            assert "tiny_slow on tiny: going on after" in told
        sleeper.send_signal(signal.SIGCONT)
        told = told_at_end(sleeper)
    assert sleeper.returncode == 0, told
    assert "tiny_slow on tiny: taken over by another run while this one was silent; waiting for it" in told
    assert "FAILED" not in told
    assert_whole(store, ["tiny", "tiny.noise"], undisturbed)


def test_run_that_slept_takes_its_pair_back_when_the_other_died(tmp_path, undisturbed):
    with running(tmp_path, "tiny_slow", "tiny") as sleeper:
        wait_until(lambda: len(parts(tmp_path, "tiny")) >= 2, sleeper)
        put_to_sleep(sleeper, tmp_path)
        store = open_store(str(tmp_path / "results.db"))
        (place,) = {part.parent for part in parts(tmp_path, "tiny")}
        fall_silent(store)
        with running(tmp_path, "tiny_slow", "tiny") as other:
            # It has taken the chunks over when they are with it alone. Killed earlier, it would leave a second copy.
            wait_until(lambda: parts(tmp_path, "tiny") and not place.exists(), other)
            other.kill()
        sleeper.send_signal(signal.SIGCONT)
        told = told_at_end(sleeper)
    assert sleeper.returncode == 0, told
    assert_whole(store, ["tiny"], undisturbed)


def stopped_after(n, monkeypatch, folder):
    """A run in this process that was interrupted when it had finished n chunks; the folder of these."""
    real, calls = worker.write_part, []

    def write(*arguments):
        if len(calls) == n:
            raise KeyboardInterrupt
        calls.append(arguments)
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "write_part", write)
        report, store = tiny.run(folder, ["tiny_a"], ["tiny"], chunk_size=16)
    assert report.interrupted
    (place,) = {part.parent for part in parts(folder)}
    return store, place


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logits")
    _, store = tiny.run(folder, ["tiny_a"], ["tiny"], chunk_size=16)
    return tiny.logits(store, "tiny_a", "tiny")


def test_late_files_of_the_earlier_run_do_not_reach_the_result(tmp_path, monkeypatch, logits):
    """It writes a chunk that was recorded once more, with other weights, and a whole result: both by renaming."""
    _, place = stopped_after(3, monkeypatch, tmp_path)
    wrong = np.zeros((16, 10), dtype=np.float32)
    real = worker.write_part

    def write(folder, start, arrays):
        real(folder, start, arrays)
        with pytest.raises(FileNotFoundError):  # its folder does not come back
            real(place, 0, {"logits": wrong})
        writing.write_aside(place.with_suffix(".npy"), lambda aside: aside.write_bytes(b"late"))

    monkeypatch.setattr(worker, "write_part", write)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=16)
    assert not report.failed
    np.testing.assert_array_equal(tiny.logits(store, "tiny_a", "tiny"), logits)
    assert_no_damage(store)


@pytest.mark.parametrize("step", ["link_parts", "move_logits", "remove_logits"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_while_chunks_are_taken_over_loses_none(tmp_path, monkeypatch, logits, step, when):
    stopped_after(5, monkeypatch, tmp_path)
    owner = Store if step == "move_logits" else files
    real = getattr(owner, step)

    def killed(*arguments):
        if when == "after":
            real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, killed)
        report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=16)
    assert report.interrupted
    begun = []
    real_write = worker.write_part
    monkeypatch.setattr(worker, "write_part", lambda *a: (begun.append(a[1]), real_write(*a)))
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=16)
    assert not report.failed
    assert begun == list(range(80, 200, 16))
    np.testing.assert_array_equal(tiny.logits(store, "tiny_a", "tiny"), logits)


def test_chunks_are_copied_where_the_file_system_has_no_links(tmp_path, monkeypatch, logits):
    def no_links(source, target):
        raise PermissionError(1, "Operation not permitted")

    stopped_after(5, monkeypatch, tmp_path)
    monkeypatch.setattr(files.os, "link", no_links)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=16)
    assert not report.failed
    np.testing.assert_array_equal(tiny.logits(store, "tiny_a", "tiny"), logits)


def test_result_that_is_refused_at_its_end_leaves_no_file(tmp_path, monkeypatch, logits):
    """Taken over while it was being measured: the other run's result stands, and is this one's answer too."""
    measure = recording.measure

    def slept(*arguments):
        monkeypatch.undo()  # the other run does not sleep
        fall_silent(open_store(str(tmp_path / "results.db")))
        report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=16)
        assert not report.failed
        return measure(*arguments)

    monkeypatch.setattr(recording, "measure", slept)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=16)
    assert not report.failed and len(report.outcome.completed) == 1
    (evaluation,) = evaluations(store)
    assert evaluation.status == "completed"
    assert_no_damage(store)
    assert {p.name for p in (tmp_path / "logits/tiny").iterdir()} == {
        Path(evaluation.logits_path).name,
        Path(evaluation.samples_path).name,
    }


def test_older_result_is_not_taken_for_the_one_that_is_waited_for(tmp_path, monkeypatch):
    """Both runs are to replace a result that stands: the one that slept waits for the new one."""
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    old = completed(store, "tiny_a", "tiny").id
    finish = recording.Recorder.finish

    def slept(self, pair, evaluation_id):
        monkeypatch.undo()
        fall_silent(store)
        tiny.run(tmp_path, ["tiny_a"], ["tiny"], overwrite=True)
        finish(self, pair, evaluation_id)

    monkeypatch.setattr(recording.Recorder, "finish", slept)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], overwrite=True)
    assert not report.failed and len(report.outcome.completed) == 1
    assert [e.status for e in evaluations(store)] == ["completed"]
    assert completed(store, "tiny_a", "tiny").id != old


def test_pair_that_another_run_finished_in_the_meantime_is_not_run_again(tmp_path, monkeypatch):
    real, calls = worker.write_part, []
    begin = dispatch.Dispatcher.run

    def late(self):
        monkeypatch.setattr(dispatch.Dispatcher, "run", begin)
        tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
        return begin(self)

    monkeypatch.setattr(worker, "write_part", lambda *a: (calls.append(a), real(*a)))
    monkeypatch.setattr(dispatch.Dispatcher, "run", late)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even"])
    assert not report.failed
    assert len(calls) == 1
    assert [e.status for e in evaluations(store)] == ["completed"] * 2


def test_pair_that_another_run_derives_at_this_moment_is_waited_for(tmp_path, monkeypatch):
    """It was reported as failed."""
    tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    store = open_store(str(tmp_path / "results.db"))
    store.begin_run()
    held = claim(store, "tiny_a", "tiny-even", n_images=100, chunk_size=0, fingerprint="")
    monkeypatch.setattr(dispatch.time, "sleep", lambda seconds: store.end_run())
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny-even"])
    assert not report.failed
    (evaluation,) = evaluations(store, "tiny_a", "tiny-even")
    assert evaluation.status == "completed" and evaluation.id != held.evaluation_id


def test_failure_that_an_older_version_left_beside_a_result_is_cleared_by_a_rerun(tmp_path):
    _, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    store.begin_run()
    failed = claim(store, "tiny_a", "tiny", n_images=200, chunk_size=16)
    store.fail(failed.evaluation_id, "FileNotFoundError: 000000000.npz")
    store.end_run()
    assert [e.status for e in evaluations(store)] == ["completed", "failed"]
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert not report.worked
    assert [e.status for e in evaluations(store)] == ["completed"]
