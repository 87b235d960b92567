"""One file over HTTP: resumed where it broke off, checked as published, and never half under its own name."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import shutil
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from testbed.errors import DataError

TRIES = 5  # in a row without a new byte
PAUSE_S = 1.0  # before the second try; doubled for each further one
_TIMEOUT_S = 60
_BLOCK = 1 << 20
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # answers that may be another a little later
_KEPT = "what has come is kept, and the same command goes on from there"


@dataclass(frozen=True)
class Remote:
    """A file at an address. `checksum` is "md5:...", "sha1:..." or "sha256:...", whole or its first digits."""

    url: str
    checksum: str | None = None
    size: int | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def file_name(self) -> str:
        return urlsplit(self.url).path.rpartition("/")[2]


class _BrokenOff(Exception):
    """The connection failed or the answer was short; asking again may help."""


def fetch(remote: Remote, target: Path, pause_s: float = PAUSE_S) -> Path:
    """The file at `target`. It has that name only once it is whole and has the published checksum.

    Until then it grows as `target`.part. A part is continued only where the server's ETag or date, or the
    checksum, can tell that both pieces are of one file.
    """
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(target)
    joined = _receive_all(remote, part, pause_s)
    problem = _mismatch(remote, part.path)
    if problem and joined:  # the pieces may be of two versions of the file
        part.discard()
        _receive_all(remote, part, pause_s)
        problem = _mismatch(remote, part.path)
    if problem:
        part.discard()
        raise DataError(f"{remote.url} is not the file that was published: {problem}. It was thrown away.")
    os.replace(part.path, target)
    part.discard()
    return target


class _Part:
    """What has come of a file, and by what it is known to be of one version."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(target.name + ".part")
        self._notes = target.with_name(target.name + ".part.json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def notes(self) -> dict[str, Any]:
        """url, validator (ETag or date) and size as the server told them when the file was begun."""
        try:
            notes = json.loads(self._notes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return notes if isinstance(notes, dict) else {}

    def begin(self, **notes: Any) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.write_text(json.dumps(notes), encoding="utf-8")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)


def _receive_all(remote: Remote, part: _Part, pause_s: float) -> bool:
    """Ask until all is there. Returns whether the file was put together from several answers."""
    furthest, failures, joined = part.size(), 0, False
    while True:
        began_with = part.size()
        try:
            continued = _receive(remote, part)
            return joined or continued
        except (_BrokenOff, http.client.HTTPException, OSError) as error:
            _refuse_full_disk(error, part.path)
            joined = joined or 0 < began_with < part.size()
            failures = 1 if part.size() > furthest else failures + 1
            furthest = max(furthest, part.size())
            if failures >= TRIES:
                reason = getattr(error, "reason", None) or str(error) or type(error).__name__
                raise DataError(f"{remote.url} cannot be fetched, {TRIES} tries failed ({reason}); {_KEPT}") from error
            time.sleep(pause_s * 2 ** (failures - 1))


def _refuse_full_disk(error: Exception, path: Path) -> None:
    """Errors of the disk are not those of the connection: trying again does not help."""
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        raise DataError(f"no room left for {path}: make room; {_KEPT}") from error
    if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError) or code == errno.EROFS:
        raise DataError(f"cannot write {path}: {error}") from error


def _receive(remote: Remote, part: _Part) -> bool:
    """One request for what is missing. Returns whether it continued what was there."""
    notes, have = part.notes(), part.size()
    if notes.get("url") != remote.url:
        notes, have = {}, 0
    if have and have == notes.get("size"):
        return True  # an earlier run was stopped just before the check
    request = urllib.request.Request(_checked(remote.url), headers={"User-Agent": "testbed"})
    if have and (notes.get("validator") or remote.checksum):
        request.add_header("Range", f"bytes={have}-")
        if notes.get("validator"):
            request.add_header("If-Range", notes["validator"])
    with _opened(request, part) as answer:
        first, size = _extent(answer)
        validator = _validator(answer)
        told = (("validator", validator), ("size", size))
        if first and (first != have or any(notes.get(k) and v and notes[k] != v for k, v in told)):
            part.discard()
            raise _BrokenOff("the file changed on the server")
        if remote.size is not None and size is not None and size != remote.size:
            raise DataError(
                f"{remote.url}: expected {remote.size:,} bytes, the server offers {size:,}: it is another file than "
                "the one that was published"
            )
        _check_room(part.path.parent, (size or 0) - first)
        if not first:
            part.begin(url=remote.url, validator=validator, size=size)
        _copy(answer, part.path, first, size)
    return first > 0


def _checked(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise DataError(f"expected an address that begins with https://, got {url}")
    return url


def _opened(request: urllib.request.Request, part: _Part) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # there is nothing from that byte on: the part is not of this file
            part.discard()
        elif error.code not in _PASSING:
            raise DataError(
                f"{request.full_url} answers {error.code} {error.reason}: look for its new address on the data's page"
            ) from error
        raise _BrokenOff(f"the server answers {error.code} {error.reason}") from error


def _extent(answer: Any) -> tuple[int, int | None]:
    """(first byte of the answer, size of the whole file), as far as the server tells."""
    if answer.status == 206:
        span, _, whole = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        first = span.partition("-")[0]
        if first.isdecimal():
            return int(first), int(whole) if whole.isdecimal() else None
        raise _BrokenOff("the server does not say which part it sends")
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _validator(answer: Any) -> str | None:
    """What names this version of the file: a strong ETag, else the date of its last change."""
    tag = answer.headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return str(tag)
    return answer.headers.get("Last-Modified")


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(f"no room in {folder}: {gigabytes(needed)} are still to come, {gigabytes(free)} are free")


def _copy(answer: Any, path: Path, first: int, size: int | None) -> None:
    from tqdm import tqdm

    name = path.name.removesuffix(".part")
    with (
        path.open("ab") as file,
        tqdm(total=size, initial=first, unit="B", unit_scale=True, desc=name, disable=None) as bar,
    ):
        while block := answer.read(_BLOCK):
            file.write(block)
            bar.update(len(block))
    if size is not None and path.stat().st_size < size:
        raise _BrokenOff(f"the connection broke off after {path.stat().st_size:,} of {size:,} bytes")


# ---- checking --------------------------------------------------------------------------------------------


def _mismatch(remote: Remote, path: Path) -> str:
    """What is wrong with the file, or nothing."""
    if remote.size is not None and path.stat().st_size != remote.size:
        return f"expected {remote.size:,} bytes, got {path.stat().st_size:,}"
    if remote.checksum is None:
        return ""
    kind, _, expected = remote.checksum.partition(":")
    found = digest_of(path, kind)
    return "" if found.startswith(expected.lower()) else f"expected {kind} {expected}, got {found}"


def digest_of(path: Path, kind: str = "sha256") -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def gigabytes(size: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
