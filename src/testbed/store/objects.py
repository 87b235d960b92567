"""Files in object storage, through fsspec: put once, looked at, read whole or in ranges, removed.

There is no rename there: an object is not visible before its upload has ended, so it is written to its own key in one
go, and only where there is none (`If-None-Match: *`). Whatever fails is told in one line.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import StoreError, TestbedError
from testbed.store.masking import masked

_BLOCK = 16 * 2**20  # bytes of one request of a whole read
_AT_ONCE = 4  # such requests at a time
PATIENCE_S = 300.0  # how long an upload is tried again
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0
MISSING = "is missing"

T = TypeVar("T")


class MissingObject(StoreError):
    """There is no such object."""


class StorageAway(StoreError):
    """Object storage could not be reached, or failed; another try may succeed."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Facts:
    """What a store says of an object without reading it."""

    size: int
    etag: str  # changes with the contents; empty where the store has none


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Listings are never cached: other machines write there too."""
    try:
        from fsspec.core import url_to_fs

        system, path = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        scheme = url.split("://", 1)[0]
        package = "pip install s3fs, or the extra `s3`" if scheme in ("s3", "s3a") else _reason(error)
        raise StoreError(f"{scheme}:// needs a package that is not installed: {package}") from error
    except Exception as error:  # of a file system that wants more than a URL, or of none
        raise StoreError(f"{url} cannot be opened: {_reason(error)}") from error
    if "file" in ((system.protocol,) if isinstance(system.protocol, str) else system.protocol) or "::" in url:
        # Other words for this machine's own disks, such as local://, which rows of a database may come with.
        raise StoreError(f"{url} cannot be opened: expected object storage, or file:///FOLDER")
    return system, path


@contextmanager
def _told(url: str, what: str) -> Iterator[None]:
    """What the file system raises, as a StoreError. botocore's errors of connections are no OSErrors."""
    try:
        yield
    except TestbedError:
        raise
    except FileNotFoundError as error:
        raise MissingObject(f"{url} {MISSING}") from error
    except (PermissionError, NotImplementedError) as error:
        raise StoreError(f"{url} {what}: {_reason(error)}") from error
    except Exception as error:
        raise StorageAway(f"{url} {what}", _reason(error)) from error


def _reason(error: Exception) -> str:
    """In words: without the number of an OSError, and of addresses only the host, since the path has been told."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return masked(re.sub(r"(\bhttps?://[^/\s\"']+)[^\s\"']*", r"\1", " ".join(text.split())).rstrip("."))


# ---- looking ---------------------------------------------------------------------------------------------


def facts_of(url: str) -> Facts:
    """Size and ETag. Raises MissingObject."""
    system, path = file_system(url)
    with _told(url, "cannot be looked at"):
        info = system.info(path)
        if info["type"] != "file":
            raise MissingObject(f"{url} {MISSING}")
        return Facts(int(info["size"]), str(info.get("ETag") or info.get("etag") or ""))


def sizes_below(folder: str) -> dict[str, int]:
    """Size of every object right below a URL, by name."""
    system, path = file_system(folder)
    try:
        with _told(folder, "cannot be listed"):
            listed = system.ls(path, detail=True)
    except MissingObject:
        return {}
    return {entry["name"].rsplit("/", 1)[-1]: int(entry["size"]) for entry in listed if entry["type"] == "file"}


# ---- reading ---------------------------------------------------------------------------------------------


def blocks(url: str, size: int) -> Iterator[bytes]:
    """The contents of an object of that size, in order, several requests at a time."""
    starts = range(0, size, _BLOCK)
    for first in range(0, len(starts), _AT_ONCE):
        yield from ranges(url, [(start, min(start + _BLOCK, size)) for start in starts[first : first + _AT_ONCE]])


def ranges(url: str, wanted: Sequence[tuple[int, int]]) -> list[bytes]:
    """The bytes from start to stop of each range, one request each."""
    system, path = file_system(url)
    starts, stops = [start for start, _ in wanted], [stop for _, stop in wanted]
    with _told(url, "cannot be read"):
        parts = system.cat_ranges([path] * len(wanted), starts, stops, on_error="raise")
    short = next((part for part, (start, stop) in zip(parts, wanted, strict=True) if len(part) != stop - start), None)
    if short is not None:
        raise StorageAway(f"{url} cannot be read", "its end did not come")
    return [bytes(part) for part in parts]


_digests: dict[tuple[str, Facts], str] = {}  # of objects that this process has read to the end


def known_sha256(url: str, again: bool = False) -> str:
    """The checksum of an object, read once per process for each state (size and ETag) of it."""
    facts = facts_of(url)
    if again or (url, facts) not in _digests:
        digest = hashlib.sha256()
        for block in blocks(url, facts.size):
            digest.update(block)
        _digests[url, facts] = digest.hexdigest()
    return _digests[url, facts]


# ---- writing ---------------------------------------------------------------------------------------------


_gave_up = False  # the last upload was given up: the next ones are not waited for as long


def patiently(action: Callable[[], T], tell: Callable[[str], None]) -> T:
    """action(), tried again for some minutes while object storage is away. It must do the same when it is repeated."""
    global _gave_up
    patience_s = 0.0 if _gave_up else PATIENCE_S
    began, pause_s = time.monotonic(), _FIRST_PAUSE_S
    while True:
        try:
            done = action()
            _gave_up = False
            return done
        except StorageAway as away:
            left_s = began + patience_s - time.monotonic()
            if left_s <= 0:
                _gave_up = True
                raise
            if pause_s == _FIRST_PAUSE_S:
                tell(f"{away}; trying again, at most {patience_s:.0f} s")
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def put_new(path: Path, url: str, sha256: str) -> Facts:
    """Upload a file where no object is."""
    system, target = file_system(url)
    with _told(url, "cannot be written"):
        try:
            system.put_file(str(path), target, mode="create")
        except FileExistsError:
            # Of an earlier try whose answer was lost, since the name is nobody else's; but it is looked at.
            if known_sha256(url, again=True) != sha256:
                raise StoreError(f"{url} is there already, with other contents: it is not overwritten") from None
        except FileNotFoundError as error:  # no such bucket
            raise StoreError(f"{url} cannot be written: {_reason(error)}") from error
    facts = facts_of(url)
    if facts.size != path.stat().st_size:
        raise StoreError(f"{url}: expected {path.stat().st_size} bytes after the upload, got {facts.size}")
    return facts


def put_bytes(content: bytes, url: str, overwrite: bool = False) -> None:
    """A small object; one that is there stays, unless it is to be overwritten."""
    system, path = file_system(url)
    with _told(url, "cannot be written"):
        try:
            system.pipe_file(path, content, mode="overwrite" if overwrite else "create")
        except FileExistsError:
            pass
        except FileNotFoundError as error:
            raise StoreError(f"{url} cannot be written: {_reason(error)}") from error


def remove_beginning(folder: str, name: str) -> None:
    """The objects right below a URL whose names are `name`.npy, or begin with `name`~."""
    system, path = file_system(folder)
    with _told(folder, "cannot be cleaned up"):
        for key in system.find(path, prefix=name):
            last = key.rsplit("/", 1)[-1]
            if last == f"{name}.npy" or last.startswith(f"{name}~"):
                try:
                    system.rm_file(key)
                except FileNotFoundError:
                    continue
