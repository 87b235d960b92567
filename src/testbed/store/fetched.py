"""Files of object storage that were fetched: below results/cache/logits, bounded, the least recently used go first.
Where results are read-only they are below the user's own cache.

Arrays are named by their checksum, which is compared before one is used, so that it does not matter which machine or
database they came from.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np

from testbed.data.rows import Rows
from testbed.data.user_cache import user_cache
from testbed.data.writing import aside_written_by, write_aside, writing_to
from testbed.errors import StoreError
from testbed.store import files, objects

CACHE_VARIABLE = "TESTBED_LOGITS_CACHE_GB"
_DEFAULT_GB = 20.0
_TORN_AFTER_S = 3600.0  # without a byte: whoever was fetching a file is gone


class OtherContents(StoreError):
    """An object is not the one that was written."""


def cache(folder: Path) -> Path:
    """Where files are kept for the results in a folder."""
    kept = folder / "cache" / "logits"
    nearest = next((place for place in (kept, *kept.parents) if place.exists()), folder)
    writable = os.access(nearest, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    return kept if writable else user_cache("logits")


def at_hand(folder: Path, sha256: str) -> Path | None:
    """The array of that checksum, where it was fetched before and is whole."""
    path = cache(folder) / f"{sha256}.npy"
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


def array(folder: Path, url: str, sha256: str) -> np.ndarray:
    """The array, compared with its checksum and memory-mapped. Raises MissingObject and OtherContents."""
    path = cache(folder) / f"{sha256}.npy"
    if at_hand(folder, sha256) is None:
        _fetch(url, path, sha256)
    try:
        return files.load_logits(path)
    except StoreError:
        if path.is_file():
            raise
        return files.load_logits(_fetch(url, path, sha256))  # another process has made room in the meantime


def rows(folder: Path, url: str, again: bool = False) -> Rows:
    """A list of images, whose name tells what is in it: one that was fetched before will do, unless `again`."""
    digest = hashlib.sha256(url.encode()).hexdigest()
    path = cache(folder) / f"{digest[:16]}-{PurePosixPath(url).name}"
    if path.is_file() and not again:
        with suppress(StoreError):  # it may be torn
            return files.load_rows(path)
    _fetch(url, path)
    try:
        return files.load_rows(path)
    except StoreError as error:
        raise OtherContents(f"sample list {url} cannot be read") from error


def keep(folder: Path, path: Path, sha256: str) -> None:
    """Take a file that was made here and uploaded, so that it need not be fetched. It is gone from its place."""
    target = cache(folder) / f"{sha256}.npy"
    size = path.stat().st_size
    with suppress(OSError):  # a cache on another disk, or a full one
        if size <= budget():
            _make_room(target.parent, size)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
    path.unlink(missing_ok=True)


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


def budget() -> float:
    """How many bytes may be kept."""
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
            with suppress(OSError):  # removed by another run
                state = path.stat()
                if aside_written_by(path.name) is None:
                    kept.append((state.st_atime, state.st_size, path))
                elif time.time() - state.st_mtime > _TORN_AFTER_S:
                    path.unlink()
    room = budget() - needed - sum(size for _, size, _ in kept)
    for _, size, path in sorted(kept):
        if room >= 0:
            return
        with suppress(OSError):
            path.unlink()
        room += size
