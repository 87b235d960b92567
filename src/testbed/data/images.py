"""Reading one image file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.errors import ImageError

EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"))


def read_rgb(path: Path) -> Any:
    """The picture as RGB, wholly decoded here, so that a truncated file fails by its name."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except Exception as error:  # PIL raises many kinds, from OSError to struct.error
        raise ImageError(f"unreadable image {path}: {type(error).__name__}: {error}") from error
