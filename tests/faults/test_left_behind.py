"""What killed runs leave in the results folder is swept by the next run; what a living one owns never is."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tiny
from faults.running import parts as finished_chunks
from faults.running import running as at_work
from faults.running import wait_until
from stored_results import add, again, claim, completed
from testbed.data import writing
from testbed.store import files, schema
from testbed.store.opening import open_store
from testbed.store.sweeping import SILENT_S, sweep


@pytest.fixture
def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def running(store):
    store.begin_run()
    yield store
    store.end_run()


def leave(store, name, old=False):
    path = store.folder / "logits" / "s" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    if old:
        silence(path)
    return path


def silence(path):
    os.utime(path, (time.time() - SILENT_S - 60,) * 2)


ELSEWHERE = "0123abcd"


def test_temporary_files_of_ended_processes_of_this_machine_are_swept(running, dead_pid):
    left = leave(running, f".m-1.npy.{writing.this_machine()}-{dead_pid}")
    inside = leave(running, f"m-1.parts/.000000000.npz.{writing.this_machine()}-{dead_pid}")
    copy = running.folder / f".results.db.schema5.{writing.this_machine()}-{dead_pid}"
    copy.write_bytes(b"half")
    claim(running, logits_path="logits/s/m-1.npy")
    assert set(sweep(running)) == {left, inside, copy}
    assert not left.exists() and inside.parent.exists()


def test_temporary_files_of_living_processes_stay(running):
    left = leave(running, f".m-1.npy.{writing.this_machine()}-{os.getpid()}", old=True)
    unnamed = leave(running, f".m-2.npy.{os.getppid()}", old=True)
    assert sweep(running) == [] and left.exists() and unnamed.exists()


@pytest.mark.parametrize("machine", [f"{ELSEWHERE}-", ""])
def test_temporary_files_of_unknown_writers_go_after_a_long_silence(running, dead_pid, machine):
    left = leave(running, f".m-1.npy.{machine}{dead_pid}")
    assert sweep(running) == []
    silence(left)
    assert sweep(running) == [left]


@pytest.mark.parametrize("machine", [f"{ELSEWHERE}-", ""])
def test_while_another_run_lives_on_the_database_unknown_writers_are_left_alone(running, dead_pid, machine):
    left = leave(running, f".m-1.npy.{machine}{dead_pid}", old=True)
    other = again(running)
    other.begin_run()
    with running.writing() as connection:  # on another machine, and heard of a moment ago
        this = schema.runs.c.id == other.run_id
        connection.execute(schema.runs.update().where(this).values(machine="elsewher", heartbeat_at=time.time()))
    assert sweep(running) == [] and left.exists()
    with running.writing() as connection:
        connection.execute(schema.runs.update().where(this).values(heartbeat_at=time.time() - 3600))
    assert sweep(running) == [left]


def test_what_is_no_temporary_file_is_never_touched(running):
    kept = [leave(running, name, old=True) for name in ("m-1.npy", ".notes", ".m-1.npy.txt", "samples-12.npz", "x.12")]
    assert sweep(running) == [] and all(path.exists() for path in kept)


def parts(store, name="m-1"):
    folder = store.folder / "logits" / "s" / f"{name}.parts"
    files.make_parts_folder(folder)
    files.write_part(folder, 0, {"logits": np.zeros((2, 3))})
    return folder


def make_old(folder):
    for path in (*folder.iterdir(), folder):
        silence(path)


def test_chunks_of_a_finished_evaluation_are_swept(running):
    add(running, logits=np.zeros((6, 3), dtype=np.float32))
    folder = files.parts_folder(running.folder / completed(running, "m", "s").logits_path)
    assert folder.is_dir()
    assert sweep(running) == [folder] and not folder.exists()


def test_chunks_of_an_unfinished_evaluation_stay_however_old(running):
    claim(running, logits_path="logits/s/m-1.npy")
    folder = parts(running)
    make_old(folder)
    assert sweep(running) == [] and folder.exists()


def test_chunks_of_another_database_in_the_folder_stay(running):
    other = open_store(str(running.folder / "other name.sqlite"), create=True)
    other.begin_run()
    claim(other, logits_path="logits/s/m-1.npy")
    folder = parts(running)
    make_old(folder)
    assert sweep(running) == [] and folder.exists()
    other.engine.dispose()


def test_chunks_that_nobody_knows_go_after_a_long_silence(running):
    folder = parts(running)
    assert sweep(running) == []
    make_old(folder)
    assert sweep(running) == [folder]


def test_a_long_silence_is_a_day(running):
    left = leave(running, f".m-1.npy.{ELSEWHERE}-12")
    os.utime(left, (time.time() - 23 * 3600,) * 2)
    assert sweep(running) == []
    os.utime(left, (time.time() - 25 * 3600,) * 2)
    assert sweep(running) == [left]


def test_chunks_stay_while_a_database_of_the_folder_cannot_be_read(running):
    damaged = running.folder / "damaged.db"
    damaged.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    folder = parts(running)
    make_old(folder)
    assert sweep(running) == [] and folder.exists()
    damaged.unlink()
    assert sweep(running) == [folder]


def test_a_killed_run_leaves_nothing_once_the_next_has_ended(tmp_path):
    """SIGKILL while a chunk is being written: a half-written file with the worker's name, and the finished chunks."""
    with at_work(tmp_path, "tiny_slow", "tiny") as run:
        wait_until(lambda: len(finished_chunks(tmp_path)) >= 2, run)
        run.kill()
        run.communicate()
    (folder,) = tmp_path.glob("logits/tiny/*.parts")
    (folder / f".000000160.npz.{writing.this_machine()}-{run.pid}").write_bytes(b"half")
    (folder.parent / f".m.npy.{writing.this_machine()}-{run.pid}").write_bytes(b"half")
    report, store = tiny.run(tmp_path, ["tiny_slow"], ["tiny"], chunk_size=16)
    assert not report.failed
    names = sorted(path.name for path in folder.parent.iterdir())
    assert len(names) == 2 and names[0].startswith("samples-") and names[1].startswith("tiny_slow-")
    store.engine.dispose()


def test_what_was_begun_and_given_up_leaves_no_file(tmp_path, monkeypatch):
    """Killed between the joined logits and the row, then run on other data: the old file has no owner any more."""

    def kill(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("testbed.store.files.sha256_of", kill)
        report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert report.interrupted
    assert len(list(tmp_path.glob("logits/tiny/tiny_a-*.npy"))) == 1
    report, store = tiny.run(tmp_path, ["tiny_a"], ["tiny"], overwrite=True)
    assert not report.failed
    files_left = [path.name for path in (tmp_path / "logits" / "tiny").iterdir() if not path.name.startswith("samples")]
    assert files_left == [os.path.basename(completed(store, "tiny_a", "tiny").logits_path)]
    store.engine.dispose()
