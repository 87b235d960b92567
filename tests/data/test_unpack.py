"""Archives that try to leave their folder are refused whole."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import tarfile
import zipfile
from functools import partial

import pytest

from testbed.data.unpack import DamagedArchive, find_inside, is_archive, unpack
from testbed.errors import DataError


def tar(path, members, mode="w"):
    """members: name -> bytes, or a TarInfo that is added as it is."""
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


GOOD = {"set/a/1.jpg": b"one", "set/b/2.jpg": b"two"}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("x.tar", "w"),
        ("x.tar.gz", "w:gz"),
        ("x.tgz", "w:gz"),
        ("x.tar.xz", "w:xz"),
        ("x.tar.bz2", "w:bz2"),
        ("plain.tar.gz", "w"),
        ("x.zip", ""),
    ],
)
def test_every_kind_of_archive_is_unpacked(tmp_path, name, mode):
    # ImageNetV2's .tar.gz files are plain tars.
    archive = zipped(tmp_path / name, GOOD) if name.endswith(".zip") else tar(tmp_path / name, GOOD, mode)
    assert is_archive(name)
    unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == GOOD


def test_folders_that_are_no_part_of_the_set_are_left_out(tmp_path):
    unpack(tar(tmp_path / "x.tar", {**GOOD, "set/bb/3.jpg": b""}), tmp_path / "out", leave_out=["b"])
    assert sorted(tree(tmp_path / "out")) == ["set/a/1.jpg", "set/bb/3.jpg"]


@pytest.mark.parametrize("evil", ["../evil", "set/../../evil", "/tmp/evil", "..\\evil", "C:\\evil"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_member_outside_of_the_folder_is_refused(tmp_path, evil, kind):
    make = {"tar": tar, "zip": zipped}[kind]
    archive = make(tmp_path / f"x.{kind}", {evil: b"evil"})
    with pytest.raises(DataError, match=r"was refused: its member .* would lie outside"):
        unpack(archive, tmp_path / "deep" / "out")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize(
    "member",
    [
        link("set/out", "/etc"),
        link("set/out", "../../elsewhere"),
        link("set/out", "/etc/passwd", tarfile.LNKTYPE),
        link("set/out", "../../elsewhere", tarfile.LNKTYPE),
        link("set/pipe", "", tarfile.FIFOTYPE),
        link("set/device", "", tarfile.CHRTYPE),
    ],
    ids=["absolute link", "link up", "absolute hard link", "hard link up", "pipe", "device"],
)
def test_links_that_lead_out_and_devices_are_refused(tmp_path, member):
    with pytest.raises(DataError, match="was refused"):
        unpack(tar(tmp_path / "x.tar", {"x": member}), tmp_path / "out")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_symlink()]


def test_link_inside_the_archive_is_kept(tmp_path):
    archive = tar(tmp_path / "x.tar", {**GOOD, "l": link("set/b/same.jpg", "set/a/1.jpg", tarfile.LNKTYPE)})
    unpack(archive, tmp_path / "out")
    assert tree(tmp_path / "out") == {**GOOD, "set/b/same.jpg": b"one"}


def test_zip_with_a_password_says_so(tmp_path):
    path = zipped(tmp_path / "x.zip", GOOD)
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02") + 8  # the flags of the first entry of the directory
    content[place] |= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="needs a password: unpack it by hand"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["x.tar", "x.tar.gz", "x.zip"])
def test_damaged_archive_is_told_from_a_refused_one(tmp_path, name):
    whole = zipped(tmp_path / name, GOOD) if name.endswith("zip") else tar(tmp_path / name, GOOD, "w:gz")
    whole.write_bytes(whole.read_bytes()[:-60])
    with pytest.raises(DamagedArchive, match="cannot be unpacked"):
        unpack(whole, tmp_path / "out")


STORED = partial(gzip.compress, compresslevel=0)  # a picture's bytes stand in the archive as they are


@pytest.mark.parametrize("leave_out", [(), ("a", "b")])
@pytest.mark.parametrize(
    ("name", "compress", "place"),
    [
        ("x.tar.gz", STORED, b"two"),
        ("x.tar.gz", gzip.compress, -6),  # in the checksum itself
        ("x.tar.xz", lzma.compress, -40),
        ("x.tar.bz2", bz2.compress, -12),
        ("x.tar", bytes, b"set/b/2.jpg"),
    ],
)
def test_one_wrong_byte_is_damage(tmp_path, name, compress, place, leave_out):
    whole = compress(tar(tmp_path / "whole", GOOD).read_bytes())
    archive = bytearray(whole)
    archive[archive.index(place) if isinstance(place, bytes) else place] ^= 1
    (tmp_path / name).write_bytes(archive)
    with pytest.raises(DamagedArchive, match="is damaged and cannot be unpacked"):
        unpack(tmp_path / name, tmp_path / "out", leave_out)


def test_error_of_the_disk_is_no_damage(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    archive = tar(tmp_path / "x.tar.gz", GOOD, "w:gz")
    monkeypatch.setattr(tarfile.TarFile, "makefile", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [(10, 9, "That compression method is not supported"), (8, 1 << 6, "strong encryption")],
    ids=["deflate64", "strong encryption"],
)
def test_zip_that_python_cannot_read_is_one_line(tmp_path, place, value, told):
    path = zipped(tmp_path / "x.zip", GOOD)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + place] = value  # of the first entry of the directory
    path.write_bytes(content)
    with pytest.raises(
        DataError, match=rf"x\.zip cannot be unpacked by Python \({told}.*\): unpack it by hand"
    ) as error:
        unpack(path, tmp_path / "out")
    assert not isinstance(error.value, DamagedArchive)


def test_folder_is_found_under_whatever_it_is_wrapped_in(tmp_path):
    (tmp_path / "datasets" / "x" / "NINCO" / "classes").mkdir(parents=True)
    assert find_inside(tmp_path, "") == tmp_path
    assert find_inside(tmp_path, "datasets") == tmp_path / "datasets"
    assert find_inside(tmp_path, "NINCO/classes") == tmp_path / "datasets" / "x" / "NINCO" / "classes"
    assert find_inside(tmp_path, "other") is None
