"""Fetches one file over HTTP: resumes a broken transfer, checks size and checksum, and only then gives it its name."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from testbed.errors import DataError

TRIES = 5  # failures in a row, without a new byte in between, before giving up; one if the server cannot be reached
PAUSE_S = 1.0  # before the second try; doubled for each further one
_TIMEOUT_S = 60
_BLOCK = 1 << 20
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # HTTP errors that may go away by themselves: worth another try
_NO_WAY = {errno.ENETUNREACH, errno.EHOSTUNREACH}
_KEPT = "what has come is kept, and the same command goes on from there"


@dataclass(frozen=True)
class Remote:
    """A file at an address. `checksum` is "md5:...", "sha1:..." or "sha256:..."; its first digits are enough."""

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
    """The transfer failed in a way that another try may repair."""


def fetch(remote: Remote, target: Path, pause_s: float = PAUSE_S) -> Path:
    """Fetch a file to `target` and return `target`; an existing file is kept as it is.

    Until it is whole and has the published checksum the file is called `target`.part. A part from an earlier try is
    continued only if the server's ETag or date, or the checksum, can tell that both pieces belong to one file.
    """
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _Part(target)
    joined = _receive_all(remote, part, pause_s)
    problem = _mismatch(remote, part.path)
    if problem and joined:  # the pieces may come from two versions of the file: fetch it once more in one piece
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
    """The received part of a file, with notes on the version of the file that it belongs to."""

    def __init__(self, target: Path) -> None:
        self.path = target.with_name(target.name + ".part")
        self._notes = target.with_name(target.name + ".part.json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.is_file() else 0

    def notes(self) -> dict[str, Any]:
        """url, validator (ETag or date) and size from the answer that began the file; empty if there are none."""
        try:
            notes = json.loads(self._notes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return notes if isinstance(notes, dict) else {}

    def begin(self, **notes: Any) -> None:
        """Start over: remove the part and keep notes on the new one."""
        self.path.unlink(missing_ok=True)
        self._notes.write_text(json.dumps(notes), encoding="utf-8")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)


def _receive_all(remote: Remote, part: _Part, pause_s: float) -> bool:
    """Request until the file is whole. Returns whether it was joined from several answers."""
    at_first = furthest = part.size()
    failures, joined = 0, False
    while True:
        began_with = part.size()
        try:
            continued = _receive(remote, part)
            return joined or continued
        except (_BrokenOff, http.client.HTTPException, OSError) as error:
            _refuse_full_disk(error, part.path)
            joined = joined or 0 < began_with < part.size()
            # A try that brought new bytes is progress: a large file over a bad line may fail more often than TRIES.
            failures = 1 if part.size() > furthest else failures + 1
            furthest = max(furthest, part.size())
            away = _is_away(error) and part.size() == at_first  # after the first bytes it is the line that has failed
            if failures >= TRIES or away:
                reason = getattr(error, "reason", None) or str(error) or type(error).__name__
                tried = f"its server cannot be reached ({reason})" if away else f"{TRIES} tries failed ({reason})"
                kept = f"; {_KEPT}" if part.size() else ""
                raise DataError(f"{remote.url} cannot be fetched, {tried}{kept}") from error
            time.sleep(pause_s * 2 ** (failures - 1))


def _is_away(error: Exception) -> bool:
    """Whether no server was reached: no such name, no way there, no answer. Trying again would only take time."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else None
    return isinstance(cause, socket.gaierror | TimeoutError) or getattr(cause, "errno", None) in _NO_WAY


def _refuse_full_disk(error: Exception, path: Path) -> None:
    """Raise DataError for an error of the disk, where trying again does not help; return for all others."""
    code = getattr(error, "errno", None)
    if code in (errno.ENOSPC, errno.EDQUOT):
        raise DataError(f"no room left for {path}: make room; {_KEPT}") from error
    if isinstance(error, PermissionError | NotADirectoryError | IsADirectoryError) or code == errno.EROFS:
        raise DataError(f"cannot write {path}: {error}") from error


def _receive(remote: Remote, part: _Part) -> bool:
    """One request for the missing bytes. Returns whether the answer continued the part, rather than began anew."""
    notes, have = part.notes(), part.size()
    if notes.get("url") != remote.url:
        notes, have = {}, 0
    if have and have == notes.get("size"):
        return True  # an earlier run was stopped after the last byte, before the check
    request = urllib.request.Request(_checked(remote.url), headers={"User-Agent": "testbed"})
    if have and (notes.get("validator") or remote.checksum):
        request.add_header("Range", f"bytes={have}-")
        if notes.get("validator"):  # the server then sends the whole file if it has changed
            request.add_header("If-Range", notes["validator"])
    with _opened(request, part) as answer:
        first, size = _extent(answer)
        validator = _validator(answer)
        identity = (("validator", validator), ("size", size))
        if first and (first != have or any(notes.get(k) and v and notes[k] != v for k, v in identity)):
            part.discard()
            raise _BrokenOff("the file changed on the server")
        if remote.size is not None and size is not None and size != remote.size:
            raise DataError(
                f"{remote.url}: expected {remote.size:,} bytes, the server offers {size:,}: it is another file than "
                "the one that was published"
            )
        _check_room(part.path.parent, (size or 0) - first)
        if not first:  # also the answer of a server that ignores Range
            part.begin(url=remote.url, validator=validator, size=size)
        _copy(answer, part.path, first, size)
    return first > 0


def _checked(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise DataError(f"expected an address that begins with https://, got {url}")
    return url


def _opened(request: urllib.request.Request, part: _Part) -> Any:
    """The server's answer. Raises _BrokenOff for errors that may pass, DataError for others."""
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # the file has no bytes from there on: the part is not of this file
            part.discard()
        elif error.code not in _PASSING:
            raise DataError(
                f"{request.full_url} answers {error.code} {error.reason}: look for its new address on the data's page"
            ) from error
        raise _BrokenOff(f"the server answers {error.code} {error.reason}") from error
    if request.full_url.startswith("https://") and not answer.url.startswith("https://"):
        answer.close()
        raise DataError(f"{request.full_url} leads to {answer.url}: expected an address that begins with https://")
    return answer


def _extent(answer: Any) -> tuple[int, int | None]:
    """(position of the answer's first byte in the file, size of the whole file or None if not told)."""
    if answer.status == 206:
        span, _, whole = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        first = span.partition("-")[0]
        if first.isdecimal():
            return int(first), int(whole) if whole.isdecimal() else None
        raise _BrokenOff("the server does not say which part it sends")
    length = answer.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _validator(answer: Any) -> str | None:
    """An identifier of this version of the file: a strong ETag, else the date of its last change."""
    tag = answer.headers.get("ETag")
    if tag and not tag.startswith("W/"):  # a weak ETag does not promise equal bytes
        return str(tag)
    return answer.headers.get("Last-Modified")


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(f"no room in {folder}: {gigabytes(needed)} are still to come, {gigabytes(free)} are free")


def _copy(answer: Any, path: Path, first: int, size: int | None) -> None:
    """Append the answer to the file. Raises _BrokenOff if it ends before `size` bytes."""
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
    """How the file differs from the published size or checksum; empty if it does not."""
    if remote.size is not None and path.stat().st_size != remote.size:
        return f"expected {remote.size:,} bytes, got {path.stat().st_size:,}"
    if remote.checksum is None:
        return ""
    kind, _, expected = remote.checksum.partition(":")
    digest = digest_of(path, kind)
    return "" if digest.startswith(expected.lower()) else f"expected {kind} {expected}, got {digest}"


def digest_of(path: Path, kind: str = "sha256") -> str:
    """The checksum of a file in hexadecimal digits; `kind` is a name of hashlib."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


def gigabytes(size: float) -> str:
    """A number of bytes as text in the unit that suits it, from bytes to GB."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
