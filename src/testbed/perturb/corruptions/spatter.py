"""Spatter of ImageNet-C: drops of water or splashes of mud on the lens, for batches (N, 3, H, W) in [0, 1] on the CPU.

The published program shades water with a chain of OpenCV calls (Canny, distance transform, histogram equalisation,
emboss). Each is written here with OpenCV's whole numbers, in NumPy, for one picture at a time. The time goes into
passes over the picture, so that arrays are as narrow as their values allow, and flat: a picture lies in a frame, row
after row, and a neighbour is a fixed number of places away. What falls on the frame is not used.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional

from testbed.perturb.corruptions.filters import smooth
from testbed.perturb.seeding import Random

Images = torch.Tensor  # (N, 3, H, W)

_WATER = (175 / 255, 238 / 255, 238 / 255)
_MUD = (63 / 255, 42 / 255, 20 / 255)
# OpenCV's 5 x 5 chamfer distance: a step aside, a diagonal step and a knight's move, in 1/65536 of a pixel.
_ASIDE, _DIAGONAL, _KNIGHT = 65536, round(1.4 * 65536), round(2.1969 * 65536)
_LIMIT = 20  # the largest distance, in pixels
_PACK = 4  # neighbours whose distances are looked up together


def spatter(
    images: Images,
    rng: Random,
    *,
    mean: float,
    sigma: float,
    blur_sigma: float,
    threshold: float,
    strength: float,
    mud: float,
) -> Images:
    """Smoothed noise above a threshold is liquid: water adds shaded turquoise, mud (`mud` = 1) covers with brown.

    Liquid above 1 (seldom, and only in small pictures) stays white; the published cast to bytes wraps it to black.
    """
    layer = smooth(rng.normal((1, *images.shape[-2:])).mul_(sigma).add_(mean), blur_sigma)
    if mud:
        mask = (layer.numpy() > threshold).astype(np.float32)
        cover = functional.threshold(smooth(torch.from_numpy(mask), strength), 0.8, 0, inplace=True)
        return torch.lerp(images, torch.tensor(_MUD)[:, None, None], cover).clamp_(0, 1)
    liquid = functional.threshold(layer, threshold, 0, inplace=True).mul_(255).clamp_(max=255)
    for plane, levels in zip(layer, liquid.numpy().astype(np.uint8), strict=True):
        plane.copy_(torch.from_numpy(_water_light(levels[0], strength)))
    return torch.addcmul(images, layer, torch.tensor(_WATER)[:, None, None]).clamp_(0, 1)


def _water_light(levels: np.ndarray, strength: float) -> np.ndarray:
    """How much water adds to every pixel, at most `strength`."""
    light = levels * relief(levels)  # of uint16, up to 255 * 255
    return light * (np.float32(strength) / np.float32(max(light.max(), 1)))


def relief(levels: np.ndarray) -> np.ndarray:
    """The shading of drops, from 0 to 255: the distance to their outline, equalised and embossed."""
    row = levels.shape[1] + 2
    distance = _framed(chamfer_distance(canny(levels, 50, 150)), np.float32)
    # The published program cuts the blurred distance to bytes; OpenCV's blur of bytes, at the end, rounds.
    blurred = (_box_sum(distance, row) / np.float32(9)).astype(np.uint8)
    heights = _framed(equalised(_unframed(blurred, row)), np.int16)
    _fill_frame(heights, row, 2)
    framed = np.empty_like(heights)
    # Emboss: the weights are -2 -1 0, -1 1 1 and 0 1 2.
    lit = np.subtract(_inner(heights, row, row + 1), _inner(heights, row, -row - 1), out=_inner(framed, row))
    lit += lit
    for step in (row, 1):
        lit += _inner(heights, row, step)
        lit -= _inner(heights, row, -step)
    lit += _inner(heights, row)
    np.minimum(np.maximum(lit, 0, out=lit), 255, out=lit)
    rounded = (_box_sum(framed, row) + np.int16(4)) // np.int16(9)
    return _unframed(rounded.view(np.uint16), row)


def canny(levels: np.ndarray, low: int, high: int) -> np.ndarray:
    """The edges of a byte image as a mask, equal to OpenCV's Canny (3 x 3 Sobel, |dx| + |dy|)."""
    row = levels.shape[1] + 2
    framed = _framed(levels, np.int16)
    _fill_frame(framed, row, 1)
    twice = framed + framed
    column = framed[: -2 * row] + framed[2 * row :]
    column += twice[row:-row]
    line = framed[:-2] + framed[2:]
    line += twice[1:-1]
    dx, dy = column[2:] - column[:-2], line[2 * row :] - line[: -2 * row]
    opposite = (dx ^ dy) < 0
    np.abs(dx, out=dx)
    np.abs(dy, out=dy)
    framed_strength = np.zeros_like(framed)
    strength = _inner(framed_strength, row)
    np.add(dx, dy, out=strength)
    strength.reshape(-1, row)[:, -2:] = 0  # nothing beyond the border is stronger
    ridge = (strength > low) & _is_ridge(framed_strength, row, dx, dy, opposite)
    # Hysteresis: a connected part of the ridges is an edge if any of its pixels is above `high`.
    edges = np.zeros(len(framed), dtype=bool)
    strong = np.logical_and(ridge, strength > high, out=_inner(edges, row))
    weak = np.flatnonzero(ridge > strong) + row + 1
    around = np.array([down + right for down in (-row, 0, row) for right in (-1, 0, 1)])
    while weak.size:
        reached = edges[weak[:, None] + around].any(axis=1)
        if not reached.any():
            break
        edges[weak[reached]] = True
        weak = weak[~reached]
    return _unframed(strong, row)


def _is_ridge(strength: np.ndarray, row: int, dx: np.ndarray, dy: np.ndarray, opposite: np.ndarray) -> np.ndarray:
    """Where the (framed) gradient is a maximum along its direction (non-maximum suppression).

    `dx` and `dy` are its absolute values, `opposite` tells where their signs differ. As in OpenCV a tie with the
    neighbour to the right or below is allowed, but not with a diagonal one.
    """
    here = _inner(strength, row)

    def above(step: int) -> np.ndarray:
        return here > _inner(strength, row, step)

    def along(step: int) -> np.ndarray:
        return above(-step) & (here >= _inner(strength, row, step))

    # 13573 / 32768 is OpenCV's tan(22.5 degrees). Its tan(67.5 degrees) is not quite the inverse, but no whole numbers
    # up to 1020, the largest gradient, lie between the two. The products are exact in float32.
    tangent = np.float32(13573 / 32768)
    ridge = above(-row - 1) & above(row + 1)
    for chosen, other in (
        (opposite, above(1 - row) & above(row - 1)),
        (dx < dy * tangent, along(row)),
        (dy < dx * tangent, along(1)),
    ):
        ridge ^= (ridge ^ other) & chosen  # np.where(chosen, other, ridge), but faster
    return ridge


def chamfer_distance(edges: np.ndarray) -> np.ndarray:
    """The length of the shortest 5 x 5 chamfer path from each pixel to an edge, at most 20 pixels.

    Of every row only its edge nearest to the pixel's column can be the nearest of all, so the minimum is taken over
    these, for rows up to 20 away. Lengths are compared by their rank among all lengths, which is a byte.
    """
    height, width = edges.shape
    # Behind each row there is room for the limit, so that no edge is near to a pixel of the next row.
    row = -(-(width + _LIMIT) // _PACK) * _PACK
    beside = np.full((height, row), _LIMIT, dtype=np.uint8)
    np.multiply(~edges, np.uint8(_LIMIT), out=beside[:, :width])
    beside = beside.reshape(-1)
    for step in (1, 2, 4, 8, 4):  # distances up to 1, 3, 7, 15 and 19 are known
        further = beside + np.uint8(step)
        np.minimum(beside[step:], further[:-step], out=beside[step:])
        np.minimum(beside[:-step], further[step:], out=beside[:-step])
    lengths, ranks = _chamfer_lengths()
    codes = _pack_codes(beside.view(np.uint32)).astype(np.intp)
    nearest = ranks[0].take(codes).view(np.uint8)
    nearest.reshape(height, row)[:, width:] = 0
    for rows in range(1, min(height, _LIMIT)):
        if rows % 4 == 0 and lengths[nearest.max()] <= rows:  # rows further away cannot be nearer
            break
        paths, step = ranks[rows].take(codes).view(np.uint8), rows * row
        np.minimum(nearest[step:], paths[:-step], out=nearest[step:])
        np.minimum(nearest[:-step], paths[step:], out=nearest[:-step])
    return lengths.take(nearest.reshape(height, row)[:, :width])


@lru_cache(maxsize=1)
def _chamfer_lengths() -> tuple[np.ndarray, np.ndarray]:
    """All path lengths in order; and for every number of rows, the ranks of the lengths for four numbers of columns.

    These four are given by their code. A path has knight's moves; the rest are straight or diagonal steps.
    """
    rows, columns = np.mgrid[:_LIMIT, : _LIMIT + 1]
    longer, shorter = np.maximum(rows, columns), np.minimum(rows, columns)
    flat = shorter * _KNIGHT + (longer - 2 * shorter) * _ASIDE
    steep = (longer - shorter) * _KNIGHT + (2 * shorter - longer) * _DIAGONAL
    length = np.minimum(np.where(2 * shorter <= longer, flat, steep), _LIMIT * _ASIDE)
    lengths, ranks = np.unique(length, return_inverse=True)
    columns = np.stack(np.meshgrid(*[np.arange(_LIMIT + 1, dtype=np.uint8)] * _PACK, indexing="ij"), axis=-1)
    columns = columns[(np.abs(np.diff(columns.astype(int), axis=-1)) <= 1).all(axis=-1)]
    codes = _pack_codes(columns.view(np.uint32)[..., 0])
    packed = np.zeros((_LIMIT, codes.max() + 1, _PACK), dtype=np.uint8)
    packed[:, codes] = ranks.reshape(rows.shape)[:, columns]
    return (lengths / _ASIDE).astype(np.float32), packed.view(np.uint32)[..., 0]


def _pack_codes(packed: np.ndarray) -> np.ndarray:
    """Four neighbouring distances, each a byte, as 11 bits.

    Neighbours differ by one at most, so that two bits of each tell all of it but the first.
    """
    codes = packed & 0x1F
    for shift, bits in ((3, 0x60), (9, 0x180), (15, 0x600)):
        codes |= packed >> np.uint32(shift) & np.uint32(bits)
    return codes


def equalised(levels: np.ndarray) -> np.ndarray:
    """Histogram equalisation of bytes up to 20, equal to OpenCV's; an image of one level stays as it is."""
    single = levels.reshape(-1)
    pairs = np.append(single, single[:1]) if single.size % 2 else single
    pairs = pairs.view(np.uint16).astype(np.intp)  # two levels at once: half the places to look up
    both = np.bincount(pairs, minlength=(_LIMIT + 1) * 256).reshape(-1, 256)[:, : _LIMIT + 1]
    counts = both.sum(axis=0) + both.sum(axis=1)
    counts[single[0]] -= single.size % 2
    lowest = int(np.flatnonzero(counts)[0])
    others = levels.size - counts[lowest]
    if others == 0:
        return levels
    below = np.cumsum(counts) - counts[lowest]
    new = np.zeros(256, dtype=np.uint16)
    new[: _LIMIT + 1] = np.rint(np.clip(below * (255 / others), 0, 255))
    new_pairs = (new[: _LIMIT + 1, None] << 8 | new).reshape(-1)
    return new_pairs.take(pairs).view(np.uint8)[: levels.size].reshape(levels.shape)


def _framed(values: np.ndarray, dtype: type) -> np.ndarray:
    """The picture in a frame of one pixel of 0, and two more places, as a flat array."""
    height, width = values.shape
    framed = np.zeros((height + 2) * (width + 2) + 2, dtype=dtype)
    framed[:-2].reshape(height + 2, width + 2)[1:-1, 1:-1] = values
    return framed


def _fill_frame(framed: np.ndarray, row: int, distance: int) -> None:
    """Set the frame to the pixels at a distance: 1 repeats the border pixel, 2 mirrors at the border pixel."""
    grid = framed[:-2].reshape(-1, row)
    grid[0], grid[-1] = grid[distance], grid[-1 - distance]
    grid[:, 0], grid[:, -1] = grid[:, distance], grid[:, -1 - distance]


def _inner(framed: np.ndarray, row: int, step: int = 0) -> np.ndarray:
    """The neighbours, `step` places further, of the places from the first pixel of the picture on."""
    first = row + 1 + step
    return framed[first : first + len(framed) - 2 * row - 2]


def _unframed(inner: np.ndarray, row: int) -> np.ndarray:
    """The picture in an array that starts with its first pixel."""
    return inner.reshape(-1, row)[:, :-2]


def _box_sum(framed: np.ndarray, row: int) -> np.ndarray:
    """Sums over 3 x 3 pixels, from the first pixel on; mirrored at the border pixel."""
    _fill_frame(framed, row, 2)
    rows = framed[: -2 * row] + framed[row:-row]
    rows += framed[2 * row :]
    total = rows[:-2] + rows[1:-1]
    total += rows[2:]
    return total
