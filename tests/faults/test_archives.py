"""Archives that unpack to far more than they are: refused before they fill the disk."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections import namedtuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.fuzzing import fuzz_settings
from testbed.data import unpack as unpacking
from testbed.data.unpack import unpack
from testbed.errors import DataError

MEGABYTE = bytes(1 << 20)


def zip_bomb(path, megabytes):
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("set/zeros", "w", force_zip64=True) as stream,
    ):
        for _ in range(megabytes):
            stream.write(MEGABYTE)
    return path


def tar_bomb(path, megabytes):
    with tarfile.open(path, "w:gz") as archive:
        for i in range(megabytes):
            info = tarfile.TarInfo(f"set/{i}")
            info.size = len(MEGABYTE)
            archive.addfile(info, io.BytesIO(MEGABYTE))
    return path


def unpacked_bytes(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) if folder.exists() else 0


@pytest.mark.parametrize(("name", "make"), [("x.zip", zip_bomb), ("x.tar.gz", tar_bomb)])
def test_an_archive_that_unpacks_to_300_megabytes_from_300_kilobytes_is_refused(tmp_path, name, make):
    archive = make(tmp_path / name, 300)
    assert archive.stat().st_size < 1 << 20
    with pytest.raises(DataError, match="was refused: it unpacks to more than 67,108,864 bytes") as error:
        unpack(archive, tmp_path / "out")
    assert "\n" not in str(error.value)
    assert unpacked_bytes(tmp_path / "out") <= 1 << 26
    if name == "x.zip":  # its list is read before anything is written
        assert not (tmp_path / "out").exists()


def test_empty_files_count_too(tmp_path):
    with tarfile.open(tmp_path / "x.tar.xz", "w:xz") as archive:
        for i in range(1 << 10):
            archive.addfile(tarfile.TarInfo(f"{i}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "_ALWAYS", 1 << 17)
        patch.setattr(unpacking, "_MOST_RATIO", 1)
        with pytest.raises(DataError, match="was refused"):
            unpack(tmp_path / "x.tar.xz", tmp_path / "out")


def test_an_archive_that_the_disk_has_no_room_for_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    archive = zip_bomb(tmp_path / "x.zip", 30)
    monkeypatch.setattr("shutil.disk_usage", lambda place: namedtuple("Usage", "free")(free=1 << 20))
    with pytest.raises(DataError, match=r"no room to unpack .*: it needs 31,457,792 bytes, 1,048,576 are free"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "make"), [("x.zip", zip_bomb), ("x.tar.gz", tar_bomb)])
def test_archives_that_compress_well_are_unpacked_whole(tmp_path, name, make):
    unpack(make(tmp_path / name, 20), tmp_path / "out")
    assert unpacked_bytes(tmp_path / "out") == 20 << 20


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    with zipfile.ZipFile(folder / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/b.txt", "text" * 50)
        archive.writestr("a/c.txt", "more")
    for ending in ("", ".gz", ".bz2", ".xz"):
        with tarfile.open(folder / f"x.tar{ending}", f"w:{ending[1:]}") as archive:
            archive.add(folder / "x.zip", "a/b.zip")
    return folder


def test_a_zip_that_says_a_member_begins_before_the_file_is_damaged(small, tmp_path):
    content = bytearray((small / "x.zip").read_bytes())
    content[212] = 1  # found by the test below
    (tmp_path / "x.zip").write_bytes(bytes(content[:217]))
    with pytest.raises(DataError, match="is damaged and cannot be unpacked"):
        unpack(tmp_path / "x.zip", tmp_path / "out")


@fuzz_settings(150)
@given(data=st.data())
def test_torn_archives_are_unpacked_or_refused_in_one_line(small, tmp_path_factory, data):
    path = data.draw(st.sampled_from(sorted(small.iterdir())))
    content = bytearray(path.read_bytes()[: data.draw(st.integers(0, path.stat().st_size))])
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("torn")
    (folder / path.name).write_bytes(bytes(content))
    told = ""
    try:
        unpack(folder / path.name, folder / "out")
    except DataError as error:
        told = str(error)
    assert "\n" not in told
    assert {p.name for p in folder.iterdir()} <= {path.name, "out"}
    assert unpacked_bytes(folder / "out") < 1 << 20
