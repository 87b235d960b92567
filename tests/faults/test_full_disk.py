"""A disk that is full, wherever something is written: one line, nothing finished is lost, no half file stays."""

from __future__ import annotations

import numpy as np
import pytest

import tiny
from faults import writers
from faults.disks import small_disk  # noqa: F401
from stored_results import bury_runs, completed, evaluations, every_number
from testbed.engine import progress, worker
from testbed.errors import StoreError
from testbed.store import carrying, files
from testbed.store.database import Store
from testbed.store.manage import verify
from testbed.store.opening import open_store

CHUNKS = 7  # of each pair
PLACES = {  # what is called when, and the chunks that are finished by then
    "list of images": (files, "save_rows", 1, 0),
    "chunk": (worker, "write_part", 3, 2),
    "database, a chunk": (Store, "record_chunks", 3, 2),
    "joined logits": (files, "assemble", 1, CHUNKS),
    "database, a result": (Store, "complete", 1, CHUNKS),
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    _, store = tiny.run(tmp_path_factory.mktemp("undisturbed"), ["tiny_a"], ["tiny", "tiny.noise"], chunk_size=32)
    return {setting: tiny.logits(store, "tiny_a", setting) for setting in ("tiny", "tiny.noise")}


def when_it_comes_to(place, act, monkeypatch):
    owner, name, turn, _ = PLACES[place]
    real, calls = getattr(owner, name), []

    def call(*arguments, **named):
        calls.append(arguments)
        if len(calls) == turn:
            act()
        return real(*arguments, **named)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("place", PLACES)
def test_a_run_ends_in_one_line_and_goes_on_when_there_is_room(small_disk, undisturbed, monkeypatch, place):  # noqa: F811
    folder = small_disk.folder / "results"
    with monkeypatch.context() as patch:
        when_it_comes_to(place, small_disk.fill, patch)
        with pytest.raises(StoreError) as error:
            tiny.run(folder, ["tiny_a"], ["tiny", "tiny.noise"], chunk_size=32)
    told = str(error.value)
    assert "\n" not in told
    if "database" in place:
        assert told.endswith("results.db cannot be written: database or disk is full")
    else:
        assert told == (
            "OSError: [Errno 28] No space left on device; what is finished is kept: make room and run the same "
            "command again"
        )
    assert not list(folder.rglob(".*"))
    small_disk.make_room()
    bury_runs(open_store(str(folder / "results.db")))
    begun = []
    monkeypatch.setattr(worker, "write_part", lambda *a, real=worker.write_part: (begun.append(a[1]), real(*a)))
    report, store = tiny.run(folder, ["tiny_a"], ["tiny", "tiny.noise"], chunk_size=32)
    assert not report.failed
    assert len(begun) == 2 * CHUNKS - PLACES[place][-1]
    for setting, logits in undisturbed.items():
        np.testing.assert_array_equal(tiny.logits(store, "tiny_a", setting), logits)
    assert [e.status for e in evaluations(store)] == ["completed"] * 2
    kept = {folder / path for e in evaluations(store) for path in (e.logits_path, e.samples_path)}
    assert set(folder.glob("logits/*/*")) == kept
    store.engine.dispose()


def test_a_full_cache_costs_time_alone(small_disk, tmp_path, image_folder):  # noqa: F811
    setting = f"folder:{image_folder([f'{label}/{i}.png' for label in 'abc' for i in range(4)], size=9)}"
    small_disk.fill()
    found = []
    for cache in (small_disk.folder / "cache", tmp_path / "cache"):
        folder = tmp_path / f"results of {cache.parent.name}"
        report, store = tiny.run(folder, ["tiny_pictures"], [setting], cache_folder=str(cache))
        assert not report.failed
        found.append(tiny.logits(store, "tiny_pictures", setting))
    np.testing.assert_array_equal(*found)


def test_a_log_that_cannot_be_written_is_told_once_and_the_run_goes_on(capsys, tmp_path):
    log = tmp_path / "run.log"
    log.symlink_to("/dev/full")
    lines = progress.Lines(2, 10, log)
    for text in ("one", "two", "three"):
        lines.note(text)
    lines.close()
    told = capsys.readouterr().err.splitlines()
    assert told == ["one", f"{log} cannot be written: No space left on device; going on without it", "two", "three"]


def test_a_full_folder_of_logdir_leaves_the_result_in_the_database(small_disk, tmp_path):  # noqa: F811
    small_disk.fill()
    place = small_disk.folder / "out"
    words = ["--models", "tiny_a", "--eval-settings", "tiny", "--gpus", "cpu", "--workers", "0", "--threads", "1"]
    done = tiny.script("eval.py", *words, "--db", tmp_path / "results.db", "--logdir", place)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "run.log cannot be written: No space left on device; going on without it" in done.stderr
    assert last.startswith("Error: ") and "cannot be written: No space left on device" in last
    assert completed(open_store(str(tmp_path / "results.db")), "tiny_a", "tiny")


@pytest.mark.parametrize("what", writers.WRITERS)
def test_whoever_writes_on_a_full_disk_says_one_line_and_leaves_no_half_file(small_disk, tmp_path, what):  # noqa: F811
    db = writers.results_in(tmp_path)
    before = every_number(open_store(str(db)))
    small_disk.fill()
    done = writers.call(what, db, small_disk.folder)
    errors = [line for line in done.stderr.splitlines() if "Error" in line]
    assert done.returncode == 1 and len(errors) == 1, done.stderr
    assert "o space left on device" in done.stderr or "disk is full" in done.stderr, done.stderr
    left = [p for p in small_disk.folder.rglob("*") if p.is_file() and p.name != "ballast"]
    assert all(p.name.startswith("results.db") for p in left), left  # an empty database is one
    assert every_number(open_store(str(db))) == before


@pytest.mark.parametrize("how", ["--copy", "--merge"])
def test_what_had_no_room_is_carried_when_there_is_some(small_disk, tmp_path, monkeypatch, how):  # noqa: F811
    db, target = tmp_path / "results.db", small_disk.folder / "other" / "results.db"
    _, store = tiny.run(tmp_path, ["tiny_a", "tiny_b"], ["tiny", "tiny.noise"])
    expected = every_number(store)
    store.engine.dispose()
    words = ["--db", db, "--copy", target] if how == "--copy" else ["--db", target, "--merge", db]
    with monkeypatch.context() as patch:
        patch.setitem(PLACES, "third file", (carrying, "write_aside", 3, 0))
        when_it_comes_to("third file", small_disk.fill, patch)
        done = tiny.call("db.py", *words)
    assert done.returncode == 1 and "No space left on device" in done.stderr and done.stderr.count("\n") == 1
    small_disk.make_room()
    done = tiny.call("db.py", *words)
    assert done.returncode == 0, done.stderr
    other = open_store(str(target))
    assert [(n.model, n.eval_setting, n.value) for n in every_number(other)] == [
        (n.model, n.eval_setting, n.value) for n in expected
    ]
    assert all(problem == "" for _, problem in verify(other))
    other.engine.dispose()
