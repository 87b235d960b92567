"""Several workers, killed workers, killed parents, two runs at once: the logits stay the same to the last bit."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tiny
from faults.running import LIMIT_S, descendants, parts, running, state, told_at_end, wait_until
from stored_results import completed, evaluations
from testbed.engine import pools
from testbed.store.opening import open_store


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Logits of an undisturbed run in one worker process with one thread."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "marker").touch()
    models, settings = ["tiny_slow", "tiny_deadly"], ["tiny", "tiny.noise"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TINY_MARKER", str(folder / "marker"))  # the deadly one stays calm
        report, store = tiny.run(folder, models, settings, inline=False, chunk_size=16, threads=1)
    assert not report.failed
    return {(m, s): tiny.logits(store, m, s) for m in models for s in settings}


def test_two_cpu_workers_give_the_bits_of_one(tmp_path, undisturbed):
    report, store = tiny.run(
        tmp_path, ["tiny_slow"], ["tiny", "tiny.noise"], devices=("cpu", "cpu"), inline=False, chunk_size=16, threads=1
    )
    assert not report.failed
    for setting in ("tiny", "tiny.noise"):
        np.testing.assert_array_equal(tiny.logits(store, "tiny_slow", setting), undisturbed["tiny_slow", setting])
    devices = {d for e in evaluations(store) for d in e.provenance.other["devices"]}
    assert devices == {"cpu#0", "cpu#1"}


def test_killed_worker_loses_no_finished_chunk(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setenv("TINY_MARKER", str(tmp_path / "killed"))
    report, store = tiny.run(tmp_path, ["tiny_deadly"], ["tiny"], inline=False, chunk_size=16, threads=1)
    assert (tmp_path / "killed").exists()
    assert not report.failed
    np.testing.assert_array_equal(tiny.logits(store, "tiny_deadly", "tiny"), undisturbed["tiny_deadly", "tiny"])


def test_chunk_that_kills_every_worker_fails_its_pair_only(tmp_path):
    report, store = tiny.run(tmp_path, ["tiny_always_deadly", "tiny_a"], ["tiny"], inline=False, threads=1)
    assert "its worker died 3 times at images 0 to 200 (killed by SIGKILL, often because mem" in tiny.failure(report)
    assert completed(store, "tiny_a", "tiny")


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (-signal.SIGILL, "killed by SIGILL"),
        (-signal.SIGKILL, "killed by SIGKILL, often because memory ran out"),
        (-40, "killed by signal 40"),
        (3, "exit code 3"),
    ],
)
def test_signal_that_ended_a_worker_is_named(exit_code, words):
    from testbed.engine.dispatch import _end_of_process

    assert _end_of_process(exit_code) == words


def at_work(folder, *more):
    return running(folder, "tiny_slow", "tiny tiny.noise", *more)


def test_killed_run_goes_on_where_it_was(tmp_path, undisturbed):
    with at_work(tmp_path) as process:
        wait_until(lambda: len(parts(tmp_path)) >= 3, process)
        process.kill()
    with at_work(tmp_path) as again:
        told = told_at_end(again)
    assert again.returncode == 0, told
    assert "going on after" in told
    store = open_store(str(tmp_path / "results.db"))
    for setting in ("tiny", "tiny.noise"):
        np.testing.assert_array_equal(tiny.logits(store, "tiny_slow", setting), undisturbed["tiny_slow", setting])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system has no /proc")
def test_workers_of_a_killed_run_do_not_go_on_alone(tmp_path):
    with at_work(tmp_path) as process:
        wait_until(lambda: parts(tmp_path), process)
        workers = descendants(process.pid)
        assert workers
        process.kill()
        wait_until(lambda: all(state(pid) in ("", "Z") for pid in workers))


def test_ctrl_c_tells_how_to_go_on(tmp_path):
    with at_work(tmp_path) as process:
        wait_until(lambda: len(parts(tmp_path)) >= 2, process)
        process.send_signal(signal.SIGINT)
        told = told_at_end(process)
    assert process.returncode == 130
    assert "the same command goes on from there" in told
    assert "Traceback" not in told


def test_ctrl_c_without_a_database_writes_what_is_whole_and_promises_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "out/run.log"
    with at_work(tmp_path, "--no-db", "--logdir", str(tmp_path / "out")) as process:
        wait_until(lambda: log.is_file() and "done    tiny_slow on tiny\n" in log.read_text(), process)
        process.send_signal(signal.SIGINT)
        told = told_at_end(process)
    assert process.returncode == 130, told
    assert told.strip().splitlines()[-1] == "Stopped. With --no-db nothing is kept: the same command begins anew."
    assert [p.parent.name for p in (tmp_path / "out").glob("*/tiny_slow.npz")] == ["tiny"]


def test_two_runs_on_one_database_share_the_work(tmp_path, undisturbed):
    """Both end with every result; no pair is evaluated twice."""
    with at_work(tmp_path) as first, at_work(tmp_path) as second:
        outputs = [process.communicate(timeout=3 * LIMIT_S) for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), outputs
    for out, _ in outputs:
        assert "tiny.noise" in out
    store = open_store(str(tmp_path / "results.db"))
    assert [(e.eval_setting, e.status) for e in evaluations(store)] == [
        ("tiny", "completed"),
        ("tiny.noise", "completed"),
    ]
    np.testing.assert_array_equal(tiny.logits(store, "tiny_slow", "tiny"), undisturbed["tiny_slow", "tiny"])


def test_heartbeat_keeps_a_pair_from_being_taken(tmp_path):
    """A second run in the same process waits for the first and then finds its result."""
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(tiny.run, tmp_path, ["tiny_slow"], ["tiny"], chunk_size=16)
        wait_until(lambda: first.done() or parts(tmp_path))
        report, store = tiny.run(tmp_path, ["tiny_slow"], ["tiny"], chunk_size=16)
        assert not first.result()[0].failed
    assert not report.failed
    assert len(evaluations(store)) == 1


def test_nothing_is_waited_for_after_the_last_result(tmp_path, monkeypatch):
    """Every run took a second longer."""
    real, waits = pools.InlinePool.events, []

    def events(self, timeout_s):
        waits.append(timeout_s)
        return real(self, timeout_s)

    monkeypatch.setattr(pools.InlinePool, "events", events)
    report, _ = tiny.run(tmp_path, ["tiny_a"], ["tiny"])
    assert len(report.outcome.completed) == 1
    assert waits[-1] == 0.0
