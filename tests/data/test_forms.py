from __future__ import annotations

import numpy as np
import pytest

from data.packing import make_folder, make_tar, make_zip, picture, samples_of
from testbed import StandardDataset
from testbed.data.download import find_place
from testbed.errors import DataError

VAL = StandardDataset(name="val", also=("ILSVRC2012_img_val",), labels="imagenet", order_matters=True)
FOLDERS = {
    "n01440764/ILSVRC2012_val_00000293.JPEG": picture(0),
    "n01751748/ILSVRC2012_val_00000001.JPEG": picture(1),
    "n09193705/ILSVRC2012_val_00000002.JPEG": picture(2),
}
FLAT = {name.partition("/")[2]: FOLDERS[name] for name in sorted(FOLDERS, key=lambda name: name.partition("/")[2])}
LABELS = {"00000001": 65, "00000002": 970, "00000293": 0}


def shard(numbers):
    files = {}
    for number in numbers:
        key = f"ILSVRC2012_val_{number}"
        files |= {f"{key}.cls": str(LABELS[number]).encode(), f"{key}.jpg": FLAT[f"{key}.JPEG"]}
    return files


def parquet(path, names_of_pictures=True):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [
        {"bytes": data, "path": name.replace(".JPEG", "_x.JPEG") if not names_of_pictures else name}
        for name, data in FLAT.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"image": rows, "label": [LABELS[name[15:23]] for name in FLAT]}), path)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


FORMS = {
    "folder": lambda root: make_folder(root / "val", FOLDERS),
    "flat": lambda root: make_folder(root / "val", FLAT),
    "val.tar": lambda root: make_tar(root / "val.tar", FOLDERS),
    "val.zip": lambda root: make_zip(root / "val.zip", {f"val/{name}": data for name, data in FOLDERS.items()}),
    "published": lambda root: make_tar(root / "ILSVRC2012_img_val.tar", FLAT),
    "shard": lambda root: make_tar(root / "val.tar", shard(LABELS)),
    "shards": lambda root: [
        make_tar(root / "val" / f"imagenet1k-validation-0{number}.tar", shard([one]))
        for number, one in enumerate(LABELS)
    ],
    "parquet": lambda root: parquet(root / "val-00000-of-00001.parquet"),
    "validation": lambda root: parquet(root / "validation-00000-of-00001.parquet"),
    "snapshot": lambda root: parquet(root / "val" / "data" / "validation-00000-of-00001.parquet"),
}
KINDS = {"folder": "folder", "flat": "folder", "shard": "archive", "shards": "shards"}
KINDS |= dict.fromkeys(("val.tar", "val.zip", "published"), "archive")


@pytest.mark.parametrize("form", FORMS)
def test_a_registered_set_is_the_same_in_every_form(tmp_path, form):
    folder = StandardDataset(path=make_folder(tmp_path / "folder", FOLDERS), labels="imagenet").open([])
    FORMS[form](tmp_path / "data")
    samples = VAL.open([tmp_path / "nothing", tmp_path / "data"])
    assert list(samples.ids) == sorted(FOLDERS)
    assert samples.targets.tolist() == [0, 65, 970]
    assert (samples.label_space, samples.num_classes) == ("imagenet", 1000)
    assert samples.class_folders == folder.class_folders
    for index in range(3):
        assert np.array_equal(samples.load(index), folder.load(index))
        assert samples.read(index) == folder.read(index)
    assert samples.form.split()[0] == KINDS.get(form, "parquet")
    if samples.form.split()[0] != "parquet":  # which tells no sizes of pictures
        assert samples.fingerprint == folder.fingerprint
    assert find_place(VAL, [tmp_path / "data"]) is not None


def test_a_folder_goes_before_parquet_and_parquet_before_an_archive(tmp_path):
    for form, kind in (("published", "archive"), ("parquet", "parquet"), ("folder", "folder")):
        (tmp_path / "val").mkdir(exist_ok=True)  # an empty folder is nothing
        FORMS[form](tmp_path)
        assert VAL.open([tmp_path]).form.split()[0] == kind


def test_other_sets_of_the_same_beginning_are_not_taken(tmp_path):
    parquet(tmp_path / "val-on-paper.parquet")
    parquet(tmp_path / "valley-00000-of-00001.parquet")
    with pytest.raises(DataError, match="dataset 'val' not found"):
        VAL.open([tmp_path])


def test_pictures_without_names_are_refused_where_lists_of_rows_count_them(tmp_path):
    make_tar(tmp_path / "val" / "0.tar", samples_of({"s0": 0, "s1": 65}))
    with pytest.raises(DataError, match=r"expected names of pictures such as ILSVRC2012_val_00000293\.JPEG, got s0"):
        VAL.open([tmp_path])
    assert StandardDataset(name="val", labels="imagenet").open([tmp_path]).targets.tolist() == [0, 65]


@pytest.mark.parametrize(
    ("labels", "targets"), [([0, 1, 199], [6, 11, 988]), ([6, 11, 988], [6, 11, 988]), ([6, 999], None)]
)
def test_the_own_numbers_of_a_set_of_200_classes(tmp_path, labels, targets):
    """6, 11 and 988 are the first two and the last of timm's imagenet_a_indices.txt."""
    make_tar(tmp_path / "imagenet-a" / "0.tar", samples_of({f"s{i}": label for i, label in enumerate(labels)}))
    dataset = StandardDataset(name="imagenet-a", labels="imagenet")
    if targets is not None:
        assert dataset.open([tmp_path]).targets.tolist() == targets
        return
    assert dataset.open([tmp_path]).targets.tolist() == labels  # numbers among the 1000: the audit tells the rest


def test_numbers_that_mean_two_things_are_refused(tmp_path):
    make_tar(tmp_path / "imagenet-a" / "0.tar", samples_of({"s0": 6, "s1": 11}))
    with pytest.raises(DataError, match="may be numbers among the set's 200 classes or among all 1000"):
        StandardDataset(name="imagenet-a", labels="imagenet").open([tmp_path])


def test_some_class_folders_of_an_archive(tmp_path):
    files = {f"real/{name}/a.png": picture(n) for n, name in enumerate(("chair", "vase", "zebra"))}
    make_zip(tmp_path / "real.zip", files)
    dataset = StandardDataset(name="real", classes={"vase": 0, "chair": 2})
    assert dataset.open([tmp_path]).targets.tolist() == [2, 0]
    make_tar(tmp_path / "other" / "0.tar", samples_of({"s0": 0}))
    with pytest.raises(DataError, match="expected class folders, or an archive of them"):
        StandardDataset(name="other", classes={"vase": 0}).open([tmp_path])


def test_a_path_is_told_which_setting_reads_it(tmp_path):
    make_tar(tmp_path / "shards" / "0.tar", samples_of({"s0": 0}))
    with pytest.raises(DataError, match=r"; wds:.*shards reads the shards in it"):
        StandardDataset(path=tmp_path / "shards").open([])
    with pytest.raises(DataError, match=r"expected a folder; tar:.*0\.tar reads it"):
        StandardDataset(path=tmp_path / "shards" / "0.tar").open([])
