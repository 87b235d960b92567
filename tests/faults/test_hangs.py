"""A worker that hangs is noticed, told and ended; Ctrl-C ends a run in every state; nobody prints a traceback."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tiny
from faults.running import (
    LIMIT_S,
    TimeOfAHang,
    children,
    parts,
    running,
    started,
    state,
    stop,
    told_at_end,
    wait_until,
)
from stored_results import completed, evaluations
from testbed.engine import dispatch, watching
from testbed.engine.interrupts import held_back
from testbed.engine.messages import At, Progress, Share, Task, TaskDone
from testbed.engine.pools import Died, Member, ProcessPool
from testbed.engine.progress import Silent
from testbed.engine.watching import SILENT_LOADING_S, SILENT_S, Watch
from testbed.errors import EntryError
from testbed.options import RunOptions
from testbed.store.opening import open_store

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
SHARE = Share(1, "m", "folder")
TASK = Task(0, "s", 0, 16, "fingerprint", (SHARE,))


@pytest.fixture
def notes(monkeypatch):
    """The lines that a quiet run would have told."""
    lines = []
    monkeypatch.setattr(Silent, "note", lambda self, text: lines.append(text))
    return lines


# ---- noticing --------------------------------------------------------------------------------------------


@needs_proc
@pytest.mark.parametrize(("model", "word"), [("tiny_hangs", "busy at"), ("tiny_stops", "stopped at")])
def test_worker_that_hangs_is_told_once_then_ended_and_its_chunk_is_run_by_another(
    tmp_path, monkeypatch, notes, model, word
):
    monkeypatch.setenv("TINY_MARKER", str(tmp_path / "marker"))
    monkeypatch.setattr(watching, "SILENT_S", 1.0)
    clock = TimeOfAHang(tmp_path / "marker", 3.5)
    monkeypatch.setattr(dispatch, "Watch", lambda timeout_s: Watch(timeout_s, clock))
    report, store = tiny.run(tmp_path, [model], ["tiny"], inline=False, chunk_size=64, threads=1, timeout=3)
    assert not report.failed
    warnings = [line for line in notes if "no progress" in line]
    assert len(warnings) == 1
    assert f", {word} images 0 to 64 of {model} on tiny (" in warnings[0]
    assert f"worker cpu died (ended after 3 s {word} images 0 to 64 of {model} on tiny), starting another" in notes
    _, undisturbed = tiny.run(tmp_path / "undisturbed", ["tiny_a"], ["tiny"], chunk_size=64, threads=1)
    # The same weights under another name; one thread on both sides.
    np.testing.assert_allclose(tiny.logits(store, model, "tiny"), tiny.logits(undisturbed, "tiny_a", "tiny"), atol=1e-4)


@pytest.mark.long  # three times the limit, spent waiting; one hang, and three deaths, are tried in every round
def test_chunk_that_always_hangs_fails_its_pair_only(tmp_path):
    models = ["tiny_always_hangs", "tiny_a"]
    report, store = tiny.run(tmp_path, models, ["tiny"], inline=False, threads=1, timeout=2)
    assert "its worker died 3 times at images 0 to 200 (ended after 2 s busy at images 0 to" in tiny.failure(report)
    assert completed(store, "tiny_a", "tiny")


@pytest.mark.long
def test_model_whose_loader_never_returns_fails_all_its_pairs_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "SILENT_LOADING_S", 30.0)  # also what a worker may need to start
    monkeypatch.setattr(dispatch, "_TRIES", 1)
    report, _ = tiny.run(tmp_path, ["tiny_never_loaded"], ["tiny", "tiny.noise"], inline=False, threads=1, timeout=1)
    assert len(report.failed) == 2
    assert all("ended after 30 s busy at loading model tiny_never_loaded" in p.error for p in report.failed)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def watched(timeout_s=None):
    """A watch over one worker that has a chunk in hand, its clock, and what it worries about after some seconds."""
    clock = Clock()
    watch = Watch(timeout_s, clock)
    member = Member("cpu", "cpu", process=type("Running", (), {"pid": os.getpid()})())
    member.tasks.append(TASK)

    def after(seconds, turn_s=1.0):
        worries = []
        for _ in range(round(seconds / turn_s)):
            clock.now += turn_s
            worries += watch.worries([member])
        return worries

    return watch, member, after


def test_worker_that_makes_progress_is_never_told():
    watch, member, after = watched()
    watch.heard(member, At(TASK.images))
    for _ in range(10):
        assert not after(SILENT_S - 5)
        watch.heard(member, Progress(16))


def test_model_that_is_loaded_may_be_silent_for_longer():
    watch, member, after = watched(timeout_s=10)
    watch.heard(member, At("loading model m", loading=True))
    assert not after(SILENT_LOADING_S - 5)
    worries = after(10)
    assert [(w.overdue, w.scope) for w in worries][-1] == (True, "model")


def test_time_of_a_chunk_counts_from_its_own_beginning():
    watch, member, after = watched(timeout_s=10)
    watch.heard(member, At("loading model m", loading=True))
    assert not after(50)
    watch.heard(member, At(TASK.images))
    assert not after(9)
    watch.heard(member, Progress(8))  # it is slow, not hung, and over its time all the same
    (worry, *_) = after(3)
    assert (worry.overdue, worry.scope) == (True, "pair")


def test_run_that_slept_as_a_whole_blames_no_worker():
    watch, member, after = watched(timeout_s=60)
    watch.heard(member, At(TASK.images))
    assert not after(3600, turn_s=3600)
    assert not after(30)


def test_slow_batches_are_told_less_and_less_often():
    watch, member, after = watched()
    watch.heard(member, At(TASK.images))
    told = 0
    for start in range(64):
        told += len(after(2 * SILENT_S))
        watch.heard(member, Progress(16))
        watch.heard(member, At(f"chunk {start}"))
    assert 1 <= told <= 3


def test_idle_worker_is_not_expected_to_say_anything():
    _, member, after = watched(timeout_s=1)
    member.tasks.clear()
    assert not after(10 * SILENT_LOADING_S)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_timeout_must_be_a_time(seconds):
    with pytest.raises(EntryError, match="--timeout: expected a number of seconds above 0, got"):
        RunOptions(timeout=seconds)


# ---- a worker's end --------------------------------------------------------------------------------------


def _nothing():
    pass


def test_worker_that_finished_a_chunk_and_died_is_heard_to_the_end():
    """The chunk was taken off a list that its death had emptied: an IndexError ended the run."""
    pool = ProcessPool(["cpu"], RunOptions(), 1)
    (member,) = pool.members
    context = multiprocessing.get_context("spawn")
    member.connection, theirs = context.Pipe()
    member.process = context.Process(target=_nothing)
    member.process.start()
    second = replace(TASK, start=16, stop=32)
    member.tasks.extend([TASK, second])
    done = TaskDone(TASK)
    theirs.send(done)
    theirs.close()
    assert list(pool.events(10)) == [(member, done)]
    member.tasks.popleft()
    assert list(pool.events(10)) == [(member, Died(0, [second]))]


@needs_proc
def test_workers_say_nothing_when_their_run_is_killed(tmp_path):
    """The run is stopped first, so that what the workers have told is still unread when their connections break."""
    with running(tmp_path, "tiny_slow", "tiny tiny.noise", "--gpus", "cpu", "cpu") as process:
        wait_until(lambda: len(parts(tmp_path)) >= 4, process)
        workers = children(process)
        stop(process)
        before = -1
        while before != (before := len(parts(tmp_path))):  # until they wait for orders
            time.sleep(1)
        process.kill()
        told = told_at_end(process)
        wait_until(lambda: all(state(pid) in ("", "Z") for pid in workers))
    assert "Traceback" not in told and "Error" not in told and "resource_tracker" not in told, told


def test_worker_ends_quietly_when_the_connection_breaks_with_words_unread(tmp_path):
    """A closed connection with unread data is an error of its own (ECONNRESET), not the end of a file."""
    script = (
        "import multiprocessing, time\n"
        "from testbed.engine import pools\n"
        "from testbed.options import RunOptions\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    ours, theirs = context.Pipe()\n"
        "    worker = context.Process(target=pools._serve, args=(theirs, None, 'cpu', RunOptions(), 1, 1))\n"
        "    theirs.send('never read')\n"
        "    worker.start()\n"
        "    theirs.close()\n"
        "    time.sleep(1)\n"
        "    ours.close()\n"
        f"    worker.join({LIMIT_S})\n"
        "    print(worker.exitcode)\n"
    )
    path = tmp_path / "script.py"
    path.write_text(script)
    with started([sys.executable, str(path)]) as process:
        out, told = process.communicate(timeout=2 * LIMIT_S)
    assert (out.strip(), told) == ("0", "")


# ---- Ctrl-C ----------------------------------------------------------------------------------------------


def ctrl_c_twice(process):
    """As a terminal does it: to every process of the run."""
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.3)
    try:
        os.killpg(process.pid, signal.SIGINT)
    except ProcessLookupError:
        pass  # the first one was enough


@needs_proc
@pytest.mark.parametrize("model", ["tiny_stops", "tiny_hangs"])
def test_two_ctrl_c_end_a_run_whose_worker_hangs(tmp_path, model):
    tiny.run(tmp_path, ["tiny_a"], ["tiny"], chunk_size=16)
    with running(tmp_path, f"tiny_a {model}", "tiny", marker=tmp_path / "marker") as process:
        wait_until((tmp_path / "marker").exists, process)
        workers = children(process)
        ctrl_c_twice(process)
        told = told_at_end(process)
        wait_until(lambda: all(state(pid) in ("", "Z") for pid in workers))
    assert process.returncode == 130
    assert "Stopped." in told
    assert "Traceback" not in told
    store = open_store(str(tmp_path / "results.db"))
    assert [e.status for e in evaluations(store, "tiny_a", "tiny")] == ["completed"]
    assert [e.status for e in evaluations(store, model, "tiny")] != ["completed"]


@pytest.mark.parametrize("after_s", [0.0, pytest.param(0.2, marks=pytest.mark.long), 0.8])
def test_ctrl_c_while_a_run_starts_is_one_line_with_its_exit_code(tmp_path, after_s):
    """The workers are processes that have not come to their first line yet."""
    with running(tmp_path, "tiny_slow", "tiny", "--gpus", "cpu", "cpu") as process:
        wait_until((tmp_path / "results.db").exists, process)
        time.sleep(after_s)
        ctrl_c_twice(process)
        told = told_at_end(process)
    assert process.returncode == 130, told
    assert "Stopped." in told and "Aborted" not in told
    assert "Traceback" not in told


def test_ctrl_c_while_a_result_is_measured_keeps_every_finished_chunk(tmp_path):
    settings = "tiny-patient-metric tiny"
    with running(tmp_path, "tiny_a", settings, marker=tmp_path / "marker") as process:
        # The first pair is being measured, and the worker has finished a chunk of the second that nobody has heard of.
        wait_until(lambda: (tmp_path / "marker").exists() and parts(tmp_path, "tiny"), process)
        time.sleep(0.5)
        ctrl_c_twice(process)
        told = told_at_end(process)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    store = open_store(str(tmp_path / "results.db"))
    (first,) = evaluations(store, "tiny_a", "tiny-patient-metric")
    (second,) = evaluations(store, "tiny_a", "tiny")
    assert len(store.chunk_facts(first.id)) == 13
    assert len(store.chunk_facts(second.id)) == len(parts(tmp_path, "tiny")) >= 1
    with running(tmp_path, "tiny_a", settings, marker=tmp_path / "marker") as process:
        told = told_at_end(process)
    assert process.returncode == 0, told
    assert "tiny_a on tiny-patient-metric: going on after 200 of 200 images" in told


@pytest.mark.parametrize(
    "where", ["transform=None, classify=hang", "transform=hang"], ids=["in the model", "in a thread"]
)
def test_two_ctrl_c_end_a_run_inside_a_program(tmp_path, where):
    """A bare module is run in the program itself; its images are loaded by threads."""
    script = f"""
import time
from dataclasses import replace
from pathlib import Path
import testbed
from testbed import Model

def hang(*arguments, **named):
    Path({str(tmp_path / "marker")!r}).touch()
    time.sleep(3600)

def load():
    import torch
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))

model = Model(name="own", classifier_loader=load, eval_batch_size=16, {where})
testbed.evaluate(model, "tiny", db={str(tmp_path / "results.db")!r}, gpus="cpu", quiet=True)
"""
    with started([sys.executable, "-c", script]) as process:
        wait_until((tmp_path / "marker").exists, process)
        ctrl_c_twice(process)
        told = told_at_end(process)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in told  # the program's own to catch


def _interrupted(times, then):
    with held_back():
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        then()


def test_ctrl_c_waits_for_the_end_of_what_must_not_be_cut():
    reached = []
    with pytest.raises(KeyboardInterrupt):
        _interrupted(1, lambda: reached.append("end"))
    with pytest.raises(KeyboardInterrupt):
        _interrupted(2, lambda: reached.append("never"))
    with pytest.raises(KeyboardInterrupt):
        _interrupted(1, {}.popitem)  # not lost behind an error
    _interrupted(0, lambda: reached.append("undisturbed"))
    assert reached == ["end", "undisturbed"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_that_is_ignored_stays_ignored():
    """As for a command that a script starts with &."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with held_back():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
