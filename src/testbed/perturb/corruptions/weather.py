"""Weather of ImageNet-C: pixels HWC in [0, 1] in, pixels in [0, 1] out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from testbed.perturb.corruptions.filters import along_both_axes, clipped_zoom, line_blur

_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
# The published program draws one of five, so that its sixth picture, frost6.jpg, is never seen. Kept.
_FROST_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_FROST_SOURCE = "ImageNet-C/create_c of github.com/hendrycks/robustness"


def snow(
    image: np.ndarray,
    rng: np.random.Generator,
    mean: float,
    sigma: float,
    zoom: float,
    threshold: float,
    blur_radius: float,
    blur_sigma: float,
    keep: float,
) -> np.ndarray:
    """Flakes (thresholded noise, enlarged and smeared downwards), once as they fall and once turned by half.

    The angle is between -135 and -45 degrees, as published; the ImageNet Testbed gave it as radians. The layer
    of flakes is not rounded to bytes on its way through the blur.
    """
    height, width = image.shape[:2]
    flakes = rng.standard_normal((height, width), dtype=np.float32) * np.float32(sigma) + np.float32(mean)
    flakes = along_both_axes(clipped_zoom(height, zoom), clipped_zoom(width, zoom), flakes)
    flakes[flakes < threshold] = 0
    flakes = line_blur(np.minimum(flakes, 1), blur_radius, blur_sigma, rng.uniform(-135, -45))
    grey = (image @ _LUMA)[..., None]
    pale = np.maximum(image, grey * np.float32(1.5) + np.float32(0.5))
    whitened = np.float32(keep) * image + np.float32(1 - keep) * pale
    return np.clip(whitened + (flakes + flakes[::-1, ::-1])[..., None], 0, 1)


def fog(image: np.ndarray, rng: np.random.Generator, amount: float, decay: float) -> np.ndarray:
    """Lay clouds over the picture and draw the sum back to the picture's own brightest value."""
    height, width = image.shape[:2]
    clouds = plasma(1 << (max(height, width) - 1).bit_length(), decay, rng)[:height, :width, None]
    brightest = image.max()
    return np.clip((image + np.float32(amount) * clouds) * (brightest / (brightest + np.float32(amount))), 0, 1)


def plasma(side: int, decay: float, rng: np.random.Generator) -> np.ndarray:
    """Diamond-square clouds in [0, 1] on a torus; `side` is a power of two.

    The noise of a level is uniform within plus or minus the square of its width, as published.
    """
    clouds = np.zeros((side, side))
    step, spread = side, 100.0
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
    """Add a random cut-out of one of five photographs of frost, which lie in a folder `frost` of a data root.

    A texture smaller than the picture is enlarged until it covers it, where the published program would stop.
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
    """TESTBED_FROST, else the first folder `frost` under the data roots of the run, else of TESTBED_DATA or data."""
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
    """The texture as bytes, scaled as OpenCV does it."""
    picture = _frost_picture(path)
    if scale == 1:
        return picture
    down, across = (_linear(side, round(side * scale), scale) for side in picture.shape[:2])
    return np.clip(np.rint(along_both_axes(down, across, picture.astype(np.float32))), 0, 255).astype(np.uint8)


def _linear(side: int, new_side: int, scale: float) -> np.ndarray:
    """Linear interpolation between the two nearest pixels, without antialiasing (as OpenCV's resize)."""
    place = np.clip((np.arange(new_side) + 0.5) / scale - 0.5, 0, side - 1)
    first = np.minimum(np.floor(place).astype(int), max(side - 2, 0))
    matrix = np.zeros((new_side, side), dtype=np.float32)
    matrix[np.arange(new_side), first] = 1 - (place - first)
    matrix[np.arange(new_side), np.minimum(first + 1, side - 1)] += place - first
    return matrix
