from __future__ import annotations

import hashlib

import numpy as np
import pytest

from data.packing import make_folder, make_tar, make_zip, picture
from shared_data import shared_data
from testbed import StandardDataset
from testbed.data.labels import imagenet_wnids
from testbed.data.packed_folders import ArchiveDataset
from testbed.data.validation_names import validation_labels
from testbed.errors import DataError

# The first labels of tensorflow_datasets' validation_labels.txt; number 293 is a tench in the pages of the hub.
FLAT = {f"ILSVRC2012_val_{number:08d}.JPEG": picture(number) for number in (1, 2, 293)}
IDS = [
    "n01440764/ILSVRC2012_val_00000293.JPEG",
    "n01751748/ILSVRC2012_val_00000001.JPEG",
    "n09193705/ILSVRC2012_val_00000002.JPEG",
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_labels_are_the_published_ones():
    labels = validation_labels()
    assert labels[:10].tolist() == [65, 970, 230, 809, 516, 57, 334, 415, 674, 332]
    assert np.bincount(labels).tolist() == [50] * 1000
    digest = "f5350687a5a78da7e645040d352767bc06c1c99d9dfb34f1623b2d1a1d046b76"
    assert hashlib.sha256(labels.astype("<u2").tobytes()).hexdigest() == digest
    lines = "".join(f"{imagenet_wnids()[label]}\n" for label in labels)  # as in the wheel of tensorflow-datasets
    published = "313fc3f23c864dde9183c9a368809065765dd1b657a6904fded44e3e46d34604"
    assert hashlib.sha256(lines.encode()).hexdigest() == published


def test_flat_validation_pictures_are_the_same_data_as_in_class_folders(tmp_path):
    sorted_into_folders = {i: FLAT[i.partition("/")[2]] for i in IDS}
    named = {i.partition("/")[2].replace(".JPEG", f"_{i[:9]}.JPEG"): data for i, data in sorted_into_folders.items()}
    wrapped = {f"ILSVRC2012_img_val/{name}": data for name, data in FLAT.items()}
    opened = [
        StandardDataset(path=make_folder(tmp_path / "folders", sorted_into_folders), labels="imagenet").open([]),
        StandardDataset(path=make_folder(tmp_path / "flat", FLAT), labels="imagenet").open([]),
        StandardDataset(path=make_folder(tmp_path / "named", named), labels="if-any").open([]),
        ArchiveDataset(make_tar(tmp_path / "flat.tar", FLAT)).open([]),
        ArchiveDataset(make_zip(tmp_path / "wrapped.zip", wrapped)).open([]),
    ]
    for samples in opened:
        assert list(samples.ids) == IDS
        assert samples.targets.tolist() == [0, 65, 970]
        assert (samples.label_space, samples.fingerprint) == ("imagenet", opened[0].fingerprint)
        for index in range(3):
            assert np.array_equal(samples.load(index), opened[0].load(index))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["ILSVRC2012_val_00050001.JPEG"], "expected validation pictures numbered 1 to 50000"),
        (["ILSVRC2012_val_00000000.JPEG"], "expected validation pictures numbered 1 to 50000"),
        (["ILSVRC2012_val_00000001_n01440764.JPEG"], "names n01440764, but its number is of n01751748"),
        (["a_n00000000.JPEG"], "names n00000000, but no class of ImageNet"),
        (["ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000001.jpg"], "expected each picture once"),
        (["ILSVRC2012_val_00000001.JPEG", "other.JPEG"], "expected one folder per class"),
    ],
)
def test_names_that_contradict_are_refused(tmp_path, names, told):
    folder = make_folder(tmp_path / "flat", dict.fromkeys(names, b"x"))
    with pytest.raises(DataError, match=told):
        StandardDataset(path=folder).open([])


def devkit(folder, labels):
    """Of ILSVRC2012: ids in an order of their own, here backwards, with one entry for a group of classes."""
    from scipy.io import savemat

    wnids = imagenet_wnids()
    kind = [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("num_children", "f8")]
    synsets = [(1000 - place, wnid, 0) for place, wnid in enumerate(wnids)] + [(1001, "n00001740", 2)]
    (folder / "data").mkdir(parents=True)
    savemat(folder / "data" / "meta.mat", {"synsets": np.array(synsets, dtype=kind)[:, None]})
    text = "".join(f"{1000 - label}\n" for label in labels)
    (folder / "data" / "ILSVRC2012_validation_ground_truth.txt").write_text(text)


def test_a_devkit_beside_the_archive_must_agree(tmp_path):
    path = make_tar(tmp_path / "agrees" / "ILSVRC2012_img_val.tar", FLAT)
    devkit(path.parent / "ILSVRC2012_devkit_t12", validation_labels())
    assert ArchiveDataset(path).open([]).targets.tolist() == [0, 65, 970]
    path = make_tar(tmp_path / "differs" / "ILSVRC2012_img_val.tar", FLAT)
    devkit(path.parent / "ILSVRC2012_devkit_t12", np.roll(validation_labels(), 1))
    with pytest.raises(DataError, match=r"ground_truth\.txt: expected the labels of the 50,000 validation pictures"):
        ArchiveDataset(path).open([])
    (path.parent / "ILSVRC2012_devkit_t12" / "data" / "meta.mat").write_bytes(b"no matrix")
    with pytest.raises(DataError, match=r"the devkit .* cannot be read"):
        ArchiveDataset(path).open([])


def test_the_sample_of_the_published_archive():
    samples = ArchiveDataset(shared_data("hub-samples", "archives", "ILSVRC2012_img_val.tar")).open([])
    assert (list(samples.ids), samples.targets.tolist()) == (IDS, [0, 65, 970])
