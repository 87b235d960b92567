from __future__ import annotations

import io
import multiprocessing
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from data.parquet_files import class_label, encoded, write_parquet
from shared_data import shared_data
from testbed import ParquetDataset
from testbed.data import parquet_reading
from testbed.data.audit import unreadable
from testbed.data.content import content_of
from testbed.data.images import decode_rgb
from testbed.data.labels import imagenet_names
from testbed.data.rows import all_rows
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError, ImageError

pytest.importorskip("pyarrow")


def opened(path, **how):
    return ParquetDataset(path=path, **how).open([])


# ---- which pictures, which labels ------------------------------------------------------------------------


def test_rows_become_samples_named_by_file_row_and_picture(tmp_path):
    path = write_parquet(
        tmp_path / "a.parquet",
        {"label": [1, 0, -1, None]},
        paths=["n01/x.png", "x.png", None, "C:\\y.png"],
        features={"label": class_label("cat", "dog")},
    )
    samples = opened(path)
    assert list(samples.ids) == ["a.parquet/0/x.png", "a.parquet/1/x.png", "a.parquet/2", "a.parquet/3/y.png"]
    assert samples.targets.tolist() == [1, 0, UNKNOWN, UNKNOWN]
    assert samples.targets.dtype == np.int64
    assert (samples.label_space, samples.num_classes) == ("own", 2)
    for row in range(4):
        assert np.array_equal(samples.load(row), decode_rgb(encoded(row), ""))


@pytest.mark.parametrize(
    ("columns", "features", "how", "targets", "space", "num_classes"),
    [
        ({"label": [3, 0]}, None, {}, [3, 0], "own", None),
        ({"label": [999, 0]}, None, {}, [999, 0], "imagenet", 1000),
        ({"cls": [3, 7]}, None, {"labels": "imagenet"}, [3, 7], "imagenet", 1000),
        ({"Label": [1.0, None]}, None, {}, [1, UNKNOWN], "own", None),
        ({"wnid": ["n15075141", "n01440764"], "class_name": ["x", "y"]}, None, {}, [999, 0], "imagenet", 1000),
        ({"label": ["dog", "cat"]}, None, {}, [1, 0], "own", 2),
        ({"label": ["hen", None]}, None, {}, [8, UNKNOWN], "imagenet", 1000),
        ({"label": ["hen", "ostrich"]}, None, {"labels": "sorted"}, [0, 1], "own", 2),
        ({"label": ["hen", "ostrich"]}, None, {"labels": "none"}, [UNKNOWN, UNKNOWN], "own", None),
        ({"photographer": ["Ann", "Bo"]}, None, {}, [UNKNOWN, UNKNOWN], "own", None),
        ({"photographer": ["cat", "hat"]}, None, {"label": "photographer"}, [0, 1], "own", 2),
        ({"fine": [1, 0], "x": [5, 5]}, {"fine": class_label("b", "a")}, {}, [1, 0], "own", 2),
        # The first two classes of ImageNet-A are jellyfish... by wnid: 6 (stingray) and 11 (goldfinch).
        ({"label": [0, 1]}, None, {"labels": "imagenet-a"}, [6, 11], "imagenet", 1000),
        ({"label": [0, 199]}, None, {"labels": "imagenet-r"}, [1, 988], "imagenet", 1000),
        # Folders 0, 1, 10, 2 that were numbered in the order of their names as text.
        ({"label": [2, 3]}, {"label": class_label("0", "1", "10", "2")}, {}, [10, 2], "own", None),
        ({"label": [0, 1]}, {"label": class_label("n02123045", "n01440764")}, {}, [281, 0], "imagenet", 1000),
        ({"label": [0, 2]}, {"label": class_label("tench", "hen", "crane2")}, {}, [0, 517], "imagenet", 1000),
        ({"label": [1, 0]}, {"label": class_label("tench", "hen")}, {"labels": "integer"}, [1, 0], "own", 2),
    ],
)
def test_labels_become_class_indices(tmp_path, columns, features, how, targets, space, num_classes):
    samples = opened(write_parquet(tmp_path / "a.parquet", columns, features=features), **how)
    assert samples.targets.tolist() == targets
    assert (samples.label_space, samples.num_classes) == (space, num_classes)


def test_several_labels_are_told_and_the_first_is_the_target(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", {"label": [[7, 3], [5], [], None]})
    dataset = ParquetDataset(path=path)
    samples = dataset.open([])
    assert samples.targets.tolist() == [7, 5, UNKNOWN, UNKNOWN]
    assert dataset.several_labels() == {"a.parquet/0": (7, 3)}
    other = write_parquet(tmp_path / "b" / "a.parquet", {"label": [[7, 4], [5], [], None]})
    assert opened(other).fingerprint != samples.fingerprint


def test_names_come_from_the_readme_where_the_file_has_none(tmp_path):
    path = write_parquet(tmp_path / "set" / "data" / "test-00000-of-00001.parquet", {"label": [1, 0], "more": [0, 0]})
    (tmp_path / "set" / "README.md").write_text(
        "---\ndataset_info:\n- config_name: a\n  features:\n  - name: image\n    dtype: image\n  - name: label\n"
        "    dtype:\n      class_label:\n        names:\n          '1': goldfish\n          '0': tench\n"
        "          '10': zebra\n---\n# A set\n"
    )
    samples = opened(path)
    assert samples.targets.tolist() == [1, 0]
    assert samples.label_space == "imagenet"


def test_files_of_a_folder_or_glob_count_in_the_order_of_their_names(tmp_path):
    for number in (1, 0):
        write_parquet(tmp_path / f"data/val-0000{number}-of-00002.parquet", {"label": [number]}, [encoded(number)])
    write_parquet(tmp_path / "data/train-00000-of-00001.parquet", {"label": [7]})
    for path, how in ((tmp_path, {"split": "val"}), (tmp_path / "data" / "val-*", {})):
        samples = opened(path, **how)
        assert list(samples.ids) == ["val-00000-of-00002.parquet/0", "val-00001-of-00002.parquet/0"]
        assert samples.targets.tolist() == [0, 1]
        assert np.array_equal(samples.load(1), decode_rgb(encoded(1), ""))
    with pytest.raises(DataError, match=r"expected one split, got train, val: say which, as in .*\?split=train"):
        opened(tmp_path)


def test_exif_orientation_turns_no_picture(tmp_path):
    tags, file = Image.Exif(), io.BytesIO()
    tags[0x0112] = 6
    Image.new("RGB", (6, 4)).save(file, "JPEG", exif=tags)
    samples = opened(write_parquet(tmp_path / "a.parquet", {"label": [0]}, [file.getvalue()]))
    assert samples.load(0).size == (6, 4)


@pytest.mark.parametrize(
    ("file", "how", "ids", "targets"),
    [
        (
            "snapshot/data/validation-*.parquet",
            {},
            "validation-00000-of-00002.parquet/0/ILSVRC2012_val_00000001_n01440764.JPEG",
            [0, 1, 517, 0, 1, 517, 0, 1],
        ),
        ("snapshot", {"split": "test"}, "test-00000-of-00001.parquet/0", [UNKNOWN]),
        ("several_labels.parquet", {}, "several_labels.parquet/0/a.jpg", [0, 1]),
        ("wnid_column.parquet", {}, "wnid_column.parquet/0/art_0.jpg", [1, 26]),
        ("no_metadata.parquet", {"label": "fine_label"}, "no_metadata.parquet/0", [3, UNKNOWN]),
        ("plain_binary.parquet", {}, "plain_binary.parquet/0", [0]),
    ],
)
def test_files_of_the_datasets_library_are_read(file, how, ids, targets):
    samples = opened(shared_data("hub-samples", "parquet") / file, **how)
    assert samples.ids[0] == ids
    assert samples.targets.tolist() == targets
    assert unreadable(samples) == []


# ---- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "features", "how", "message"),
    [
        ({"label": [0]}, None, {"image": "img"}, "no column 'img' for image=, there are image, label"),
        ({"label": [0]}, None, {"label": "lable"}, "no column 'lable' for label=, there are image, label"),
        ({"label": [0]}, None, {"image": "label"}, "expected a column of pictures, got label of type int64"),
        ({"label": [0]}, None, {"label": "image"}, "expected a column of labels, got image, which are the pictures"),
        ({"mask": [b"x"]}, {"mask": {"_type": "Image"}}, {}, "expected one column of pictures, got image, mask: say"),
        ({"fine_label": [0], "coarse_label": [1]}, None, {}, "got fine_label, coarse_label: say which, as in ?label="),
        ({"label": [2]}, {"label": class_label("a", "b")}, {}, "whole numbers from 0 to 1, or -1 for no label, got 2"),
        ({"label": [-5]}, None, {}, "whole numbers from 0 to 2147483647, or -1 for no label, got -5 for image 0"),
        ({"label": [1.5]}, None, {}, "got 1.5 for image 0"),
        ({"label": [True]}, None, {}, "expected labels as whole numbers or text, or lists of them, got bool"),
        ({"label": [200]}, None, {"labels": "imagenet-r"}, "labels=imagenet-r is for numbers from 0 to 199, got 200"),
        ({"label": [1000]}, None, {"labels": "imagenet"}, "expected ImageNet's classes 0 to 999, got 1000"),
        ({"label": [0]}, None, {"labels": "sorted"}, "labels=sorted is for class names, got numbers without any"),
        ({"label": ["hen"]}, None, {"labels": "imagenet-a"}, "labels=imagenet-a is for numbers, got text"),
        (
            {"label": [*imagenet_names()[:10], "tensh"]},
            None,
            {},
            "image a.parquet/10: expected names of ImageNet's classes, as 10 of 11 are; no names of "
            "ImageNet's classes: tensh (tench",
        ),
        (
            {"label": [0]},
            {"label": class_label("hen", "ostrich", "tensh")},
            {},
            "as 2 of 3 are; no names of ImageNet's classes: tensh (tench",
        ),
    ],
)
def test_columns_and_labels_that_do_not_fit_are_told_in_one_line(tmp_path, columns, features, how, message):
    path = write_parquet(tmp_path / "a.parquet", columns, features=features)
    with pytest.raises(DataError) as raised:
        opened(path, **how)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_file_without_pictures_is_refused(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"image": ["a.png"], "label": [0]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="expected a column of pictures, got image, label"):
        opened(tmp_path / "a.parquet")
    only_paths = write_parquet(tmp_path / "b.parquet", {"label": [0, 1]}, [None, None], ["/x/a.png", "/x/b.png"])
    with pytest.raises(DataError, match="only the paths of pictures are stored here"):
        opened(only_paths)
    empty = write_parquet(tmp_path / "c.parquet", {}, [])
    with pytest.raises(DataError, match="holds no images"):
        opened(empty)


def test_files_that_are_missing_or_cut_short_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.parquet does not exist: expected a file, a folder"):
        opened(tmp_path / "none.parquet")
    shard = write_parquet(tmp_path / "val-00001-of-00003.parquet", {"label": [0]})
    with pytest.raises(DataError, match=r"expected 3 files val-00000-of-00003.*2 of them are missing: number 0, 2"):
        opened(tmp_path)
    assert len(opened(shard)) == 1  # named by itself
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"val-00001-of-00003\.parquet is no whole parquet file: .*; fetch or write it"):
        opened(shard)


def test_files_of_different_sets_are_not_joined(tmp_path):
    write_parquet(tmp_path / "a.parquet", {"label": [0]}, features={"label": class_label("a", "b")})
    write_parquet(tmp_path / "b.parquet", {"label": [0]}, features={"label": class_label("b", "a")})
    with pytest.raises(DataError, match=r"b\.parquet: expected the columns and class names of a\.parquet, got others"):
        opened(tmp_path)


def test_missing_package_is_told_in_one_line(tmp_path, monkeypatch):
    path = write_parquet(tmp_path / "a.parquet", {"label": [0]})
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"package pyarrow: pip install 'robustness-testbed\[parquet\]'"):
        opened(path)


def test_damaged_pages_and_empty_cells_are_bad_pictures_and_others_are_read(tmp_path):
    pictures = [encoded(i, 32) for i in range(80)]
    path = write_parquet(
        tmp_path / "a.parquet", {"label": list(range(80))}, [None, b"no picture", *pictures[2:]], group=40
    )
    data = bytearray(path.read_bytes())
    start = data.index(pictures[40]) - 40  # the header of the second group's page of pictures
    data[start : start + 36] = b"\xff" * 36
    path.write_bytes(bytes(data))
    samples = opened(path)
    bad = dict(unreadable(samples))
    assert "empty cell" in bad["a.parquet/0"]
    assert "another kind of file" in bad["a.parquet/1"]
    assert set(bad) == {"a.parquet/0", "a.parquet/1", *(f"a.parquet/{row}" for row in range(40, 80))}
    assert "row group 1 of" in bad["a.parquet/40"]
    assert content_of(samples, all_rows(samples))  # those that cannot be read count as empty


# ---- reading -------------------------------------------------------------------------------------------------


@pytest.fixture(params=[7, 64, 1000])
def rows_of_noise(tmp_path, request):
    """300 pictures in row groups of several sizes, and what each picture is."""
    pictures = [bytes([row % 256, row // 256]) * (50 + row) for row in range(300)]
    path = write_parquet(tmp_path / "a.parquet", {"label": [0] * 300}, pictures, group=request.param)
    return opened(path), pictures


def test_pictures_are_read_in_any_order(rows_of_noise):
    samples, pictures = rows_of_noise
    order = np.random.default_rng(0).permutation(300).tolist()
    for row in [*range(300), *reversed(range(300)), *order]:
        assert samples.read(row) == pictures[row]


def test_several_threads_read_the_same_file(rows_of_noise):
    samples, pictures = rows_of_noise
    order = np.random.default_rng(1).integers(0, 300, 2000).tolist()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(samples.read, order)) == [pictures[row] for row in order]


def test_forked_process_reads_what_its_parent_has_open(rows_of_noise):
    samples, pictures = rows_of_noise
    samples.read(5)
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    with samples.read._hands.lock:  # a thread of the parent is reading while the process is forked
        child = fork.Process(target=lambda: theirs.send([samples.read(row) for row in range(0, 300, 7)]))
        child.start()
    assert ours.poll(60)
    assert ours.recv() == pictures[0:300:7]
    child.join()


def test_pictures_in_order_are_read_once_and_few_are_kept(tmp_path, monkeypatch):
    pictures = [bytes([row]) * 10_000 for row in range(200)]
    path = write_parquet(tmp_path / "a.parquet", {"label": [0] * 200}, pictures)
    monkeypatch.setattr(parquet_reading, "_MOST_BYTES", 400_000)
    openings = []
    original = parquet_reading.open_parquet
    samples = opened(path)
    monkeypatch.setattr(parquet_reading, "open_parquet", lambda path: openings.append(path) or original(path))
    for row in range(200):
        assert samples.read(row) == samples.read(row) == pictures[row]  # once for its digest, once to decode it
    assert len(openings) == 1
    assert samples.read._hands.nbytes <= 400_000
    for row in range(100):  # two places far apart, taken in turns
        assert samples.read(row) == pictures[row]
        assert samples.read(100 + row) == pictures[100 + row]
    assert len(openings) <= 4


def test_fingerprint_and_cache_key_tell_changed_files_apart(tmp_path):
    first = opened(write_parquet(tmp_path / "a.parquet", {"label": [0, 1]}))
    same = opened(write_parquet(tmp_path / "copy" / "a.parquet", {"label": [0, 1]}))
    assert (same.fingerprint, same.cache_salt != first.cache_salt) == (first.fingerprint, True)
    for number, change in enumerate(
        (
            {"columns": {"label": [0, 2]}},
            {"columns": {"label": [0, 1]}, "pictures": [encoded(0), encoded(1) + b"\0"]},
            {"columns": {"label": [0, 1]}, "group": 1},
        )
    ):
        other = opened(write_parquet(tmp_path / str(number) / "a.parquet", **change))
        assert other.fingerprint != first.fingerprint
    swapped = opened(write_parquet(tmp_path / "b" / "a.parquet", {"label": [0, 1]}, [encoded(0), encoded(0)[::-1]]))
    assert content_of(swapped, all_rows(swapped)) != content_of(first, all_rows(first))


def test_empty_cell_cannot_be_read(tmp_path):
    samples = opened(write_parquet(tmp_path / "a.parquet", {"label": [0, 1]}, [encoded(0), None]))
    with pytest.raises(ImageError, match=r"unreadable image a\.parquet/1 in .*: expected a picture, got an empty cell"):
        samples.load(1)
