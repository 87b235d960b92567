"""Images that are already an array: `data.npy` + `labels.npy`, an .npz file, CIFAR's own files, or a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data import cifar_files
from testbed.data.array_files import UNREADABLE, load_npy, load_npz
from testbed.data.images import file_state
from testbed.data.labels import checked_labels
from testbed.data.locate import find
from testbed.data.samples import UNKNOWN, Dataset, Samples, fingerprint_of
from testbed.errors import DataError, EntryError

_HASHED_BYTES = 1 << 29  # a fingerprint hashes at most so many bytes of pixels, of images at even distances


@dataclass(frozen=True)
class ArrayDataset(Dataset):
    """uint8 images (n, height, width, 3) with labels (n,).

    Give exactly one of `path`, `name` and `make`. `path` (any path) and `name` (a path under a data root) lead to
    - a folder with data.npy and, if the images have labels, labels.npy (`files` gives other names for the two),
    - an .npz file with the arrays `images` and `labels`,
    - an .npy file of images without labels, or
    - CIFAR-10 or CIFAR-100 as published (testbed.data.cifar_files), of which `part` is taken: test or train.
    `make` is a function that returns (images, labels). `rows` = (first, end) takes a range of the images only.
    """

    path: str | os.PathLike[str] | None = None
    name: str | None = None
    make: Callable[[], tuple[np.ndarray, np.ndarray | None]] | None = None
    num_classes: int | None = None
    source: str = ""
    also: Sequence[str] = ()
    files: tuple[str, str] = ("data.npy", "labels.npy")
    rows: tuple[int, int] | None = None
    part: str = "test"

    def __post_init__(self) -> None:
        object.__setattr__(self, "also", tuple(self.also))
        sources = [source for source in (self.path, self.name, self.make) if source is not None]
        if len(sources) != 1:
            raise EntryError(f"ArrayDataset: expected one of path, name and make, got {len(sources)} of them")
        if self.part not in cifar_files.PARTS:
            raise EntryError(f"ArrayDataset: expected part {' or '.join(cifar_files.PARTS)}, got {self.part!r}")
        if self.rows is not None and not 0 <= self.rows[0] < self.rows[1]:
            raise EntryError(f"ArrayDataset: expected rows (first, end) with 0 <= first < end, got {self.rows}")

    def describe(self) -> str:
        if self.make is not None:
            return f"array from {getattr(self.make, '__name__', 'a function')}()"
        file = f"/{self.files[0]}" if self.files[0] != "data.npy" else ""
        part = f"[{self.rows[0]}:{self.rows[1]}]" if self.rows else ""
        return f"array {self.name or self.path}{file}{part}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        reopen, labels = self._arrays(data_roots)
        images = reopen()
        if self.rows is not None:
            first, end = self.rows
            if len(images) < end:
                raise DataError(f"{self.describe()}: expected at least {end} images, got {len(images)}")
            images, labels = images[first:end], None if labels is None else labels[first:end]
        if images.ndim != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
            raise DataError(
                f"{self.describe()}: expected uint8 images (n, height, width, 3), got {images.dtype} {images.shape}"
            )
        n = len(images)
        if n == 0:
            raise DataError(f"{self.describe()}: holds no images")
        if labels is not None and np.shape(labels) != (n,):
            raise DataError(f"{self.describe()}: expected {n} labels, got shape {np.shape(labels)}")
        unknown = np.full(n, UNKNOWN, dtype=np.int64)
        targets = unknown if labels is None else checked_labels(labels, self.describe(), self.num_classes)
        most = max(1, _HASHED_BYTES // max(1, images[0].nbytes))
        hashed = images if n <= most else images[np.linspace(0, n - 1, most).astype(np.int64)]
        loader = _ArrayLoader(reopen, self.rows)
        return Samples(
            ids=_numbered(n),
            targets=targets,
            load=loader,
            fingerprint=fingerprint_of(
                str(images.shape), targets.tobytes(), np.ascontiguousarray(hashed).data.cast("B")
            ),
            label_space="own",
            num_classes=self.num_classes,
            read=lambda index: np.ascontiguousarray(loader.raw[index]).tobytes(),
        )

    def stamp(self, data_roots: Sequence[Path]) -> str | None:
        if self.make is not None:
            return None
        place = self._place(data_roots)
        pixels = place if place.suffix in (".npz", ".npy") else place / self.files[0]
        named = place / self.files[1]
        read = [pixels, named] if pixels != place and named.exists() else [pixels]
        read = self._published(place) or read
        return f"{[(str(path.resolve()), *file_state(path)) for path in read]}{self.rows}"

    def _place(self, data_roots: Sequence[Path]) -> Path:
        if self.path is not None:
            return Path(self.path).expanduser()
        assert self.name is not None
        return find(self.name, self.also, data_roots, "data.npy and labels.npy, or an .npz file", self.source)

    def _published(self, place: Path) -> list[Path]:
        """CIFAR's own files at a place, which may have a name without a suffix; none where there are others."""
        if place.suffix in (".npz", ".npy") or (place / self.files[0]).exists():
            return []
        return cifar_files.files_at(place, self.part)

    def _arrays(self, data_roots: Sequence[Path]) -> tuple[Callable[[], np.ndarray], np.ndarray | None]:
        """A function that returns all images, and the labels (None if there are none)."""
        if self.make is not None:
            try:
                images, labels = self.make()
            except DataError:
                raise
            except (Exception, SystemExit) as error:  # a function of a registry file: whatever it raises
                raise DataError(f"{self.describe()} failed: {type(error).__name__}: {error}") from error
            return lambda: images, labels
        place = self._place(data_roots)
        published = self._published(place)
        if published:
            images, labels = cifar_files.read(published)
            return lambda: images, labels
        if place.is_file() and place.suffix not in (".npz", ".npy"):
            raise DataError(f"{place}: expected a file ending in .npz or .npy, or a folder with {self.files[0]} in it")
        try:
            if place.suffix == ".npz":
                both = load_npz(place, ("images", "labels"))
                images, labels = both["images"], both.get("labels")
                return lambda: images, labels
            pixels = place if place.suffix == ".npy" else place / self.files[0]
            named = place / self.files[1]
            labels = load_npy(named) if pixels != place and named.exists() else None
            state = pixels.stat()
            # Time and size are part of the cache key, so a file that was replaced is mapped anew.
            reopen = partial(_mapped, pixels, state.st_mtime_ns, state.st_size)
            reopen()  # a damaged file fails here, and not at its first image
            return reopen, labels
        except UNREADABLE as error:
            raise DataError(f"{place}: expected images and labels as arrays: {error}") from error


@lru_cache(maxsize=16)
def _mapped(path: Path, changed_ns: int, size: int) -> np.ndarray:
    """The array of an .npy file as a memory map. Each map holds its file open, so only the last few are kept."""
    return load_npy(path, mapped=True)


@lru_cache(maxsize=64)
def _numbered(n: int) -> tuple[str, ...]:
    """The ids 000000, 000001, ... of n images. A thousand sets of one size, such as meta sets, share one tuple."""
    return tuple(f"{i:06d}" for i in range(n))


class _ArrayLoader:
    """Index -> PIL image. `raw` gives all images as one array, for callers that apply no PIL transform."""

    def __init__(self, reopen: Callable[[], np.ndarray], rows: tuple[int, int] | None) -> None:
        self._reopen = reopen
        self._rows = slice(*rows) if rows else slice(None)

    @property
    def raw(self) -> np.ndarray:
        return self._reopen()[self._rows]

    def __call__(self, index: int) -> Any:
        from PIL import Image

        return Image.fromarray(np.ascontiguousarray(self.raw[index]))
