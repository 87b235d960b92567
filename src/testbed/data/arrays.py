"""Images that are already an array: `data.npy` + `labels.npy`, an .npz file, or a function that makes them."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.locate import find
from testbed.data.samples import UNKNOWN, Dataset, Samples, fingerprint_of
from testbed.errors import DataError, EntryError

_HASHED_BYTES = 1 << 29  # a fingerprint reads no more of the pixels than this, evenly spaced


@dataclass(frozen=True)
class ArrayDataset(Dataset):
    """uint8 images (n, height, width, 3) with labels (n,).

    `path` (anywhere) or `name` (under a data root) is a folder with data.npy and, unless unlabelled,
    labels.npy; or an .npz file with `images` and `labels`. `make` is a function that returns both.
    `files` are other names of the two in the folder, `rows` the range of rows to take (first, end).
    """

    path: str | os.PathLike[str] | None = None
    name: str | None = None
    make: Callable[[], tuple[np.ndarray, np.ndarray | None]] | None = None
    num_classes: int | None = None
    source: str = ""
    also: Sequence[str] = ()
    files: tuple[str, str] = ("data.npy", "labels.npy")
    rows: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "also", tuple(self.also))
        given = [g for g in (self.path, self.name, self.make) if g is not None]
        if len(given) != 1:
            raise EntryError(f"ArrayDataset: expected one of path, name and make, got {len(given)} of them")

    def describe(self) -> str:
        if self.make is not None:
            return f"array from {getattr(self.make, '__name__', 'a function')}()"
        one = f"/{self.files[0]}" if self.files[0] != "data.npy" else ""
        part = f"[{self.rows[0]}:{self.rows[1]}]" if self.rows else ""
        return f"array {self.name or self.path}{one}{part}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        images, labels = self._arrays(data_roots)
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
        targets = np.full(n, UNKNOWN, dtype=np.int64) if labels is None else np.asarray(labels, dtype=np.int64)
        if targets.shape != (n,):
            raise DataError(f"{self.describe()}: expected {n} labels, got shape {targets.shape}")
        most = max(1, _HASHED_BYTES // max(1, images[0].nbytes))
        probe = images if n <= most else images[np.linspace(0, n - 1, most).astype(np.int64)]
        return Samples(
            ids=[f"{i:06d}" for i in range(n)],
            targets=targets,
            load=_ArrayLoader(images),
            fingerprint=fingerprint_of(
                str(images.shape), targets.tobytes(), np.ascontiguousarray(probe).data.tobytes()
            ),
            label_space="own",
            num_classes=self.num_classes,
        )

    def _arrays(self, data_roots: Sequence[Path]) -> tuple[np.ndarray, np.ndarray | None]:
        if self.make is not None:
            return self.make()
        if self.path is not None:
            place = Path(self.path).expanduser()
        else:
            assert self.name is not None
            place = find(self.name, self.also, data_roots, "data.npy and labels.npy, or an .npz file", self.source)
        try:
            if place.suffix == ".npz":
                with np.load(place, allow_pickle=False) as both:
                    return both["images"], both.get("labels")
            labels = place / self.files[1]
            images = np.load(place / self.files[0], mmap_mode="r", allow_pickle=False)
            return images, np.load(labels, allow_pickle=False) if labels.exists() else None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(f"{place}: expected images and labels as arrays: {error}") from error


class _ArrayLoader:
    """Index -> PIL image. Prepared-image code may take `raw` where no transform asks for a PIL image."""

    def __init__(self, images: np.ndarray) -> None:
        self.raw = images

    def __call__(self, index: int) -> Any:
        from PIL import Image

        return Image.fromarray(np.ascontiguousarray(self.raw[index]))
