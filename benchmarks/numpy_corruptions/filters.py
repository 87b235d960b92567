"""The filters that corruptions share: smoothing, zooming, bilinear sampling, blur along a line.

Smoothing and zooming are linear along each axis, border rule included. Each is a sparse matrix that is made once per
side length and kept (a dense one if it smooths over most of the picture). Sparse products add up in a fixed order,
whatever the number of threads.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


def along_both_axes(down: Any, across: Any, image: np.ndarray) -> np.ndarray:
    """Apply the matrix `down` to the columns and `across` to the rows of an HW or HWC array."""
    height, width = image.shape[:2]
    planes = image.reshape(height, width, -1).transpose(1, 2, 0)
    turned = across @ np.ascontiguousarray(planes).reshape(width, -1)
    rows = turned.reshape(-1, height).T
    out = down @ np.ascontiguousarray(rows)
    return out.reshape(-1, turned.shape[0], *image.shape[2:])


def smooth(image: np.ndarray, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> np.ndarray:
    """A Gaussian filter over the first two axes; `mode` is the name of a border rule of scipy.ndimage."""
    height, width = image.shape[:2]
    return along_both_axes(smoothing(height, sigma, mode, truncate), smoothing(width, sigma, mode, truncate), image)


@lru_cache(maxsize=64)
def smoothing(side: int, sigma: float, mode: str, truncate: float) -> Any:
    """The (side, side) matrix that applies the Gaussian filter along one axis."""
    from scipy.ndimage import gaussian_filter1d

    # The filter is linear, so the filtered unit vectors are the columns of its matrix.
    return _sparse(gaussian_filter1d(np.eye(side), sigma, axis=0, mode=mode, truncate=truncate))


@lru_cache(maxsize=64)
def clipped_zoom(side: int, factor: float) -> Any:
    """The (side, side) matrix that enlarges the middle ceil(side / factor) pixels to `side` pixels.

    As published: enlarged by scipy's `zoom` of order 1, then trimmed equally at both ends.
    """
    from scipy.ndimage import zoom

    middle = int(np.ceil(side / factor))
    start = (side - middle) // 2
    enlarged = zoom(np.eye(middle), (factor, 1), order=1)
    trim = (enlarged.shape[0] - side) // 2
    matrix = np.zeros((side, side))
    matrix[:, start : start + middle] = enlarged[trim : trim + side]
    return _sparse(matrix)


def _sparse(matrix: np.ndarray) -> Any:
    from scipy.sparse import csr_matrix

    matrix = matrix.astype(np.float32)
    return matrix if np.count_nonzero(matrix) > matrix.size / 2 else csr_matrix(matrix)


def sample(image: np.ndarray, rows: np.ndarray, columns: np.ndarray, border: str) -> np.ndarray:
    """Bilinear interpolation of an HWC image at fractional rows and columns.

    Values beyond the border: "mirror" (mirrored at the border pixel), "reflect" (mirrored behind the border pixel,
    which is repeated) or "zero".
    """
    if border == "zero":
        image = np.pad(image, ((1, 1), (1, 1), (0, 0)))
        rows, columns = rows + 1, columns + 1
    height, width, channels = image.shape
    top, left = np.floor(rows), np.floor(columns)
    down, right = (rows - top).astype(np.float32), (columns - left).astype(np.float32)
    first_row, first_column = top.astype(np.intp), left.astype(np.intp)
    above, below = (_fold(first_row + step, height, border) * width for step in (0, 1))
    before, behind = (_fold(first_column + step, width, border) for step in (0, 1))
    corners = (
        (above + before, (1 - down) * (1 - right)),
        (above + behind, (1 - down) * right),
        (below + before, down * (1 - right)),
        (below + behind, down * right),
    )
    out = np.zeros((channels, *rows.shape), dtype=np.float32)
    for plane, total in zip(image.transpose(2, 0, 1), out, strict=True):
        flat = np.ascontiguousarray(plane).reshape(-1)
        for place, weight in corners:
            total += flat.take(place) * weight
    return out.transpose(1, 2, 0)


def _fold(index: np.ndarray, side: int, border: str) -> np.ndarray:
    """Map indices beyond the border to 0 .. side - 1, by the border rules of `sample`."""
    if border == "zero":  # `sample` has put a black frame around the picture
        return np.clip(index, 0, side - 1)
    # With 3 pixels "mirror" repeats 0 1 2 1, "reflect" 0 1 2 2 1 0.
    period, last = (max(2 * side - 2, 1), 2 * side - 2) if border == "mirror" else (2 * side, 2 * side - 1)
    if index.min() < -side or index.max() > 2 * side - 2:  # further away than the one fold below can bring back
        index = index % period
    index = np.where(index < 0, last - period - index, index)
    return np.where(index < side, index, last - index)


def line_blur(image: np.ndarray, radius: float, sigma: float, angle: float) -> np.ndarray:
    """ImageMagick's motion blur: one half of a Gaussian along a line; border pixels are repeated."""
    weights, down, across = line_kernel(radius, sigma, angle)
    height, width = image.shape[:2]
    top, left = max(-down.min(), 0), max(-across.min(), 0)
    padding = [(top, max(down.max(), 0)), (left, max(across.max(), 0))] + [(0, 0)] * (image.ndim - 2)
    padded = np.pad(image, padding, mode="edge")
    out = np.zeros(image.shape, dtype=np.float32)
    term = np.empty_like(out)
    for weight, dy, dx in zip(weights, down + top, across + left, strict=True):
        np.multiply(padded[dy : dy + height, dx : dx + width], weight, out=term)
        out += term
    return out


def line_kernel(radius: float, sigma: float, angle: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights of a blur along a line, and the offset of each in pixels down and to the right.

    The line has 2 * radius + 1 points, one pixel apart, rounded to whole pixels. `angle` is in degrees.
    """
    steps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).astype(np.float32)
    turn = np.deg2rad(angle)
    across = np.ceil(steps * np.cos(turn) - 0.5).astype(int)  # ImageMagick's rounding: halves go down
    down = np.ceil(steps * np.sin(turn) - 0.5).astype(int)
    relevant = weights > 1e-6  # the far end of a narrow kernel adds nothing
    return weights[relevant], down[relevant], across[relevant]
