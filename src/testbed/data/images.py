"""Picture files: reading one, and the Samples of many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.samples import Samples, fingerprint_of
from testbed.errors import ImageError

EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))


def read_rgb(path: Path) -> Any:
    """The picture in RGB. It is fully decoded here, so that the error of a truncated file can name the file."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except Exception as error:  # PIL raises many kinds, from OSError to struct.error
        raise ImageError(f"unreadable image {path}: {type(error).__name__}: {error}") from error


def picture_samples(
    root: Path,
    ids: Sequence[str],
    targets: np.ndarray,
    sizes: Sequence[int],
    cache_salt: str,
    *,
    label_space: str = "own",
    num_classes: int | None = None,
    folders_are_classes: bool = False,
) -> Samples:
    """The Samples of picture files. An id is a path relative to `root`; `sizes` are file sizes in bytes."""
    return Samples(
        ids=ids,
        targets=targets,
        load=lambda index: read_rgb(root / ids[index]),
        # File sizes stand in for the pixels: listing a dataset reads no picture.
        fingerprint=fingerprint_of("\n".join(ids), targets.tobytes(), np.array(sizes, dtype=np.int64).tobytes()),
        label_space=label_space,
        num_classes=num_classes,
        folders_are_classes=folders_are_classes,
        cache_salt=cache_salt,
    )
