"""Files of object storage that were fetched: below results/cache/logits, bounded, the least recently used go first.

Arrays are named by their checksum, which is compared before one is used, so that it does not matter which machine or
database they came from.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath

from testbed.data.rows import Rows
from testbed.data.writing import aside_written_by, write_aside, writing_to
from testbed.errors import StoreError
from testbed.store import files, objects

CACHE_VARIABLE = "TESTBED_LOGITS_CACHE_GB"
_DEFAULT_GB = 20.0
FOLDER = Path("cache", "logits")  # of the results folder


class OtherContents(StoreError):
    """An object is not the one that was written."""


def at_hand(folder: Path, sha256: str) -> Path | None:
    """The array of that checksum, where it was fetched before and is whole."""
    path = folder / FOLDER / f"{sha256}.npy"
    try:
        state = path.stat()
        whole = files.known_sha256(path) == sha256
    except OSError:
        return None
    with suppress(OSError):  # a folder of somebody else stays as it is
        if whole:
            os.utime(path, ns=(time.time_ns(), state.st_mtime_ns))  # when it was used last
        else:
            path.unlink()
    return path if whole else None


def fetched_array(folder: Path, url: str, sha256: str) -> Path:
    """A file of this machine with the array, compared with its checksum. Raises MissingObject and OtherContents."""
    return at_hand(folder, sha256) or _fetch(url, folder / FOLDER / f"{sha256}.npy", sha256)


def rows(folder: Path, url: str, again: bool = False) -> Rows:
    """A list of images, whose name tells what is in it: one that was fetched before will do, unless `again`."""
    digest = hashlib.sha256(url.encode()).hexdigest()
    path = folder / FOLDER / f"{digest[:16]}-{PurePosixPath(url).name}"
    if path.is_file() and not again:
        with suppress(StoreError):  # it may be torn
            return files.load_rows(path)
    _fetch(url, path)
    try:
        return files.load_rows(path)
    except StoreError as error:
        raise OtherContents(f"sample list {url} cannot be read") from error


def keep(folder: Path, path: Path, sha256: str) -> None:
    """Take a file that was made here and uploaded, so that it need not be fetched."""
    target = folder / FOLDER / f"{sha256}.npy"
    size = path.stat().st_size
    if size > _budget():
        path.unlink()
        return
    _make_room(target.parent, size)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, target)


def _fetch(url: str, path: Path, sha256: str | None = None) -> Path:
    facts = objects.facts_of(url)
    digest = hashlib.sha256()

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            for block in objects.blocks(url, facts.size):
                file.write(block)
                digest.update(block)
        if sha256 not in (None, digest.hexdigest()):
            raise OtherContents(f"{url} has changed since it was written")

    with writing_to(path):
        _make_room(path.parent, facts.size)
        write_aside(path, write)
    return path


def _budget() -> float:
    given = os.environ.get(CACHE_VARIABLE)
    try:
        gigabytes = float(given) if given else _DEFAULT_GB
    except ValueError:
        gigabytes = -1.0
    if not gigabytes >= 0:
        raise StoreError(f"{CACHE_VARIABLE}: expected a number of GB from 0 on, got {given!r}")
    return gigabytes * 1e9


def _make_room(folder: Path, needed: int) -> None:
    """Remove what was used least recently, until so many bytes more fit. A file that somebody has mapped stays his."""
    kept = []
    with suppress(OSError):
        for path in folder.iterdir():
            if aside_written_by(path.name) is None:
                with suppress(OSError):  # removed by another run
                    state = path.stat()
                    kept.append((state.st_atime, state.st_size, path))
    room = _budget() - needed - sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if room >= 0:
            return
        with suppress(OSError):
            path.unlink()
        room += size
