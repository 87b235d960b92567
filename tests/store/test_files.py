from __future__ import annotations

import hashlib
import os

import numpy as np
import pytest

from testbed.data import writing
from testbed.data.rows import Rows
from testbed.errors import StoreError
from testbed.store import files

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(10, 4)).astype(np.float32)
FEATURES = RNG.normal(size=(10, 2, 3))
VOTES = RNG.integers(0, 9, (10,))


def write_parts(folder, size=4, **arrays):
    starts = list(range(0, 10, size))
    files.make_parts_folder(folder)
    for start in reversed(starts):  # chunks finish in any order
        part = {name: array[start : start + size] for name, array in arrays.items()}
        files.write_part(folder, start, part)
    return starts


@pytest.mark.parametrize("size", [1, 4, 10])
def test_parts_are_joined_in_row_order(tmp_path, size):
    target = tmp_path / "logits" / "m-1.npy"
    starts = write_parts(files.parts_folder(target), size, logits=LOGITS)
    digests = files.assemble(files.parts_folder(target), reversed(starts), 10, target, "float32")
    plain = np.load(target, allow_pickle=False)
    assert plain.dtype == np.float32 and (plain == LOGITS).all()
    assert isinstance(files.load_logits(target), np.memmap)
    assert digests == {"logits": hashlib.sha256(target.read_bytes()).hexdigest()}


def test_extras_lie_beside_the_logits_with_their_own_types(tmp_path):
    target = tmp_path / "m-1.npy"
    folder = files.parts_folder(target)
    starts = write_parts(folder, logits=LOGITS, features=FEATURES, votes=VOTES)
    digests = files.assemble(folder, starts, 10, target, "float32")
    extras = files.extra_arrays(target)
    assert sorted(extras) == ["features", "votes"]
    assert extras["features"].dtype == np.float64 and (extras["features"] == FEATURES).all()
    assert extras["votes"].dtype == VOTES.dtype and (extras["votes"] == VOTES).all()
    for name in extras:
        assert digests[name] == hashlib.sha256(files.array_path(target, name).read_bytes()).hexdigest()


def test_float16_is_for_the_logits_only(tmp_path):
    target = tmp_path / "m-1.npy"
    folder = files.parts_folder(target)
    starts = write_parts(folder, logits=LOGITS, features=FEATURES)
    files.assemble(folder, starts, 10, target, "float16")
    assert files.load_logits(target).dtype == np.float16
    assert (files.load_logits(target) == LOGITS.astype(np.float16)).all()
    assert files.extra_arrays(target)["features"].dtype == np.float64


def test_missing_rows_are_no_result(tmp_path):
    target = tmp_path / "m-1.npy"
    starts = write_parts(files.parts_folder(target), logits=LOGITS)
    with pytest.raises(StoreError, match="expected 10 rows of logits, the chunks have 6"):
        files.assemble(files.parts_folder(target), starts[:1] + starts[2:], 10, target, "float32")
    assert not target.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["m-1.parts"]


def test_arrays_with_pickled_objects_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        files.write_part(tmp_path, 0, {"logits": np.array([{}], dtype=object)})
    assert list(tmp_path.iterdir()) == []


def test_chunks_with_pickled_objects_are_not_joined(tmp_path):
    target = tmp_path / "m-1.npy"
    starts = write_parts(files.parts_folder(target), 5, logits=LOGITS)
    np.savez(files.part_path(files.parts_folder(target), 5), logits=LOGITS[5:].astype(object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        files.assemble(files.parts_folder(target), starts, 10, target, "float32")
    assert not target.exists()


def test_a_chunk_that_is_gone_already_may_be_removed(tmp_path):
    write_parts(tmp_path / "m-1.parts", 5, logits=LOGITS)
    for _ in range(2):
        files.remove_part(tmp_path / "m-1.parts", 0)
    assert [path.name for path in tmp_path.rglob("*.npz")] == [files.part_path(tmp_path, 5).name]


def test_write_aside_leaves_nothing_behind_on_failure(tmp_path):
    path = tmp_path / "new" / "file.txt"

    def fail(aside):
        aside.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        writing.write_aside(path, fail)
    assert list(path.parent.iterdir()) == []


def test_write_aside_keeps_the_old_file_until_the_new_is_whole(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    seen = []

    def write(aside):
        aside.write_text("new")
        seen.append(path.read_text())

    writing.write_aside(path, write)
    assert (seen, path.read_text()) == (["old"], "new")
    assert os.listdir(tmp_path) == ["file.txt"]


def test_place_that_cannot_be_written_is_told_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "folder"
    with pytest.raises(StoreError) as error, writing.writing_to(folder):
        folder.mkdir()
    assert str(error.value) == f"{folder} cannot be written: Not a directory"


def test_sample_list_comes_back_and_is_written_once(tmp_path):
    path = tmp_path / "samples.npz"
    rows = Rows(np.array(["a/ä.png", "b"]), np.array([1, -1]), np.array([7, 3]))
    files.save_rows(path, rows)
    written = path.stat().st_mtime_ns
    files.save_rows(path, rows)
    assert path.stat().st_mtime_ns == written
    loaded = files.load_rows(path)
    assert loaded.ids.tolist() == ["a/ä.png", "b"]
    assert loaded.targets.tolist() == [1, -1] and loaded.indices.tolist() == [7, 3]
    assert loaded.take(np.array([1, 1])).indices.tolist() == [3, 3]


def cut(path):
    path.write_bytes(path.read_bytes()[:150])


def empty(path):
    path.write_bytes(b"")


def other(path):
    path.write_text("something else")


@pytest.mark.parametrize("damage", [cut, empty, other, os.unlink])
def test_file_that_cannot_be_read_is_named(tmp_path, damage):
    samples, logits = tmp_path / "samples.npz", tmp_path / "logits.npy"
    files.save_rows(samples, Rows(np.array(["a"] * 50), np.zeros(50), np.zeros(50)))
    np.save(logits, LOGITS)
    for path, load in ((samples, files.load_rows), (logits, files.load_logits)):
        damage(path)
        with pytest.raises(StoreError, match=f"{path} cannot be read: "):
            load(path)


def test_removal_takes_extras_and_parts_along_and_nothing_else(tmp_path):
    target, neighbour = tmp_path / "logits" / "m-1.npy", tmp_path / "logits" / "m-1.5-2.npy"
    for path in (target, neighbour):
        starts = write_parts(files.parts_folder(path), logits=LOGITS, features=FEATURES)
        files.assemble(files.parts_folder(path), starts, 10, path, "float32")
    files.remove_logits(tmp_path, "logits/m-1.npy")
    names = {"m-1.5-2.npy", files.array_path(neighbour, "features").name, files.parts_folder(neighbour).name}
    assert {p.name for p in target.parent.iterdir()} == names
    files.remove_logits(tmp_path, "logits/m-1.npy")  # what is gone is no error


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("resnet50", "resnet50"),
        ("timm:a/b c", "timm_a_b_c"),
        ("../x", "___x"),
        ("..", "__"),
        ("m@w+1=2", "m@w+1=2"),
        ("ü~", "__"),
    ],
)
def test_file_names_hold_no_path(name, safe):
    assert writing.safe_name(name) == safe


def test_chunks_that_a_late_worker_adds_to_go_all_the_same(tmp_path, monkeypatch):
    """It finishes a chunk while the folder is being removed: the folder was left, and nobody knew of it."""
    folder = files.parts_folder(tmp_path / "m-1.npy")
    files.make_parts_folder(folder)
    files.write_part(folder, 0, {"logits": np.zeros((2, 3))})
    rmdir, late = os.rmdir, [16]

    def meanwhile(path, **more):
        if late:
            files.write_part(folder, late.pop(), {"logits": np.zeros((2, 3))})
        rmdir(path, **more)

    monkeypatch.setattr(os, "rmdir", meanwhile)
    files.remove_logits(tmp_path, "m-1.npy")
    assert late == [] and not folder.exists()
