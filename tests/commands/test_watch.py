"""db.py --watch: the page it draws, its lines of JSON, and runs that are watched while they go on."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

import tiny
from faults.running import LIMIT_S, running, started, wait_until
from stored_results import add
from testbed.commands.database import main
from testbed.commands.watch_page import as_data, page
from testbed.store.run_states import FailedPair, RunState, Sums, Watched

AT = 1_790_000_000.0


def device(number=0, speed=12.3, at="images 0 to 512 of resnet50 on val", silent_s=0.5):
    return {"device": f"cuda:{number}", "images": 9, "images_per_second": speed, "at": at, "silent_s": silent_s}


def run(host="gpu-01", state="living", devices=(), **more):
    told = {"images": {"finished": 10}, "images_per_second": sum(d["images_per_second"] for d in devices)}
    facts = dict(id=host, host=host, process=4242, command="/home/me/eval.py --models resnet50 --eval-settings val")
    counts = dict(pairs_done=7, pairs_failed=0, pairs_under_way=2)
    times = dict(begun_at=AT - 3723, for_s=3723.0, silent_s=1.0)
    return RunState(**{**facts, **counts, **times, **more}, state=state, progress={**told, "devices": list(devices)})


def watched(*runs, failures=(), stopped=0, **sums):
    known = dict(pairs_planned=1000, pairs_done=412, images_planned=1000, images_done=500, images_per_second=12_300.0)
    return Watched(AT, "database results/results.db", Sums(**{**known, **sums}), stopped, runs, failures)


MANY = run("big", devices=[device(i) for i in range(1000)])
SCENES = {
    "nothing": Watched(AT, "database results/results.db", Sums(), 0, ()),
    "one run": watched(run(devices=[device(0), device(1, at=None)]), seconds_left=3723.0),
    "a thousand devices": watched(MANY, run("small", devices=[device()])),
    "a thousand runs": watched(*(run(f"gpu-{i}", devices=[device()]) for i in range(1000))),
    "failures": watched(run(), failures=[FailedPair("m", "s", f"{'reason ' * i}: x") for i in range(1, 300, 7)]),
    "long names": watched(run("h" * 300, command="eval.py " + "x" * 5000, devices=[device(at="y" * 5000)])),
}


def text(lines):
    return "\n".join(line.text for line in lines)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("width", [40, 80])
def test_a_page_fits_every_terminal(scene, width):
    for height in (1, 3, 5, 10, 24, 50):
        lines = page(SCENES[scene], width, height)
        assert len(lines) <= height
        assert max(len(line.text) for line in lines) <= width
        assert all(line.text.isprintable() for line in lines)


def test_a_page_tells_pairs_devices_speed_and_time_left():
    told = page(SCENES["one run"], 80, 24)
    assert text(told[1:]) == "\n".join(
        [
            "412 of 1,000 pairs [##########################...........................]  50 %",
            "2 devices, 1 idle, 12,300 images/s, 1:02:03 left",
            "",
            "gpu-01, process 4242, for 1:02:03: 7 done, 2 under way",
            "  eval.py --models resnet50 --eval-settings val",
            "  cuda:0         12 images/s  images 0 to 512 of resnet50 on val",
            "  cuda:1         12 images/s  idle",
        ]
    )


def test_devices_are_folded_where_there_is_no_room():
    scene = SCENES["a thousand devices"]
    folded = text(page(scene, 80, 24))
    assert "  1,000 devices, 12,300 images/s" in folded and "cuda:999" not in folded
    assert "  cuda:0         12 images/s" in folded  # of the small run
    assert "cuda:999" in text(page(scene, 80))  # into a file


def test_runs_are_left_out_last_and_told_of():
    lines = page(SCENES["a thousand runs"], 80, 10)
    assert [line.text for line in lines[-2:]] == [
        "gpu-4, process 4242, for 1:02:03: 7 done, 2 under way",
        "and 995 runs more",
    ]


def test_runs_that_are_gone_say_so():
    gone = run("b", "silent", silent_s=300.0), run("c", "ended", silent_s=60.0, pairs_failed=1, pairs_under_way=0)
    told = text(page(watched(run("a", silent_s=45.0), *gone, stopped=2), 80, 24))
    assert "a, process 4242, for 1:02:03, heard of 0:45 ago: 7 done, 2 under way" in told
    assert "b, process 4242, silent for 5:00: 7 done\n" in told
    assert "c, process 4242, ended 1:00 ago: 7 done, 1 failed" in told
    assert "stopped: 2 pairs, of runs that are gone; the same command goes on with them" in told
    assert text(page(watched(*gone, pairs_failed=1), 80, 24)).splitlines()[2] == "1 failed, no run is at work"


def test_each_reason_of_failures_is_told_once_and_the_newest_first():
    failures = [FailedPair("m3", "s", "out of memory"), *(FailedPair(f"m{i}", "s", f"no file '{i}'") for i in range(3))]
    told = text(page(watched(run(), failures=failures, pairs_failed=4), 80, 24))
    assert told.endswith("failed: m3 on s: out of memory\nfailed: 3 pairs: no file '0' (the last is m0 on s)")
    assert [c["pairs"] for c in as_data(watched(run(), failures=failures))["failures"]] == [1, 3]


def test_escape_codes_in_names_do_not_reach_the_terminal():
    evil = "\x1b[2J\x07\n\u202e"
    scene = watched(
        run(f"host{evil}", command=f"eval.py {evil}", devices=[device(at=evil)]),
        failures=[FailedPair(f"m{evil}", "s", f"error {evil}")],
    )
    lines = page(scene, 80, 24)
    assert all(line.text.isprintable() for line in lines)
    assert "host\\x1b[2J\\x07\\n\\u202e" in text(lines)


def test_names_in_json_stay():
    """Programs read them: docs/clusters.md has each."""
    data = json.loads(json.dumps(as_data(SCENES["one run"])))
    assert list(data) == [
        *("at", "database", "pairs_planned", "pairs_done", "pairs_failed", "pairs_under_way", "images_planned"),
        *("images_done", "images_per_second", "seconds_left", "pairs_stopped", "devices", "runs", "failures"),
    ]
    assert list(data["runs"][0]) == [
        *("id", "host", "process", "command", "state", "begun_at", "for_s", "silent_s", "pairs_done", "pairs_failed"),
        *("pairs_under_way", "images_done", "images_per_second", "devices"),
    ]
    page_of_docs = (tiny.ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    names = {*data, *data["runs"][0], *data["runs"][0]["devices"][0]}
    assert [name for name in sorted(names) if f"`{name}`" not in page_of_docs] == []


# ---- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def db(store):
    def invoke(*words):
        return CliRunner().invoke(main, ["--db", store.engine.url.database, "--watch", *words])

    return invoke


def test_without_a_terminal_a_page_is_written_once(db, store):
    store.begin_run()
    add(store, "m", "s", 50.0)
    told = db()
    assert told.exit_code == 0 and f"process {os.getpid()}, for 0:00: 1 done" in told.output
    assert json.loads(db("--once", "--format", "json").output)["runs"][0]["pairs_done"] == 1


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--format", "csv"], "--watch: expected --format table or json, got csv"),
        (["--every", "0"], "--every: expected seconds from 0.1 to 3600, got '0'"),
        (["--every", "nan"], "--every: expected seconds from 0.1 to 3600, got 'nan'"),
        (["--every", "soon"], "--every: expected seconds from 0.1 to 3600, got 'soon'"),
    ],
)
def test_wrong_words_are_answered_in_one_line(db, words, answer):
    told = db(*words)
    assert (told.exit_code, told.output) == (1, f"Error: {answer}\n")


# ---- watching runs -------------------------------------------------------------------------------------------


@contextmanager
def watching(folder, *more):
    """db.py --watch in a process of its own."""
    words = ["--db", str(folder / "results.db"), "--watch", "--every", "0.2", *more]
    with started([sys.executable, str(tiny.ROOT / "db.py"), *words]) as process:
        yield process


def looks(process):
    """What it sees, one after another."""
    for line in process.stdout:
        yield json.loads(line)


def test_two_runs_are_watched_from_their_beginning_to_their_end(tmp_path):
    marker = tmp_path / "marker"  # for which the patient model waits
    words = (tmp_path, "tiny_patient tiny_b tiny_raises", "tiny tiny-even")
    with running(*words, marker=marker) as first, running(*words, marker=marker) as second:
        wait_until(lambda: (tmp_path / "results.db").is_file(), first)
        with watching(tmp_path, "--format", "json") as process:
            seen = []
            for now in looks(process):
                seen.append(now)
                if any("tiny" in str(d["at"]) for run in now["runs"] for d in run["devices"]):
                    marker.touch()
                if len(now["runs"]) == 2 and {run["state"] for run in now["runs"]} == {"ended"}:
                    break
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(LIMIT_S) == 0
        assert [first.wait(LIMIT_S), second.wait(LIMIT_S)] == [1, 1]
    done = [now["pairs_done"] for now in seen if now["pairs_planned"]]
    assert done == sorted(done) and len(set(done)) > 1
    assert {now["pairs_planned"] for now in seen} <= {0, 6}  # never twice as many
    last = seen[-1]
    assert (last["pairs_done"], last["pairs_failed"]) == (4, 2)
    assert sum(run["pairs_done"] for run in last["runs"]) == 4
    assert marker.exists()
    assert any(cause["error"].startswith("ZeroDivisionError") for cause in last["failures"])


def test_ctrl_c_leaves_the_terminal_as_it_was(store):
    store.begin_run()
    store.end_run()
    ours, theirs = pty.openpty()
    command = [sys.executable, str(tiny.ROOT / "db.py"), "--db", store.engine.url.database, "--watch"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        shown = b""
        while b"ended" not in shown:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while not shown.endswith(b"\x1b[?1049l"):
            shown += os.read(ours, 65536)
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert shown.startswith(b"\x1b[?1049h\x1b[?25l")  # the other screen, no cursor
    assert b"\x1b[?25h\x1b[?1049l" in shown and b"Traceback" not in shown
