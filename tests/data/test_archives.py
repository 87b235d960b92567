from __future__ import annotations

import io
import os
import tarfile
import zipfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from data.packing import make_tar, make_zip, picture
from testbed.data import archives
from testbed.data.archives import open_archive
from testbed.errors import DataError, ImageError

FILES = {f"n01440764/{i}.png": picture(i) for i in range(40)} | {"labels.txt": b"1"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def contents(archive):
    return {member.name: archive.read(member) for member in archive.members}


@pytest.mark.parametrize("how", ["tar", "stored", "deflated"])
def test_every_member_is_read_as_it_was_packed(tmp_path, how):
    how_zip = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}
    make = (lambda p: make_tar(p, FILES)) if how == "tar" else (lambda p: make_zip(p, FILES, how_zip[how]))
    archive = open_archive(make(tmp_path / "x"))
    assert contents(archive) == FILES
    assert archive.labels == {"labels.txt": b"1"}


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_letters_beyond_ascii(tmp_path, kind):
    name = f"{'långt ' * 60}/ä.png" if kind != tarfile.USTAR_FORMAT else f"{'d' * 90}/{'n' * 90}.png"
    with tarfile.open(tmp_path / "x.tar", "w", format=kind) as archive:
        info = tarfile.TarInfo(name)
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
    assert contents(open_archive(tmp_path / "x.tar")) == {name: b"abc"}


def test_threads_and_processes_read_the_same(tmp_path):
    for path in (make_tar(tmp_path / "x.tar", FILES), make_zip(tmp_path / "x.zip", FILES)):
        archive = open_archive(path)
        members = list(archive.members) * 20
        expected = [FILES[member.name] for member in members]
        for pool in (ThreadPoolExecutor(8), ProcessPoolExecutor(2)):
            with pool:
                assert list(pool.map(archive.read, members, chunksize=50)) == expected


def test_no_file_stays_open(tmp_path):
    archive = open_archive(make_tar(tmp_path / "x.tar", FILES))
    before = len(os.listdir("/proc/self/fd"))
    contents(archive)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_index_is_made_once(tmp_path, monkeypatch):
    path = make_tar(tmp_path / "x.tar", FILES)
    first = open_archive(path)

    def none_needed(*given):
        raise AssertionError("listed again")

    monkeypatch.setattr(archives, "_tar_members", none_needed)
    assert open_archive(path) == first
    (kept,) = (tmp_path / "cache").rglob("*.json")
    # A damaged index is not believed.
    kept.write_bytes(kept.read_bytes().replace(b"n01440764/0.png", b"n01440764/1.png"))
    with pytest.raises(DataError, match="listed again"):
        open_archive(path)


def test_a_file_of_the_same_size_and_time_is_listed_again(tmp_path):
    path = make_tar(tmp_path / "x.tar", {"a.png": b"one"})
    old = os.stat(path)
    open_archive(path)
    make_tar(path, {"b.png": b"two"})
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert contents(open_archive(path)) == {"b.png": b"two"}


def test_an_archive_that_changes_under_a_run_is_told(tmp_path):
    path = make_tar(tmp_path / "x.tar", FILES)
    archive = open_archive(path)
    make_tar(path, {"other.png": b"x"})
    with pytest.raises(DataError, match="has been written since its members were listed"):
        archive.read(archive.members[0])


def test_links_inside_a_tar_are_followed_and_others_told(tmp_path):
    (tmp_path / "a.png").write_bytes(b"abc")
    os.link(tmp_path / "a.png", tmp_path / "hard.png")
    (tmp_path / "soft.png").symlink_to("a.png")
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for name in ("soft.png", "a.png", "hard.png"):
            archive.add(tmp_path / name, f"d/{name}")
    assert contents(open_archive(tmp_path / "x.tar")) == dict.fromkeys(("d/a.png", "d/hard.png", "d/soft.png"), b"abc")
    with tarfile.open(tmp_path / "y.tar", "w") as archive:
        archive.add(tmp_path / "soft.png", "soft.png")
    with pytest.raises(DataError, match=r"soft\.png is a link to a\.png, which is not in it: pack with `tar -h`"):
        open_archive(tmp_path / "y.tar")


# ---- bad files ---------------------------------------------------------------------------------------------


def encrypted(path):
    make_zip(path, {"a.png": b"abc"})
    data = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # the flag bits, APPNOTE.TXT 4.3.7 and 4.3.12
        data[data.index(mark) + offset] |= 1
    path.write_bytes(bytes(data))


def cut(path, size):
    make_tar(path, FILES)
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda p: make_tar(p, FILES, "w:gz"), "is compressed by gzip, .* Unpack it once: `tar xf"),
        (lambda p: make_tar(p, FILES, "w:xz"), "is compressed by xz"),
        (lambda p: p.write_bytes(b"no archive at all" * 99), "is no whole tar file, fetch or pack it again"),
        (lambda p: p.write_bytes(b""), "is no whole tar file"),
        (lambda p: cut(p, 5000), "is no whole tar file, .*unexpected end of data"),
        (lambda p: cut(p, 2048), "is no whole tar file|ends without the mark of its end"),
        (lambda p: p.write_bytes(make_zip(p, FILES).read_bytes()[:3000]), "is no whole zip file"),
        (encrypted, "needs a password: unpack it by hand"),
        (lambda p: make_zip(p, FILES, zipfile.ZIP_LZMA), "is packed in a way that few programs read"),
        (lambda p: make_tar(p, {"../a.png": b"x"}), "was refused: its member '../a.png' would lie outside"),
        (lambda p: make_zip(p, {"/etc/a.png": b"x"}), "would lie outside"),
        (lambda p: make_zip(p, {"a.png": bytes(1 << 27)}), "was refused: it unpacks to more than 67,108,864 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_in_any_order_is_told_in_one_line(tmp_path, make, told):
    make(tmp_path / "x")
    with pytest.raises(DataError, match=told) as error:
        open_archive(tmp_path / "x")
    assert "\n" not in str(error.value) and str(tmp_path / "x") in str(error.value)


def test_a_tar_cut_between_two_members_is_told(tmp_path):
    size = 512 + 512 * -(-len(FILES["n01440764/0.png"]) // 512)  # a header and the blocks of one picture
    cut(tmp_path / "x.tar", size)
    with pytest.raises(DataError, match="ends without the mark of its end, so it was probably cut short"):
        open_archive(tmp_path / "x.tar")
    with (tmp_path / "x.tar").open("ab") as file:
        file.write(bytes(1024))  # what the message says
    assert len(open_archive(tmp_path / "x.tar").members) == 1


def test_a_damaged_member_of_a_zip_is_an_unreadable_picture(tmp_path):
    path = make_zip(tmp_path / "x.zip", {"a.png": b"abcdef" * 100}, zipfile.ZIP_STORED)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"abcdef", b"abcdeg", 1))
    archive = open_archive(path)
    with pytest.raises(ImageError, match=r"a\.png in .* is damaged"):
        archive.read(archive.members[0])


def test_a_negative_size_does_not_lead_round_in_a_circle(tmp_path):
    """CVE-2025-8194: tarfile of Python before 3.13.6 never came to an end of such a file."""
    data = bytearray(make_tar(tmp_path / "x.tar", {"a.png": b"abc", "b.png": b"abc"}).read_bytes())
    data[124:136] = b"\xff" * 11 + b"\x00"  # base-256: -256
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    (tmp_path / "x.tar").write_bytes(bytes(data))
    with pytest.raises(DataError, match="is no whole tar file"):
        open_archive(tmp_path / "x.tar")
