"""Weather of ImageNet-C, for batches (N, 3, H, W) in [0, 1] on any device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from testbed.perturb.corruptions.filters import line_blur, zoomed
from testbed.perturb.seeding import Random

Images = torch.Tensor  # (N, 3, H, W)

_LUMA = (0.299, 0.587, 0.114)
# The published program draws one of five, so that its sixth picture, frost6.jpg, is never seen. Kept.
_FROST_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_FROST_SOURCE = "ImageNet-C/create_c of github.com/hendrycks/robustness"
_SHARE_BITS = 31  # of a random whole number that stands for a share of a range


def snow(
    images: Images,
    rng: Random,
    *,
    mean: float,
    sigma: float,
    zoom: float,
    threshold: float,
    blur_radius: float,
    blur_sigma: float,
    keep: float,
) -> Images:
    """Whiten the picture and add flakes (enlarged, thresholded and blurred noise), and again rotated by 180 degrees.

    The angle of the blur is between -135 and -45 degrees, as published; the ImageNet Testbed passed it as radians.
    Unlike in the published program the flakes are not rounded to bytes before the blur.
    """
    noise = rng.normal((1, *images.shape[-2:])).mul_(sigma).add_(mean)
    flakes = functional.threshold(zoomed(noise, zoom), threshold, 0, inplace=True).clamp_(max=1)
    flakes = line_blur(flakes, blur_radius, blur_sigma, rng.uniform(-135, -45, (), on_host=True))
    grey = images[:, :1] * (1.5 * _LUMA[0]) + 0.5  # 1.5 times the grey value, plus 0.5, as published
    for channel in (1, 2):
        grey.add_(images[:, channel : channel + 1], alpha=1.5 * _LUMA[channel])
    whitened = torch.maximum(images, grey).lerp_(images, keep)
    return whitened.add_(flakes + flakes.flip(-2, -1)).clamp_(0, 1)


def fog(images: Images, rng: Random, amount: float, decay: float) -> Images:
    """Add clouds, then scale the sum so that no value exceeds the picture's brightest one."""
    height, width = images.shape[-2:]
    # The map's side must be a power of two: 256 for the published 224 pixels.
    clouds = plasma(1 << (max(height, width) - 1).bit_length(), decay, rng)
    lowest, highest = (end(clouds, dim=(1, 2), keepdim=True) for end in (torch.amin, torch.amax))
    brightest = images.amax(dim=(1, 2, 3))[:, None, None]
    scale = brightest / (brightest + amount)
    # The clouds fill the range from 0 to 1 before they are cut to the picture.
    strength = amount * scale / (highest - lowest).clamp_(min=torch.finfo(torch.float32).tiny)
    clouds = (clouds[:, :height, :width] - lowest).mul_(strength)
    return (images * scale[:, None]).add_(clouds[:, None]).clamp_(0, 1)


def plasma(side: int, decay: float, rng: Random) -> torch.Tensor:
    """Clouds (N, side, side) by the diamond-square algorithm on a torus, of any scale; `side` is a power of two.

    As published, the noise of a level is uniform within plus or minus the square of a spread, which every level
    divides by `decay`. Here the noise is always within 1, and what is there already is multiplied instead.
    """
    noise = rng.uniform(-1, 1, (side * side - 1,))  # of all levels, in their order
    clouds = torch.zeros(len(noise), 1, 1, device=noise.device)
    used = 0
    while (cells := clouds.shape[-1]) < side:
        drawn = noise[:, used : used + 3 * cells**2].view(-1, 3, cells, cells)
        used += 3 * cells**2
        clouds = clouds * decay**2
        aside, under = clouds + clouds.roll(-1, 2), clouds + clouds.roll(-1, 1)
        middle = torch.add(drawn[:, 0], aside + aside.roll(-1, 1), alpha=0.25)
        finer = clouds.new_empty(len(clouds), cells, 2, cells, 2)
        finer[:, :, 0, :, 0] = clouds
        finer[:, :, 1, :, 1] = middle
        torch.add(drawn[:, 1], aside.add_(middle).add_(middle.roll(1, 1)), alpha=0.25, out=finer[:, :, 0, :, 1])
        torch.add(drawn[:, 2], under.add_(middle).add_(middle.roll(1, 2)), alpha=0.25, out=finer[:, :, 1, :, 0])
        clouds = finer.view(-1, 2 * cells, 2 * cells)
    return clouds


def frost(
    images: Images,
    rng: Random,
    keep: float,
    weight: float,
    texture_scale: float,
    data_roots: Sequence[str] = (),
) -> Images:
    """Add a random crop of one of five photographs of frost, which are in the folder `frost_folder(data_roots)`.

    A texture smaller than the picture is enlarged until it covers it; the published program fails there.
    """
    height, width = images.shape[-2:]
    folder = frost_folder(data_roots)
    names = rng.integers(0, len(_FROST_FILES), (), on_host=True).tolist()
    # The range of an offset depends on the texture, so that shares of it are drawn.
    shares = rng.integers(0, 1 << _SHARE_BITS, (2,), on_host=True).tolist()
    crops = []
    for name, (down, across) in zip(names, shares, strict=True):
        path = str(folder / _FROST_FILES[name])
        rows, columns = _frost_picture(path).shape[:2]
        scale = max(texture_scale, (height + 1) / rows, (width + 1) / columns)
        texture = _frost_texture(path, scale, images.device)
        top = down * max(texture.shape[1] - height, 1) >> _SHARE_BITS
        left = across * max(texture.shape[2] - width, 1) >> _SHARE_BITS
        crops.append(texture[:, top : top + height, left : left + width])
    added = torch.stack(crops).to(images.dtype).mul_(weight / 255)
    return added.add_(images, alpha=keep).clamp_(0, 1)


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


@lru_cache(maxsize=4 * len(_FROST_FILES))
def _frost_texture(path: str, scale: float, device: torch.device) -> torch.Tensor:
    """The texture (3, rows, columns) as bytes, scaled as by OpenCV's linear resize, on the device."""
    picture = _frost_picture(path)
    if scale != 1:
        wide = _resized(picture.astype(np.float32), scale, axis=1)
        picture = np.clip(np.rint(_resized(wide, scale, axis=0)), 0, 255).astype(np.uint8)
    return torch.from_numpy(picture.transpose(2, 0, 1).copy()).to(device)


def _resized(picture: np.ndarray, scale: float, axis: int) -> np.ndarray:
    """Linear interpolation along an axis without antialiasing, as by OpenCV's resize."""
    side = picture.shape[axis]
    # OpenCV aligns the outer edges of the pictures, not the centres of their border pixels.
    place = np.clip((np.arange(round(side * scale)) + 0.5) / scale - 0.5, 0, side - 1)
    first = np.minimum(np.floor(place).astype(int), max(side - 2, 0))
    beyond = np.expand_dims(place - first, [other for other in range(picture.ndim) if other != axis])
    before, behind = picture.take(first, axis), picture.take(np.minimum(first + 1, side - 1), axis)
    return before * (1 - beyond).astype(np.float32) + behind * beyond.astype(np.float32)
