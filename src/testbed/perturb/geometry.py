"""Geometric changes of bright strokes on a dark ground: moved, rotated, thinner or thicker.

Each function takes a magnitude and returns a perturbation of one float image (channels, height, width) in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Perturbation = Callable[["Tensor"], "Tensor"]
RandomPerturbation = Callable[["Tensor", np.random.Generator], "Tensor"]


def translation(pixels: int) -> RandomPerturbation:
    """Move the image by whole pixels up, down, left or right; pixels from outside are black."""
    if pixels < 0:
        raise ValueError(f"translation: expected pixels of at least 0, got {pixels}")

    def translate(image: Tensor, rng: np.random.Generator) -> Tensor:
        directions = ((-pixels, 0), (pixels, 0), (0, -pixels), (0, pixels))
        down, right = directions[rng.integers(len(directions))]
        height, width = image.shape[-2:]
        rows_to, rows_from = _overlap(down, height)
        columns_to, columns_from = _overlap(right, width)
        moved = image.new_zeros(image.shape)
        moved[..., rows_to, columns_to] = image[..., rows_from, columns_from]
        return moved

    return translate


def rotation(degrees: float) -> RandomPerturbation:
    """Rotate the image about its centre, to the left or to the right; pixels from outside are black."""

    def rotate(image: Tensor, rng: np.random.Generator) -> Tensor:
        from scipy import ndimage

        sign = (-1, 1)[rng.integers(2)]
        # Linear interpolation cannot leave [0, 1]; a spline of higher order could.
        turned = ndimage.rotate(image.numpy(), sign * degrees, axes=(1, 2), reshape=False, order=1)
        return _as_tensor(turned)

    return rotate


def thinner_strokes(radius: float) -> Perturbation:
    """Grey-scale erosion: each pixel becomes the darkest within `radius` pixels of it."""
    disc = _disc(radius)

    def thin(image: Tensor) -> Tensor:
        from scipy import ndimage

        return _as_tensor(ndimage.grey_erosion(image.numpy(), footprint=disc))

    return thin


def thicker_strokes(radius: float) -> Perturbation:
    """Grey-scale dilation: each pixel becomes the brightest within `radius` pixels of it."""
    disc = _disc(radius)

    def thicken(image: Tensor) -> Tensor:
        from scipy import ndimage

        return _as_tensor(ndimage.grey_dilation(image.numpy(), footprint=disc))

    return thicken


def _overlap(offset: int, length: int) -> tuple[slice, slice]:
    """Along one axis: the range that the moved image covers, and the range of the image that is moved there."""
    kept = max(length - abs(offset), 0)
    to, from_ = max(offset, 0), max(-offset, 0)
    return slice(to, to + kept), slice(from_, from_ + kept)


def _disc(radius: float) -> np.ndarray:
    """A footprint for scipy's morphology: the pixels within `radius` of the middle one, in one channel."""
    if radius < 0:
        raise ValueError(f"stroke width: expected a radius of at least 0, got {radius}")
    reach = int(radius)
    rows, columns = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    return (rows**2 + columns**2 <= radius**2)[None]


def _as_tensor(array: np.ndarray) -> Tensor:
    import torch

    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
