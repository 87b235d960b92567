"""Unpacks tar and zip archives into a folder, and refuses those that would write anywhere else."""

from __future__ import annotations

import io
import lzma
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


class DamagedArchive(DataError):
    """The archive cannot be read to its end and must be fetched again."""


def is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def unpack(archive: Path, folder: Path, leave_out: Sequence[str] = ()) -> None:
    """Unpack a tar or zip file into `folder`, except for members below a folder named in `leave_out`.

    An archive with an absolute path, a `..`, a link that leads out of the folder, or a device is refused.
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
        # Only errors of the disk have an errno; gzip and bz2 raise a bare OSError for damaged data.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DamagedArchive(f"{archive} is damaged and cannot be unpacked: {type(error).__name__}: {error}") from error


def _unpack_tar(archive: tarfile.TarFile, folder: Path, leave_out: Sequence[str]) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise DataError("unpacking a tar file safely needs Python 3.11.4 or later")
    for member in _shown(archive, str(archive.name)):
        _check(member.name, str(archive.name))
        if not _left_out(member.name, leave_out):
            archive.extract(member, folder, filter="data")
            archive.members.clear()  # type: ignore[attr-defined]  # tarfile would keep a million of them in memory
    _check_end(archive, archive.fileobj)


def _check_end(archive: tarfile.TarFile, stream: Any) -> None:
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
    for member in _shown(archive.infolist(), str(archive.filename)):
        _check(member.filename, str(archive.filename))
        if member.flag_bits & 1:
            raise DataError(f"{archive.filename} needs a password: unpack it by hand")
        if not _left_out(member.filename, leave_out):
            archive.extract(member, folder)  # zipfile writes a link as a small text file, so it cannot lead out


def _shown(members: Any, archive: str) -> Any:
    from tqdm import tqdm

    return tqdm(members, desc=f"unpacking {Path(archive).name}", unit=" files", disable=None)


def _check(name: str, archive: str) -> None:
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
