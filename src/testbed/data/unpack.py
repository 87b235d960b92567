"""Archives into a folder, and nothing of them anywhere else."""

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
    """The file cannot be read to its end, so that it must be fetched again."""


def is_archive(name: str) -> bool:
    return name.lower().endswith(ARCHIVES)


def unpack(archive: Path, folder: Path, leave_out: Sequence[str] = ()) -> None:
    """Every member of a tar or zip file into `folder`, but those below the folders of `leave_out`.

    A member with an absolute path or `..`, a link that leads out, or a device is refused, and with it the archive.
    """
    try:
        if archive.suffix.lower() == ".zip":
            with zipfile.ZipFile(archive) as opened:
                _unpack_zip(opened, folder, leave_out)
        else:
            with tarfile.open(archive) as opened_tar:  # finds the compression itself: some .tar.gz are plain tars
                _unpack_tar(opened_tar, folder, leave_out)
    except tarfile.FilterError as error:
        raise DataError(f"{archive} was refused: {error}") from error
    except RuntimeError as error:  # a way of packing or locking that zipfile does not know
        raise DataError(f"{archive} cannot be unpacked by Python ({error}): unpack it by hand") from error
    except (*_DAMAGED, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk: gzip and bz2 give theirs no number
            raise
        raise DamagedArchive(f"{archive} is damaged and cannot be unpacked: {type(error).__name__}: {error}") from error


def _unpack_tar(archive: tarfile.TarFile, folder: Path, leave_out: Sequence[str]) -> None:
    if not hasattr(tarfile, "data_filter"):
        raise DataError("unpacking a tar file safely needs Python 3.11.4 or later")
    for member in _shown(archive, str(archive.name)):
        _check(member.name, str(archive.name))
        if not _left_out(member.name, leave_out):
            archive.extract(member, folder, filter="data")
            archive.members.clear()  # type: ignore[attr-defined]  # a million of them would stay in memory
    _check_end(archive, archive.fileobj)


def _check_end(archive: tarfile.TarFile, stream: Any) -> None:
    """tarfile stops at the first block that is no member, and before the checksum of a compressed stream."""
    while stream.read(_BLOCK):
        pass
    if isinstance(stream, io.BufferedReader):  # not compressed, so that it has no checksum
        stream.seek(archive.offset)
        if any(stream.read(tarfile.BLOCKSIZE)):
            raise tarfile.ReadError(f"expected a member or the end at byte {archive.offset:,}, got neither")


def _unpack_zip(archive: zipfile.ZipFile, folder: Path, leave_out: Sequence[str]) -> None:
    for member in _shown(archive.infolist(), str(archive.filename)):
        _check(member.filename, str(archive.filename))
        if member.flag_bits & 1:
            raise DataError(f"{archive.filename} needs a password: unpack it by hand")
        if not _left_out(member.filename, leave_out):
            archive.extract(member, folder)  # a link comes as a small file, never as a link


def _shown(members: Any, archive: str) -> Any:
    from tqdm import tqdm

    return tqdm(members, desc=f"unpacking {Path(archive).name}", unit=" files", disable=None)


def _check(name: str, archive: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if parts[0] == "" or ".." in parts or PureWindowsPath(name).drive:
        raise DataError(f"{archive} was refused: its member '{name}' would lie outside of the folder it is unpacked in")


def _left_out(name: str, leave_out: Sequence[str]) -> bool:
    return any(f"/{name}/".find(f"/{folder}/") >= 0 for folder in leave_out)


def find_inside(folder: Path, inside: str) -> Path | None:
    """The path `inside` below an unpacked archive, whether or not it is wrapped in one or two further folders."""
    if not inside:
        return folder
    for pattern in (inside, f"*/{inside}", f"*/*/{inside}"):
        found = sorted(folder.glob(pattern))
        if found:
            return found[0]
    return None
