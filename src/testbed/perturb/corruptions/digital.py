"""Colour, compression, resolution and stretching of ImageNet-C, for batches (N, 3, H, W) in [0, 1] on any device.

The published programs convert to HSV and back for brightness and saturation. While the hue is kept, every channel is
v * (1 - s * k) with v = max, d = max - min and k = (v - channel) / d; so both are computed on RGB, without the hue.
"""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
import torch
from torch.nn.functional import grid_sample

from testbed.perturb.corruptions.filters import smooth
from testbed.perturb.seeding import Random

Images = torch.Tensor  # (N, 3, H, W)

_NOTHING = 1e-30  # instead of 0 where 0 would be divided by 0: far below any grey level, far above float32's least
_FRACTION_BITS = 22  # of the weights in PIL's resize of bytes


def brightness(images: Images, rng: Random, shift: float) -> Images:
    """Add `shift` to the V of HSV. Black, which has no hue, becomes grey."""
    scaled = images.clamp(min=_NOTHING)  # a black pixel is a dark grey, which has a ratio to the lifted one
    value = scaled.amax(dim=1, keepdim=True)
    return scaled.mul_((value + shift).clamp_(max=1).div_(value)).clamp_(0, 1)


def contrast(images: Images, rng: Random, factor: float) -> Images:
    """Scale the distance of every value from the mean of its channel by `factor`."""
    means = images.mean(dim=(2, 3), keepdim=True)
    return torch.add(means * (1 - factor), images, alpha=factor).clamp_(0, 1)


def saturate(images: Images, rng: Random, factor: float, shift: float) -> Images:
    """Set the S of HSV to S * factor + shift. As published, a grey pixel counts as red (hue 0)."""
    value = images.amax(dim=1, keepdim=True)
    spread = value - images.amin(dim=1, keepdim=True)
    saturation = (spread / value.clamp(min=_NOTHING)).mul_(factor).add_(shift).clamp_(0, 1)
    new_spread = saturation.mul_(value)
    out = torch.lerp(value, images, new_spread / spread.clamp(min=_NOTHING))
    if shift:  # red keeps the value of a grey pixel, green and blue lose saturation; without a shift it stays grey
        out[:, 1:] -= new_spread.masked_fill_(spread != 0, 0)
    return out.clamp_(0, 1)


def jpeg_compression(images: Images, rng: Random, quality: float) -> Images:
    """Encode as JPEG in memory and decode again (PIL's defaults, so 4:2:0 chroma subsampling)."""
    from PIL import Image

    out = torch.empty_like(images)
    for planes, decoded in zip(_levels(images).numpy().astype(np.uint8), out, strict=True):
        file = io.BytesIO()
        Image.merge("RGB", [Image.fromarray(plane) for plane in planes]).save(file, "JPEG", quality=int(quality))
        pixels = torch.from_numpy(np.array(Image.open(file)))
        torch.div(pixels.permute(2, 0, 1).contiguous(), 255, out=decoded)
    return out


def pixelate(images: Images, rng: Random, scale: float) -> Images:
    """Shrink by the factor `scale` and enlarge to the old size, both with a box filter.

    The bytes are those of PIL: whole numbers, along the rows first, rounded to bytes after each axis. For pictures more
    than twice as high as wide they are those of PIL before version 13, which shrinks such along the columns first.
    """
    levels = _levels(images).int()
    sides = [(axis, levels.shape[axis]) for axis in (3, 2)]
    for axis, side in sides:
        levels = _resized(levels, axis, max(int(side * scale), 1))
    for axis, side in sides:
        levels = _resized(levels, axis, side)
    return levels.float().div_(255)


def _resized(levels: torch.Tensor, axis: int, new_side: int) -> torch.Tensor:
    """Bytes as int32, resized along an axis with a box filter."""
    places, weights = _box(levels.shape[axis], new_side, levels.device)
    if len(places) == 1:  # enlarged: pixels are repeated
        return _picked(levels, axis, places[0])
    shape = [new_side if other == axis else 1 for other in range(4)]
    total = _picked(levels, axis, places[0]).mul_(weights[0].view(shape))
    for place, weight in zip(places[1:], weights[1:], strict=True):
        total.addcmul_(_picked(levels, axis, place), weight.view(shape))
    return total.add_(1 << _FRACTION_BITS - 1).bitwise_right_shift_(_FRACTION_BITS)


def _picked(levels: torch.Tensor, axis: int, places: torch.Tensor) -> torch.Tensor:
    """As index_select, which takes twice as long along the last axis."""
    if axis == 3:
        return levels.gather(3, places.expand(*levels.shape[:3], len(places)))
    return levels.index_select(axis, places)


@lru_cache(maxsize=64)
def _box(side: int, new_side: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """For every pixel of the new side the places of the old pixels under it, and their weights as whole numbers.

    Both are (n, new_side), where n is the largest number of pixels; fewer are filled up with the weight 0.
    """
    ratio = side / new_side
    reach = max(ratio, 1)  # of the box; one pixel if the side is enlarged
    pixels, middles = np.arange(side), ((np.arange(new_side) + 0.5) * ratio)[:, None]
    # PIL's arithmetic, step by step: where the end of a box meets the middle of a pixel, rounding decides.
    distances = (pixels - middles + 0.5) * (1 / reach)
    inside = (distances > -0.5) & (distances <= 0.5)
    inside &= pixels >= np.floor(middles - 0.5 * reach + 0.5)
    inside &= pixels < np.floor(middles + 0.5 * reach + 0.5)
    counts = inside.sum(axis=1)
    taps = np.arange(counts.max())[:, None]
    places = np.minimum(inside.argmax(axis=1) + taps, side - 1)
    weights = np.where(taps < counts, np.floor((1 << _FRACTION_BITS) / counts + 0.5), 0)
    return torch.from_numpy(places).to(device), torch.from_numpy(weights.astype(np.int32)).to(device)


def _levels(images: Images) -> torch.Tensor:
    """Whole grey levels from 0 to 255, rounded: a cut would lose levels to float errors."""
    return (images * 255).round_()


def elastic_transform(images: Images, rng: Random, alpha: float, sigma: float, affine: float) -> Images:
    """A random affine map (three points are moved), then a displacement of every pixel by a smoothed random field.

    As published the picture is resampled twice: for the affine map it is mirrored at the border pixel, for the field
    behind the border pixel, which is repeated.
    """
    height, width = images.shape[-2:]
    across, down = affine_back(height, width, affine, rng)
    places = across.to(images.device, non_blocking=True) + down.to(images.device, non_blocking=True)
    images = _sampled(images, places, mirror=True)
    if alpha:  # at severity 1 the programs for 32 and 64 pixels leave out the field
        places = smooth(rng.uniform(-1, 1, (2, height, width)), sigma, mode="reflect", truncate=3)
        for axis, (centres, length) in enumerate(_centres(height, width, images.device)):
            places[:, axis].mul_(alpha * 2 / length).add_(centres)
        images = _sampled(images, places, mirror=False)
    return images.clamp_(0, 1)


def _sampled(images: Images, places: torch.Tensor, mirror: bool) -> Images:
    """Bilinear interpolation at places (N, 2, H, W), x and y from -1 to 1.

    These are the centres of the border pixels with `mirror`, else their outer edges. Beyond, the picture is mirrored
    at the same: at the border pixel, or behind it, which repeats it.
    """
    grid = places.permute(0, 2, 3, 1)
    return grid_sample(images, grid, padding_mode="reflection", align_corners=mirror)


@lru_cache(maxsize=64)
def _centres(height: int, width: int, device: torch.device) -> tuple[tuple[torch.Tensor, int], ...]:
    """Along x and along y: the centres of the pixels between the outer edges, -1 and 1, and the side."""
    x, y = ((2 * np.arange(side, dtype=np.float32) + 1) / side - 1 for side in (width, height))
    return (torch.from_numpy(x).to(device), width), (torch.from_numpy(y[:, None]).to(device), height)


def affine_back(height: int, width: int, affine: float, rng: Random) -> tuple[torch.Tensor, torch.Tensor]:
    """For each picture a random affine map, from places in the new picture to x and y in the old one.

    It is the map that takes three points, each moved by up to `affine` pixels along x and y, back to where they were.
    A place in the old picture is the sum of a part (N, 2, 1, W) for its column and one (N, 2, H, 1) for its row in the
    new one; -1 and 1 are the centres of the border pixels.
    """
    middle, arm = np.array([width // 2, height // 2]), min(height, width) // 3
    points = middle + arm * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    moved = points + rng.uniform(-affine, affine, points.shape, on_host=True).numpy()
    equations = np.concatenate([moved, np.ones_like(moved[..., :1])], axis=-1)
    to_ends = 2 / (np.array([width, height]) - 1)
    along_x, along_y, start = np.moveaxis(np.linalg.solve(equations, points * to_ends), 1, 0)[..., None]
    across = (along_x * np.arange(width) + start - 1).astype(np.float32)
    down = (along_y * np.arange(height)).astype(np.float32)
    return torch.from_numpy(across)[:, :, None, :], torch.from_numpy(down)[..., None]
