from __future__ import annotations

import numpy as np
import pytest

from testbed import ArrayDataset
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError, EntryError

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)
LABELS = np.array([3, 1, 2, 0, 3])


def write_npz(folder, images=IMAGES, **more):
    np.savez(folder / "both.npz", images=images, **more)
    return ArrayDataset(path=folder / "both.npz", num_classes=4)


def write_npy(folder, images=IMAGES, **more):
    np.save(folder / "data.npy", images)
    if "labels" in more:
        np.save(folder / "labels.npy", more["labels"])
    return ArrayDataset(path=folder, num_classes=4)


def made(folder, images=IMAGES, **more):
    return ArrayDataset(make=lambda: (images, more.get("labels")), num_classes=4)


KINDS = pytest.mark.parametrize("kind", [write_npz, write_npy, made])


@KINDS
def test_images_and_labels_come_back(tmp_path, kind):
    samples = kind(tmp_path, labels=LABELS).open([])
    assert samples.targets.tolist() == LABELS.tolist()
    assert samples.targets.dtype == np.int64
    assert len(samples) == 5 and len(set(samples.ids)) == 5
    assert samples.num_classes == 4
    assert all((np.asarray(samples.load(i)) == IMAGES[i]).all() for i in range(5))


@KINDS
def test_images_without_labels_are_unknown(tmp_path, kind):
    assert kind(tmp_path).open([]).targets.tolist() == [UNKNOWN] * 5


def test_equal_arrays_have_equal_fingerprints_however_they_are_stored(tmp_path):
    prints = {kind(tmp_path, labels=LABELS).open([]).fingerprint for kind in (write_npz, write_npy, made)}
    assert len(prints) == 1
    other = IMAGES.copy()
    other[4, 5, 3, 2] ^= 1
    assert made(tmp_path, other, labels=LABELS).open([]).fingerprint not in prints
    assert made(tmp_path, labels=LABELS[::-1]).open([]).fingerprint not in prints


@KINDS
@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES.astype(np.float32), LABELS, "expected uint8 images (n, height, width, 3), got float32 (5, 6, 4, 3)"),
        (IMAGES[..., 0], LABELS, "expected uint8 images (n, height, width, 3), got uint8 (5, 6, 4)"),
        (IMAGES.transpose(0, 3, 1, 2), LABELS, "expected uint8 images (n, height, width, 3), got uint8 (5, 3, 6, 4)"),
        (IMAGES, LABELS[:4], "expected 5 labels, got shape (4,)"),
        (IMAGES, LABELS[:, None], "expected 5 labels, got shape (5, 1)"),
        (IMAGES[:0], LABELS[:0], "holds no images"),
    ],
)
def test_arrays_of_another_form_are_refused(tmp_path, kind, images, labels, message):
    with pytest.raises(DataError) as error:
        kind(tmp_path, images, labels=labels).open([])
    assert str(error.value).endswith(f": {message}")


def damage_missing(path):
    path.unlink()


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:100])


def damage_emptied(path):
    path.write_bytes(b"")


def damage_pickled(path):
    if path.suffix == ".npz":
        np.savez(path, images=np.array([{}], dtype=object))
    else:
        np.save(path, np.array([{}], dtype=object))


@pytest.mark.parametrize("kind", [write_npz, write_npy])
@pytest.mark.parametrize("damage", [damage_missing, damage_cut, damage_emptied, damage_pickled])
def test_unreadable_file_is_named_in_one_line(tmp_path, kind, damage):
    dataset = kind(tmp_path, labels=LABELS)
    damage(tmp_path / ("both.npz" if kind is write_npz else "data.npy"))
    with pytest.raises(DataError) as error:
        dataset.open([])
    assert str(tmp_path) in str(error.value)
    assert "expected images and labels as arrays" in str(error.value)


def test_npz_without_images_is_refused(tmp_path):
    np.savez(tmp_path / "both.npz", x=IMAGES)
    with pytest.raises(DataError, match="expected images and labels"):
        ArrayDataset(path=tmp_path / "both.npz").open([])


def test_named_array_is_found_under_a_data_root(tmp_path):
    (tmp_path / "cifar").mkdir()
    write_npy(tmp_path / "cifar", labels=LABELS)
    assert len(ArrayDataset(name="cifar").open([tmp_path])) == 5
    with pytest.raises(DataError, match=r"dataset 'other' not found: expected data\.npy and labels\.npy"):
        ArrayDataset(name="other").open([tmp_path])


def test_npy_file_is_mapped_and_not_read_whole(tmp_path):
    samples = write_npy(tmp_path, labels=LABELS).open([])
    assert isinstance(samples.load.raw, np.memmap)


@pytest.mark.parametrize(("given", "count"), [({}, 0), ({"path": "a", "name": "b"}, 2)])
def test_one_place_must_be_named(given, count):
    with pytest.raises(EntryError) as error:
        ArrayDataset(**given)
    assert str(error.value) == f"ArrayDataset: expected one of path, name and make, got {count} of them"


def test_rows_of_one_of_several_arrays_beside_one_file_of_labels(tmp_path):
    np.save(tmp_path / "fog.npy", IMAGES)
    np.save(tmp_path / "labels.npy", LABELS)
    dataset = ArrayDataset(path=tmp_path, files=("fog.npy", "labels.npy"), rows=(1, 4))
    samples = dataset.open([])
    assert samples.targets.tolist() == list(LABELS[1:4])
    np.testing.assert_array_equal(np.asarray(samples.load(0)), IMAGES[1])
    assert dataset.describe() == f"array {tmp_path}/fog.npy[1:4]"
    with pytest.raises(DataError, match="expected at least 9 images, got 5"):
        ArrayDataset(path=tmp_path, files=("fog.npy", "labels.npy"), rows=(1, 9)).open([])


def test_npy_file_alone_has_no_labels_even_beside_some(tmp_path):
    images = np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3)
    np.save(tmp_path / "mine.npy", images)
    np.save(tmp_path / "labels.npy", np.arange(4))
    samples = ArrayDataset(path=tmp_path / "mine.npy").open([])
    assert samples.targets.tolist() == [-1] * 4
    np.testing.assert_array_equal(samples.load.raw, images)
    np.testing.assert_array_equal(np.asarray(samples.load(2)), images[2])


def test_hundreds_of_open_sets_hold_few_files_open(tmp_path):
    import os

    if not os.path.isdir("/proc/self/fd"):
        pytest.skip("counts open files in /proc")
    for n in range(60):
        np.save(tmp_path / f"new_data_{n:03d}.npy", np.full((3, 2, 2, 3), n, dtype=np.uint8))
    before = len(os.listdir("/proc/self/fd"))
    opened = [ArrayDataset(path=tmp_path, files=(f"new_data_{n:03d}.npy", "labels.npy")).open([]) for n in range(60)]
    assert [int(np.asarray(s.load(1))[0, 0, 0]) for s in opened] == list(range(60))
    assert len(os.listdir("/proc/self/fd")) - before <= 20


def test_file_that_was_replaced_is_read_anew(tmp_path):
    import os

    path = tmp_path / "data.npy"
    np.save(path, np.zeros((2, 2, 2, 3), dtype=np.uint8))
    first = ArrayDataset(path=tmp_path).open([])
    np.save(tmp_path / "other.npy", np.ones((2, 2, 2, 3), dtype=np.uint8))
    os.replace(tmp_path / "other.npy", path)
    second = ArrayDataset(path=tmp_path).open([])
    assert first.fingerprint != second.fingerprint
    assert second.load.raw.max() == 1
