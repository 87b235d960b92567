"""What several corruptions are made of: smoothing, zooming, sampling between pixels, blur along a line.

Smoothing and zooming are linear along each axis, border rule included, so each is a small sparse matrix that is
made once per side length and kept. Sparse products run in one fixed order, whatever the number of threads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


def along_both_axes(down: Any, across: Any, image: np.ndarray) -> np.ndarray:
    """Apply the matrix `down` to the columns and `across` to the rows of an HW or HWC array."""
    height, width = image.shape[:2]
    rows = (down @ image.reshape(height, -1)).reshape(-1, *image.shape[1:])
    turned = np.ascontiguousarray(rows.swapaxes(0, 1))
    columns = (across @ turned.reshape(width, -1)).reshape(-1, *turned.shape[1:])
    return np.ascontiguousarray(columns.swapaxes(0, 1))


def smooth(image: np.ndarray, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> np.ndarray:
    """A Gaussian filter over the first two axes; `mode` names scipy's border rules."""
    height, width = image.shape[:2]
    return along_both_axes(_smoothing(height, sigma, mode, truncate), _smoothing(width, sigma, mode, truncate), image)


@lru_cache(maxsize=64)
def _smoothing(side: int, sigma: float, mode: str, truncate: float) -> Any:
    from scipy.ndimage import gaussian_filter1d

    return _sparse(gaussian_filter1d(np.eye(side), sigma, axis=0, mode=mode, truncate=truncate))


@lru_cache(maxsize=64)
def clipped_zoom(side: int, factor: float) -> Any:
    """The matrix that takes the middle ceil(side / factor) pixels back to `side` pixels.

    Enlarged as scipy's `zoom` of order 1 does it, and trimmed in the middle, as published.
    """
    from scipy.ndimage import zoom

    middle = zoom_crop(side, factor)
    start = (side - middle) // 2
    enlarged = zoom(np.eye(middle), (factor, 1), order=1)
    trim = (enlarged.shape[0] - side) // 2
    matrix = np.zeros((side, side))
    matrix[:, start : start + middle] = enlarged[trim : trim + side]
    return _sparse(matrix)


def zoom_crop(side: int, factor: float) -> int:
    """How many pixels of a side a zoom by `factor` shows."""
    return int(np.ceil(side / factor))


def _sparse(matrix: np.ndarray) -> Any:
    from scipy.sparse import csr_matrix

    return csr_matrix(matrix.astype(np.float32))


def sample(image: np.ndarray, rows: np.ndarray, columns: np.ndarray, border: str) -> np.ndarray:
    """Bilinear values of an HWC image at fractional places.

    Beyond the border: "mirror" (the last pixel is the mirror), "reflect" (it is repeated) or "zero".
    """
    height, width, channels = image.shape
    top, left = np.floor(rows), np.floor(columns)
    down = (rows - top).astype(np.float32)[..., None]
    right = (columns - left).astype(np.float32)[..., None]
    first_row, first_column = top.astype(np.intp), left.astype(np.intp)
    if border == "zero":
        image = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        height, width = height + 2, width + 2
        first_row, first_column = first_row + 1, first_column + 1
    above, below = (_fold(first_row + step, height, border) * width for step in (0, 1))
    before, behind = (_fold(first_column + step, width, border) for step in (0, 1))
    flat = image.reshape(-1, channels)
    upper = flat[above + before] * (1 - right) + flat[above + behind] * right
    lower = flat[below + before] * (1 - right) + flat[below + behind] * right
    return upper * (1 - down) + lower * down


def _fold(index: np.ndarray, side: int, border: str) -> np.ndarray:
    """Bring indices beyond the border back to 0 .. side - 1."""
    if border == "zero":  # the picture has a black frame by now
        return np.clip(index, 0, side - 1)
    period = max(2 * side - 2, 1) if border == "mirror" else 2 * side
    index = index % period
    last = period if border == "mirror" else period - 1
    return np.where(index < side, index, last - index)


def line_blur(image: np.ndarray, radius: float, sigma: float, angle: float) -> np.ndarray:
    """ImageMagick's motion blur: half a Gaussian laid along a line, the border repeating its last pixel.

    The kernel has 2 * radius + 1 steps of one pixel, rounded to whole pixels; `angle` is in degrees.
    """
    steps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).astype(np.float32)
    turn = np.deg2rad(angle)
    across = np.ceil(steps * np.cos(turn) - 0.5).astype(int)
    down = np.ceil(steps * np.sin(turn) - 0.5).astype(int)
    seen = weights > 1e-6  # the far end of a narrow kernel adds nothing
    height, width = image.shape[:2]
    top, left = max(-down.min(), 0), max(-across.min(), 0)
    padding = [(top, max(down.max(), 0)), (left, max(across.max(), 0))] + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(image, padding, mode="edge")
    out = np.zeros(image.shape, dtype=np.float32)
    term = np.empty_like(out)
    for weight, dy, dx in zip(weights[seen], down[seen] + top, across[seen] + left, strict=True):
        np.multiply(padded[dy : dy + height, dx : dx + width], weight, out=term)
        out += term
    return out
