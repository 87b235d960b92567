from __future__ import annotations

import io
import json

import numpy as np
import pytest

from data.packing import make_tar, picture, samples_of
from shared_data import shared_data
from testbed.data.labels import imagenet_wnids
from testbed.data.samples import UNKNOWN
from testbed.data.shard_files import shard_files
from testbed.data.shards import ShardDataset
from testbed.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def opened(path, labels="auto"):
    return ShardDataset(str(path), labels).open([])


def array(*values):
    file = io.BytesIO()
    np.save(file, np.array(values))
    return file.getvalue()


def one(**fields):
    """A sample: its picture and further files."""
    return {"a.png": picture()} | {f"a.{name}": data for name, data in fields.items()}


# ---- which files ---------------------------------------------------------------------------------------------


@pytest.fixture
def numbered(tmp_path):
    for number in range(12):
        make_tar(tmp_path / "set" / f"val-{number}.tar", samples_of({f"s{number:02d}": number}, number))
    return tmp_path / "set"


@pytest.mark.parametrize("text", ["", "/val-*.tar", "/val-{0..11}.tar", "/*.tar"])
def test_shards_come_in_the_order_of_their_numbers(numbered, text):
    assert opened(f"{numbered}{text}").targets.tolist() == list(range(12))


def test_braces_list_and_count(numbered, tmp_path):
    assert opened(f"{numbered}/val-{{10,3}}.tar").targets.tolist() == [10, 3]
    make_tar(tmp_path / "padded" / "000.tar", samples_of({"a": 1}))
    make_tar(tmp_path / "padded" / "001.tar", samples_of({"b": 1}))
    assert len(opened(f"{tmp_path}/padded/{{000..001}}.tar")) == 2


def test_the_layout_of_clip_benchmark(tmp_path):
    for number in range(11):
        make_tar(tmp_path / "test" / f"{number}.tar", samples_of({f"s{number:07d}": number % 3}, number))
    (tmp_path / "test" / "nshards.txt").write_text("11\n")
    # Names of ImageNet-R's first three classes as OpenAI calls them are 1, 2 and 4 by name.
    (tmp_path / "classnames.txt").write_text("goldfish\ngreat white shark\nhammerhead shark\n")
    samples = opened(tmp_path)
    assert samples.targets.tolist() == [(1, 2, 4)[number % 3] for number in range(11)]
    assert samples.ids[10] == "s0000010.png"
    (tmp_path / "test" / "7.tar").unlink()
    with pytest.raises(DataError, match=r"1 of 11 shards are missing: 7\.tar"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/val-{0..12}.tar", r"shard .*val-12\.tar does not exist"),
        ("/nothing-*.tar", "no shards at"),
        ("/val-{0..x}.tar", "expected a range"),
        ("/val-{0..999999999}.tar", "expected a range of at most"),
    ],
)
def test_a_missing_shard_is_named(numbered, text, told):
    with pytest.raises(DataError, match=told):
        shard_files(f"{numbered}{text}")


def test_a_gap_among_numbers_is_a_missing_shard(numbered):
    (numbered / "val-5.tar").unlink()
    for text in ("", "/*.tar"):
        with pytest.raises(DataError, match=r"1 of the shards val-.* are missing: number 5"):
            shard_files(f"{numbered}{text}")
    for number in (0, 2):
        make_tar(numbered / "of" / f"x-0000{number}-of-00003.tar", {})
    with pytest.raises(DataError, match="missing: number 1"):
        shard_files(f"{numbered}/of")


def test_shards_of_two_sets_are_not_mixed(numbered):
    make_tar(numbered / "train-0.tar", samples_of({"t": 0}))
    with pytest.raises(DataError, match=r"expected the shards of one set, got train-#\.tar, val-#\.tar"):
        shard_files(str(numbered))


# ---- samples -------------------------------------------------------------------------------------------------


def test_keys_end_at_the_first_dot_and_fields_are_in_any_case(tmp_path):
    files = {"d.x/a.cls": b"3", "d.x/a.PNG": picture(), "__meta__/x.png": b"?", "README": b"?", ".hidden.png": b"?"}
    samples = opened(make_tar(tmp_path / "0.tar", files))
    assert (list(samples.ids), samples.targets.tolist()) == (["d.x/a.PNG"], [3])


def test_keys_that_every_shard_uses_get_its_name(tmp_path):
    for number in range(2):
        make_tar(tmp_path / f"{number}.tar", samples_of({"000": number}, number))
    assert list(opened(tmp_path).ids) == ["0/000.png", "1/000.png"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a.png": b"", "b.png": b"", "a.cls": b"0", "b.cls": b"1"}, "the files of the sample a do not stand side by"),
        ({"a.png": b"", "a.PNG": b"", "a.cls": b"0"}, r"the sample a has two files \.png"),
        ({"a.png": b"", "a.jpg": b"", "a.cls": b"0"}, "expected one picture of the sample a, got"),
        ({"a.cls": b"0"}, "expected one picture of the sample a, got cls"),
        ({"README": b"x"}, "no samples in"),
        ({"a.png": b""}, "no sample has a label: expected .cls"),
        ({"a.png": b"", "a.cls": b"0", "b.png": b""}, "expected a label for every picture, b has none"),
        (one(cls=b"0", json=b'{"label": 1}'), r"expected one label of a, got 0 in \.cls and 1 in \.json"),
        (one(cls=b""), r"the label a\.cls cannot be read: it is empty"),
        (one(json=b"{"), r"the label a\.json cannot be read"),
        (one(json=b'{"label": 1.5}'), r"the label a\.json cannot be read: expected a number"),
        (one(npy=b"\x93NUMPY"), r"the label a\.npy cannot be read"),
        (one(npy=array(1.5)), r"a\.npy: expected labels that are whole"),
        (one(txt=b"a photograph of something"), "expected wnids or names of ImageNet's classes as labels"),
        (one(cls=b"-5"), "expected labels that are whole numbers"),
        (one(cls=b"9999999999"), "expected labels that are whole numbers"),
    ],
)
def test_broken_samples_are_told_in_one_line(tmp_path, files, told):
    with pytest.raises(DataError, match=told) as error:
        opened(make_tar(tmp_path / "x.tar", files))
    assert "\n" not in str(error.value) and str(tmp_path) in str(error.value)


# ---- labels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "target"),
    [
        (dict(cls=b"7\n"), 7),
        (dict(json=b'{"label": 7, "filename": "x"}'), 7),
        (dict(json=b"7"), 7),
        (dict(cls=b"7", txt=b"a caption"), 7),
        (dict(txt=b"7"), 7),
        (dict(cls=b"n01440764"), 0),
        (dict(txt=b"tench"), 0),
        (dict(cls=b"-1"), UNKNOWN),
    ],
)
def test_labels_in_every_kind_of_file(tmp_path, fields, target):
    assert opened(make_tar(tmp_path / "x.tar", one(**fields))).targets.tolist() == [target]


def test_several_labels_as_marks_and_as_numbers(tmp_path):
    marks = {"a.png": picture(0), "a.npy": array(0, 1, 1, 0), "b.png": picture(1), "b.npy": array(0, 0, 0, 0)}
    dataset = ShardDataset(str(make_tar(tmp_path / "marks.tar", marks)))
    assert dataset.open([]).targets.tolist() == [1, UNKNOWN]
    assert dataset.several_labels() == {"a.png": (1, 2)}
    numbers = {"a.png": picture(0), "a.npy": array(3, 0), "b.png": picture(1), "b.npy": array(2)}
    dataset = ShardDataset(str(make_tar(tmp_path / "numbers.tar", numbers)))
    assert dataset.open([]).targets.tolist() == [3, 2]
    assert dataset.several_labels() == {"a.png": (3, 0)}


def test_labels_beyond_the_list_of_names_are_refused(tmp_path):
    (tmp_path / "classnames.txt").write_text("cat\ndog\n")
    path = make_tar(tmp_path / "x.tar", samples_of({"a": 1}))
    assert opened(path).num_classes == 2
    make_tar(path, samples_of({"a": 2}))
    with pytest.raises(DataError, match="expected labels that are whole numbers from 0 to 1"):
        opened(path)


def test_the_own_numbers_of_imagenet_a(tmp_path):
    """Places 0, 1 and 199 of the 200 wnids in order, as in timm's imagenet_a_indices.txt."""
    path = make_tar(tmp_path / "x.tar", samples_of({"a": 0, "b": 1, "c": 199}))
    assert opened(path, "imagenet-a").targets.tolist() == [6, 11, 988]


def test_class_folders_in_keys_are_labels_where_there_are_no_others(tmp_path):
    samples = opened(make_tar(tmp_path / "x.tar", {"n01443537/a.png": picture(), "n01440764/b.png": picture(1)}))
    assert list(samples.ids) == ["n01440764/b.png", "n01443537/a.png"]
    assert samples.targets.tolist() == [0, 1]
    assert np.array_equal(samples.load(0), samples.load(0)) and samples.read(0) == picture(1)


def test_validation_pictures_are_the_same_data_as_in_class_folders(tmp_path):
    """Keys and fields as timm/imagenet-1k-wds has them; 65 is the published label of the first picture."""
    key, extra = "ILSVRC2012_val_00000001", {"label": 65, "filename": "n01751748/ILSVRC2012_val_00000001.JPEG"}
    files = {f"{key}.cls": b"65", f"{key}.jpg": picture(), f"{key}.json": json.dumps(extra).encode()}
    samples = opened(make_tar(tmp_path / "imagenet1k-validation-00.tar", files))
    assert list(samples.ids) == [f"{imagenet_wnids()[65]}/{key}.JPEG"]
    assert (samples.label_space, samples.num_classes) == ("imagenet", 1000)
    files |= {f"{key}.cls": b"66", f"{key}.json": b"{}"}
    with pytest.raises(DataError, match=r"has the label 66, its name says 65"):
        opened(make_tar(tmp_path / "imagenet1k-validation-00.tar", files))


def test_the_samples_of_published_layouts():
    folder = shared_data("hub-samples", "wds")
    assert opened(folder).targets.tolist() == [6, 11, 13, 6, 11, 13]  # stingray, goldfinch, junco
    assert opened(folder / "imagenet1k-validation-00.tar").targets.tolist() == [0, 26]
