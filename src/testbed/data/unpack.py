"""Unpacks tar and zip archives into a folder, and refuses those that would write anywhere else."""

from __future__ import annotations

import errno
import io
import lzma
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from testbed.errors import DataError

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
_DAMAGED = (
    *(tarfile.ReadError, tarfile.CompressionError, zipfile.BadZipFile),
    *(lzma.LZMAError, zlib.error, EOFError, OverflowError),
)
_BLOCK = 1 << 20
# What an archive may unpack to: pictures hardly compress, labels and lists by a factor of ten or twenty.
_MOST_RATIO = 100
_ALWAYS = 1 << 26  # bytes; small archives of text compress by more


class DamagedArchive(DataError):
    """The archive cannot be read to its end and must be fetched again."""


def is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def unpack(archive: Path, folder: Path, leave_out: Sequence[str] = ()) -> None:
    """Unpack a tar or zip file into `folder`, except for members below a folder named in `leave_out`.

    An archive with an absolute path, a `..`, a link that leads out of the folder, or a device is refused; so is one
    that unpacks to a hundred times its size, or to more than the disk has room for.
    """
    try:
        if archive.suffix.lower() == ".zip":
            with zipfile.ZipFile(archive) as opened:
                _unpack_zip(opened, folder, leave_out)
        else:
            # The mode is left open, so that tarfile detects the compression: some .tar.gz are plain tars.
            with tarfile.open(archive) as opened_tar:
                _unpack_tar(opened_tar, folder, leave_out)
    except tarfile.FilterError as error:
        raise DataError(f"{archive} was refused: {error}") from error
    except RuntimeError as error:  # a compression or encryption that zipfile does not support
        raise DataError(f"{archive} cannot be unpacked by Python ({error}): unpack it by hand") from error
    except (*_DAMAGED, OSError) as error:
        # Only errors of the disk have an errno; gzip and bz2 raise a bare OSError for damaged data. EINVAL is that of a
        # zip that says a member begins before the file.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise DamagedArchive(f"{archive} is damaged and cannot be unpacked: {told}") from error


def _unpack_tar(archive: tarfile.TarFile, folder: Path, leave_out: Sequence[str]) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise DataError("unpacking a tar file safely needs Python 3.11.4 or later")
    size = DeclaredSize(Path(str(archive.name)))
    for member in _shown(archive, str(archive.name)):
        check_name(member.name, str(archive.name))
        size.add(member.size)
        if not _left_out(member.name, leave_out):
            archive.extract(member, folder, filter="data")
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep a million of them in memory
    check_end(archive, archive.fileobj)


def check_end(archive: tarfile.TarFile, stream: Any) -> None:
    """Raise tarfile.ReadError unless the archive ends where its last member does.

    tarfile itself does not notice: it stops at the first block that is no member, and before a stream's checksum.
    """
    while stream.read(_BLOCK):
        pass
    if isinstance(stream, io.BufferedReader):  # not compressed, so without a checksum that reading to the end checks
        stream.seek(archive.offset)
        if any(stream.read(tarfile.BLOCKSIZE)):
            raise tarfile.ReadError(f"expected a member or the end at byte {archive.offset:,}, got neither")


def _unpack_zip(archive: zipfile.ZipFile, folder: Path, leave_out: Sequence[str]) -> None:
    size = DeclaredSize(Path(str(archive.filename)))
    for member in archive.infolist():  # before anything is written: zipfile reads no more of a member than it declares
        size.add(member.file_size)
    size.check_room(folder)
    for member in _shown(archive.infolist(), str(archive.filename)):
        check_name(member.filename, str(archive.filename))
        if member.flag_bits & 1:
            raise DataError(f"{archive.filename} needs a password: unpack it by hand")
        if not _left_out(member.filename, leave_out):
            archive.extract(member, folder)  # zipfile writes a link as a small text file, so it cannot lead out


class DeclaredSize:
    """How much an archive declares to hold, compared with its own size as members are added."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self._bytes = 0
        self._most = max(_MOST_RATIO * archive.stat().st_size, _ALWAYS)

    def add(self, size: int) -> None:
        self._bytes += size + tarfile.BLOCKSIZE  # the block of its name: a million empty files are something, too
        if self._bytes > self._most:
            raise DataError(
                f"{self._archive} was refused: it unpacks to more than {self._most:,} bytes, too many for its size"
            )

    def check_room(self, folder: Path) -> None:
        there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        free = shutil.disk_usage(there).free
        if self._bytes > free:
            raise DataError(f"no room to unpack {self._archive}: it needs {self._bytes:,} bytes, {free:,} are free")


def _shown(members: Any, archive: str) -> Any:
    from tqdm import tqdm

    return tqdm(members, desc=f"unpacking {Path(archive).name}", unit=" files", disable=None)


def check_name(name: str, archive: str) -> None:
    """Refuse a member whose path would lie outside of the folder, on any system: `\\` and drives count too."""
    parts = name.replace("\\", "/").split("/")
    if parts[0] == "" or ".." in parts or PureWindowsPath(name).drive:
        raise DataError(f"{archive} was refused: its member '{name}' would lie outside of the folder it is unpacked in")


def _left_out(name: str, leave_out: Sequence[str]) -> bool:
    return any(f"/{name}/".find(f"/{folder}/") >= 0 for folder in leave_out)


def find_inside(folder: Path, inside: str) -> Path | None:
    """The path `inside` of an unpacked archive, also if the archive wraps it in one or two more folders; or None."""
    if not inside:
        return folder
    for pattern in (inside, f"*/{inside}", f"*/*/{inside}"):
        matches = sorted(folder.glob(pattern))
        if matches:
            return matches[0]
    return None
