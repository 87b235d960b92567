from __future__ import annotations

import io
import tarfile
import zipfile

import numpy as np
import pytest

from data.packing import make_folder, make_tar, make_zip, picture, samples_of
from testbed import StandardDataset
from testbed.data.packed_folders import ArchiveDataset
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError

# ImageNet-A's file names have dots and blanks.
FILES = {
    f"{wnid}/0.0001{number}_digital clock _ x.png": picture(number)
    for number, wnid in enumerate(("n02123045", "n01440764", "n15075141"))
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("wrapping", ["", "imagenet-a/", "./", "data/imagenet-a/"])
@pytest.mark.parametrize("make", [make_tar, make_zip])
def test_an_archive_is_the_same_data_as_its_folder(tmp_path, make, wrapping):
    folder = StandardDataset(path=make_folder(tmp_path / "folder", FILES)).open([])
    strays = {"__MACOSX/n01440764/._a.png": b"?", f"{wrapping}n01440764/._a.png": b"?", f"{wrapping}README.txt": b"x"}
    packed = strays | {f"{wrapping}{name}": data for name, data in FILES.items()}
    samples = ArchiveDataset(make(tmp_path / "packed", packed)).open([])
    assert list(samples.ids) == list(folder.ids) == sorted(FILES)
    assert samples.targets.tolist() == folder.targets.tolist() == [0, 281, 999]
    assert samples.fingerprint == folder.fingerprint
    assert samples.class_folders == folder.class_folders
    for index in range(3):
        assert np.array_equal(samples.load(index), folder.load(index))
        assert samples.read(index) == folder.read(index)


def test_other_labels_of_folders(tmp_path):
    numbers = {f"{label}/a.png": picture() for label in (0, 2, 10)}
    assert ArchiveDataset(make_zip(tmp_path / "a", numbers)).open([]).targets.tolist() == [0, 10, 2]
    flat = ArchiveDataset(make_zip(tmp_path / "b", {"a.png": picture()})).open([])
    assert flat.targets.tolist() == [UNKNOWN]


def test_an_empty_class_folder_would_shift_labels(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("set/", "set/cat/", "set/dog/", "set/eel/"):
            archive.writestr(name, b"")
        for name in ("set/cat/a.png", "set/eel/a.png"):
            archive.writestr(name, picture())
    with pytest.raises(DataError, match="the class folder dog holds no images"):
        ArchiveDataset(tmp_path / "x.zip").open([])


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"a.txt": b"x"}, "no images in .*: expected class folders with jpg, png"),
        ({"a/b.gif": b"x"}, "1 .gif left out"),
        ({"n01440764.tar": b"x"}, "got 1 tar files: unpack it once"),
        (samples_of({"a": 0}), "has labels beside its pictures, as shards have: wds:.* reads it"),
        ({"n01440764/a.png": b"x", "b.png": b"x"}, r"expected images inside class folders, got b\.png"),
    ],
)
def test_archives_without_class_folders_are_told(tmp_path, files, told):
    with pytest.raises(DataError, match=told):
        ArchiveDataset(make_tar(tmp_path / "x.tar", files)).open([])


def test_a_member_that_is_no_picture_is_named(tmp_path):
    samples = ArchiveDataset(make_tar(tmp_path / "x.tar", {"n01440764/a.png": b"no picture"})).open([])
    with pytest.raises(DataError, match=r"unreadable image n01440764/a\.png in .*x\.tar: expected one of JPEG"):
        samples.load(0)


def test_a_later_version_of_a_member_replaces_the_earlier_one(tmp_path):
    path = make_tar(tmp_path / "x.tar", {"0/a.png": b"old"})
    with tarfile.open(path, "a") as archive:
        info = tarfile.TarInfo("0/a.png")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"new"))
    samples = ArchiveDataset(path).open([])
    assert samples.read(0) == b"new"
