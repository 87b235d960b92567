"""Spatter of ImageNet-C: drops of water or splashes of mud on the lens.

The water's relief is published as a chain of OpenCV calls (Canny, distance transform, equalised histogram,
emboss); each is written here in whole-array numpy with OpenCV's integer arithmetic.
"""

from __future__ import annotations

import numpy as np

from testbed.perturb.corruptions.filters import smooth

_WATER = np.array([175, 238, 238], dtype=np.float32) / 255
_MUD = np.array([63, 42, 20], dtype=np.float32) / 255
_EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
# Chamfer lengths of one step aside, one diagonal step and one knight's move, in 1/65536 of a pixel (OpenCV, 5 x 5).
_ASIDE, _DIAGONAL, _KNIGHT = 65536, round(1.4 * 65536), round(2.1969 * 65536)
_FAR = 1 << 28


def spatter(
    image: np.ndarray,
    rng: np.random.Generator,
    mean: float,
    sigma: float,
    blur_sigma: float,
    threshold: float,
    strength: float,
    mud: float,
) -> np.ndarray:
    """Smoothed noise above a threshold is liquid: water adds a shaded pale turquoise, mud covers with brown."""
    layer = rng.standard_normal(image.shape[:2]) * sigma + mean
    layer = smooth(layer.astype(np.float32), blur_sigma)
    layer[layer < threshold] = 0
    if mud:
        cover = smooth((layer > threshold).astype(np.float32), strength)
        cover[cover < 0.8] = 0
        return np.clip(image * (1 - cover[..., None]) + _MUD * cover[..., None], 0, 1)
    levels = np.minimum(layer * 255, 255).astype(np.uint8)
    light = levels * _relief(levels).astype(np.float32)
    brightest = light.max()
    if brightest > 0:
        light *= np.float32(strength) / brightest
    return np.clip(image + light[..., None] * _WATER, 0, 1)


def _relief(levels: np.ndarray) -> np.ndarray:
    """How drops are shaded: the distance to their outline, equalised, lit from one corner."""
    distance = np.minimum(chamfer_distance(canny(levels, 50, 150)), np.float32(20))
    distance = equalised((_box_sum(distance.astype(np.float64)) / 9).astype(np.float32).astype(np.uint8))
    padded = np.pad(distance.astype(np.int32), 1, mode="reflect")
    height, width = levels.shape
    lit = np.zeros((height, width), dtype=np.int32)
    for down, row in enumerate(_EMBOSS):
        for right, weight in enumerate(row):
            lit += weight * padded[down : down + height, right : right + width]
    return np.rint(_box_sum(np.clip(lit, 0, 255)) / 9)


def canny(levels: np.ndarray, low: int, high: int) -> np.ndarray:
    """Edges of a byte image, as OpenCV's Canny finds them (3 x 3 Sobel, |dx| + |dy|)."""
    from scipy.ndimage import label

    padded = np.pad(levels.astype(np.int32), 1, mode="edge")
    across = padded[:, 2:] - padded[:, :-2]
    dx = across[:-2] + 2 * across[1:-1] + across[2:]
    down = padded[2:] - padded[:-2]
    dy = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
    strength = np.abs(dx) + np.abs(dy)
    ridge = (strength > low) & _is_ridge(strength, dx, dy)
    parts, count = label(ridge, structure=np.ones((3, 3)))
    strong = np.zeros(count + 1, dtype=bool)
    strong[parts[ridge & (strength > high)]] = True
    return strong[parts]


def _is_ridge(strength: np.ndarray, dx: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Stronger than both neighbours along the gradient; a tie with the later one is allowed off the diagonals."""
    height, width = strength.shape
    padded = np.pad(strength, 1)

    def beside(down: int, right: int) -> np.ndarray:
        return padded[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    # tan(22.5 degrees) in 1/32768, and tan(67.5 degrees) = tan(22.5 degrees) + 2
    steep = np.abs(dy).astype(np.int64) << 15
    flat_limit = np.abs(dx).astype(np.int64) * 13573
    steep_limit = flat_limit + (np.abs(dx).astype(np.int64) << 16)
    sideways = (strength > beside(0, -1)) & (strength >= beside(0, 1))
    upright = (strength > beside(-1, 0)) & (strength >= beside(1, 0))
    falling = (strength > beside(-1, -1)) & (strength > beside(1, 1))
    rising = (strength > beside(-1, 1)) & (strength > beside(1, -1))
    slanted = np.where((dx ^ dy) < 0, rising, falling)
    return np.where(steep < flat_limit, sideways, np.where(steep > steep_limit, upright, slanted))


def chamfer_distance(edges: np.ndarray) -> np.ndarray:
    """The distance of every pixel to the next edge, by 5 x 5 chamfer steps: one sweep down and one up."""
    distance = np.where(edges, 0, _FAR).astype(np.int32)
    _sweep(distance)
    _sweep(distance[::-1, ::-1])
    return (distance / np.float64(65536)).astype(np.float32)


def _sweep(distance: np.ndarray) -> None:
    """Carry distances from the two rows above and from the left; in place."""
    width = distance.shape[1]
    ramp = np.arange(width, dtype=np.int32) * _ASIDE
    near = np.full(width + 4, _FAR, dtype=np.int32)  # the row above, with room for two steps aside
    far = near.copy()
    moves = ((near, 2, _ASIDE), (near, 1, _DIAGONAL), (near, 3, _DIAGONAL))
    knights = ((near, 0, _KNIGHT), (near, 4, _KNIGHT), (far, 1, _KNIGHT), (far, 3, _KNIGHT))
    for row in distance:
        for source, start, length in moves + knights:
            np.minimum(row, source[start : start + width] + length, out=row)
        row[:] = np.minimum.accumulate(row - ramp) + ramp
        far[:] = near
        near[2:-2] = row


def equalised(levels: np.ndarray) -> np.ndarray:
    """Bytes spread evenly over 0 .. 255 by their rank; one single level stays as it is."""
    counts = np.bincount(levels.reshape(-1), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    others = levels.size - counts[lowest]
    if others == 0:
        return levels
    below = np.cumsum(counts) - counts[lowest]
    return np.rint(np.clip(below * (255 / others), 0, 255)).astype(np.uint8)[levels]


def _box_sum(values: np.ndarray) -> np.ndarray:
    """Sums over 3 x 3 pixels; the border is a mirror."""
    padded = np.pad(values, 1, mode="reflect")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
