"""Weather of ImageNet-C: pixels HWC in [0, 1] in, pixels in [0, 1] out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from numpy_corruptions.filters import along_both_axes, clipped_zoom, line_blur

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
# The published program draws one of five, so that its sixth picture, frost6.jpg, is never seen. Kept.
_FROST_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_FROST_SOURCE = "ImageNet-C/create_c of github.com/hendrycks/robustness"


def snow(
    image: np.ndarray,
    rng: np.random.Generator,
    *,
    mean: float,
    sigma: float,
    zoom: float,
    threshold: float,
    blur_radius: float,
    blur_sigma: float,
    keep: float,
) -> np.ndarray:
    """Whiten the picture and add flakes (enlarged, thresholded and blurred noise), and again rotated by 180 degrees.

    The angle of the blur is between -135 and -45 degrees, as published; the ImageNet Testbed passed it as radians.
    Unlike in the published program the flakes are not rounded to bytes before the blur.
    """
    height, width = image.shape[:2]
    flakes = rng.standard_normal((height, width), dtype=np.float32) * np.float32(sigma) + np.float32(mean)
    flakes = along_both_axes(clipped_zoom(height, zoom), clipped_zoom(width, zoom), flakes)
    flakes[flakes < threshold] = 0
    flakes = line_blur(np.minimum(flakes, 1), blur_radius, blur_sigma, rng.uniform(-135, -45))
    grey = (image @ _LUMA)[..., None]
    pale = np.maximum(image, grey * np.float32(1.5) + np.float32(0.5))  # 1.5 and 0.5, as published
    whitened = np.float32(keep) * image + np.float32(1 - keep) * pale
    return np.clip(whitened + (flakes + flakes[::-1, ::-1])[..., None], 0, 1)


def fog(image: np.ndarray, rng: np.random.Generator, amount: float, decay: float) -> np.ndarray:
    """Add clouds, then scale the sum so that no value exceeds the picture's brightest one."""
    height, width = image.shape[:2]
    # The map's side must be a power of two: 256 for the published 224 pixels.
    clouds = plasma(1 << (max(height, width) - 1).bit_length(), decay, rng)[:height, :width, None]
    brightest = image.max()
    return np.clip((image + np.float32(amount) * clouds) * (brightest / (brightest + np.float32(amount))), 0, 1)


def plasma(side: int, decay: float, rng: np.random.Generator) -> np.ndarray:
    """Clouds in [0, 1] by the diamond-square algorithm on a torus; `side` is a power of two.

    As published, the noise of a level is uniform within plus or minus the square of `spread`.
    """
    clouds = np.zeros((side, side))
    step, spread = side, 100.0  # 100 as published; its size does not matter, as clouds are scaled to [0, 1]
    while step >= 2:
        half = step // 2
        corners = clouds[::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=0)
        middle = (pairs + np.roll(pairs, -1, axis=1)) / 4
        middle += rng.uniform(-(spread**2), spread**2, middle.shape)
        clouds[half::step, half::step] = middle
        for axis in (0, 1):
            ends = corners + np.roll(corners, -1, axis=1 - axis)
            edge = (ends + middle + np.roll(middle, 1, axis=axis)) / 4
            edge += rng.uniform(-(spread**2), spread**2, edge.shape)
            if axis == 0:
                clouds[::step, half::step] = edge
            else:
                clouds[half::step, ::step] = edge
        step = half
        spread /= decay
    clouds -= clouds.min()
    return (clouds / max(clouds.max(), np.finfo(float).tiny)).astype(np.float32)


def frost(
    image: np.ndarray,
    rng: np.random.Generator,
    keep: float,
    weight: float,
    texture_scale: float,
    data_roots: Sequence[str] = (),
) -> np.ndarray:
    """Add a random crop of one of five photographs of frost, which are in the folder `frost_folder(data_roots)`.

    A texture smaller than the picture is enlarged until it covers it; the published program fails there.
    """
    height, width = image.shape[:2]
    path = str(frost_folder(data_roots) / _FROST_FILES[rng.integers(len(_FROST_FILES))])
    rows, columns = _frost_picture(path).shape[:2]
    texture = _frost_texture(path, max(texture_scale, (height + 1) / rows, (width + 1) / columns))
    top = rng.integers(max(texture.shape[0] - height, 1))
    left = rng.integers(max(texture.shape[1] - width, 1))
    crop = texture[top : top + height, left : left + width]
    return np.clip(np.float32(keep) * image + np.float32(weight / 255) * crop, 0, 1)


def frost_folder(data_roots: Sequence[str] = ()) -> Path:
    """The folder with the frost textures: TESTBED_FROST, else the first complete folder `frost` under a data root.

    Without `data_roots` these are the folders of TESTBED_DATA, else ./data.
    """
    named = os.environ.get("TESTBED_FROST")
    roots = data_roots or [part for part in (os.environ.get("TESTBED_DATA") or "data").split(os.pathsep) if part]
    places = [Path(named)] if named else [Path(root) / "frost" for root in roots]
    for place in places:
        if all((place / name).is_file() for name in _FROST_FILES):
            return place
    where = " or ".join(str(place) for place in places)
    raise FileNotFoundError(
        f"frost textures not found: expected {', '.join(_FROST_FILES)} in {where}. "
        f"Get them from {_FROST_SOURCE} and name their folder with TESTBED_FROST."
    )


@lru_cache(maxsize=len(_FROST_FILES))
def _frost_picture(path: str) -> np.ndarray:
    from PIL import Image

    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


@lru_cache(maxsize=2 * len(_FROST_FILES))
def _frost_texture(path: str, scale: float) -> np.ndarray:
    """The texture as bytes, scaled as by OpenCV's linear resize."""
    picture = _frost_picture(path)
    if scale == 1:
        return picture
    down, across = (_linear(side, round(side * scale), scale) for side in picture.shape[:2])
    return np.clip(np.rint(along_both_axes(down, across, picture.astype(np.float32))), 0, 255).astype(np.uint8)


def _linear(side: int, new_side: int, scale: float) -> np.ndarray:
    """The (new_side, side) matrix of linear interpolation without antialiasing, as by OpenCV's resize."""
    # OpenCV aligns the outer edges of the pictures, not the centres of their border pixels.
    place = np.clip((np.arange(new_side) + 0.5) / scale - 0.5, 0, side - 1)
    first = np.minimum(np.floor(place).astype(int), max(side - 2, 0))
    matrix = np.zeros((new_side, side), dtype=np.float32)
    matrix[np.arange(new_side), first] = 1 - (place - first)
    matrix[np.arange(new_side), np.minimum(first + 1, side - 1)] += place - first
    return matrix
