"""A disk cache of prepared images, so that a picture is decoded and resized once for all models and settings.

There is one folder per (dataset, transforms): a flat file of uint8 pixels, a checksum per image, and the digest of the
file it was made from. An image counts as present only if its checksum agrees; after a torn write it is prepared again.
Files are written with pwrite rather than through a memory map: a full disk then raises an error instead of killing the
process.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import weakref
import zlib
from pathlib import Path

import numpy as np

_PIXELS, _CHECKSUMS, _DIGESTS, _INFO = "pixels.u8", "checksums.u32", "digests.sha256", "info.json"
_DIGEST_BYTES = 32


class PreparedCache:
    """Images of one shape, by index. Several threads and processes may read and write at the same time."""

    def __init__(self, folder: Path, n_images: int, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._bytes = int(np.prod(shape))
        self._seed = zlib.crc32(repr(shape).encode())  # an image stored in another shape fails its checksum
        self._pixels = os.open(folder / _PIXELS, os.O_RDWR | os.O_CREAT, 0o644)
        self._checksums = os.open(folder / _CHECKSUMS, os.O_RDWR | os.O_CREAT, 0o644)
        self._digests = os.open(folder / _DIGESTS, os.O_RDWR | os.O_CREAT, 0o644)
        os.ftruncate(self._checksums, 4 * n_images)
        os.ftruncate(self._digests, _DIGEST_BYTES * n_images)
        self.full = False  # set when the disk is full: from then on nothing is written
        # Also runs on garbage collection.
        self.close = weakref.finalize(self, _close, self._pixels, self._checksums, self._digests)

    def get(self, index: int) -> np.ndarray | None:
        """A copy of the image, or None where it is not stored or damaged."""
        stored = os.pread(self._checksums, 4, 4 * index)
        if stored == b"\0\0\0\0":
            return None
        data = np.empty(self._shape, np.uint8)  # its own memory: perturbations may write to it
        if os.preadv(self._pixels, [data.data], self._bytes * index) != self._bytes:
            return None
        return data if _checksum(data.data, self._seed) == stored else None

    def digest(self, index: int) -> bytes | None:
        """That of the file from which the stored image was made; None where it is not known."""
        stored = os.pread(self._digests, _DIGEST_BYTES, _DIGEST_BYTES * index)
        return stored if any(stored) else None

    def put(self, index: int, image: np.ndarray, digest: bytes = b"") -> None:
        """Store an image. One of another shape, or any image on a full disk, is silently not stored."""
        if self.full or image.shape != self._shape:
            return
        data = image.tobytes()
        try:
            # The checksum last: if the process dies in between, the old one does not fit the new pixels.
            os.pwrite(self._pixels, data, self._bytes * index)
            os.pwrite(self._digests, digest.ljust(_DIGEST_BYTES, b"\0"), _DIGEST_BYTES * index)
            os.pwrite(self._checksums, _checksum(data, self._seed), 4 * index)
        except OSError:
            self.full = True


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _checksum(data: bytes | memoryview, seed: int) -> bytes:
    return (zlib.crc32(data, seed) or 1).to_bytes(4, "little")  # 0 is kept for "not stored"


_opening = threading.Lock()


def open_cache(root: Path, key: str, n_images: int, shape: tuple[int, ...], budget_bytes: int) -> PreparedCache | None:
    """The cache for `key`, or None where it would not fit the budget or the disk refuses it.

    Other caches under `root` are removed, the least recently opened first, until all of them fit the budget.
    """
    needed = n_images * int(np.prod(shape))
    if needed > budget_bytes:
        return None
    folder = _folder(root, key)
    with _opening:
        try:
            _make_room(root, budget_bytes - needed, keep=folder)
            folder.mkdir(parents=True, exist_ok=True)
            # Rewritten at every opening: its modification time tells when the cache was last opened.
            aside = folder / f"{_INFO}.{os.getpid()}"
            aside.write_text(json.dumps({"key": key, "bytes": needed, "shape": shape}))
            aside.replace(folder / _INFO)
            return PreparedCache(folder, n_images, shape)
        except OSError:
            return None


def reopen_cache(root: Path, key: str, n_images: int, budget_bytes: int) -> PreparedCache | None:
    """The cache for `key` if it exists already, with the image shape that it recorded; else None."""
    try:
        shape = tuple(json.loads((_folder(root, key) / _INFO).read_text())["shape"])
    except (OSError, ValueError, KeyError):
        return None
    return open_cache(root, key, n_images, shape, budget_bytes)


def _folder(root: Path, key: str) -> Path:
    return root / hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _make_room(root: Path, room: int, keep: Path) -> None:
    """Remove the least recently opened caches, other than `keep`, until the rest fits into `room` bytes."""
    others = []
    for info in root.glob(f"*/{_INFO}"):
        if info.parent != keep:
            try:
                others.append((info.stat().st_mtime, json.loads(info.read_text())["bytes"], info.parent))
            except (OSError, ValueError, KeyError):  # being written or removed by another run
                continue
    total = sum(size for _, size, _ in others)
    for _, size, folder in sorted(others):
        if total <= room:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= size
