"""Spatter of ImageNet-C: drops of water or splashes of mud on the lens.

The published program shades water with a chain of OpenCV calls (Canny, distance transform, histogram equalisation,
emboss). Each is written here in whole-array numpy with OpenCV's integer arithmetic.
"""

from __future__ import annotations

import numpy as np

from numpy_corruptions.filters import smooth

_WATER = np.array([175, 238, 238], dtype=np.float32) / 255
_MUD = np.array([63, 42, 20], dtype=np.float32) / 255
_EMBOSS = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))
# OpenCV's 5 x 5 chamfer distance: a step aside, a diagonal step and a knight's move, in 1/65536 of a pixel.
_ASIDE, _DIAGONAL, _KNIGHT = 65536, round(1.4 * 65536), round(2.1969 * 65536)


def spatter(
    image: np.ndarray,
    rng: np.random.Generator,
    *,
    mean: float,
    sigma: float,
    blur_sigma: float,
    threshold: float,
    strength: float,
    mud: float,
) -> np.ndarray:
    """Smoothed noise above a threshold is liquid: water adds shaded turquoise, mud (`mud` = 1) covers with brown.

    Liquid above 1 (seldom, and only in small pictures) stays white; the published cast to bytes wraps it to black.
    """
    layer = rng.standard_normal(image.shape[:2], dtype=np.float32) * np.float32(sigma) + np.float32(mean)
    layer = smooth(layer, blur_sigma)
    layer[layer < threshold] = 0
    if mud:
        cover = smooth((layer > threshold).astype(np.float32), strength)
        cover[cover < 0.8] = 0
        return np.clip(image * (1 - cover[..., None]) + _tinted(cover, _MUD), 0, 1)
    levels = np.minimum(layer * 255, 255).astype(np.uint8)
    light = levels * _relief(levels).astype(np.float32)
    brightest = light.max()
    if brightest > 0:
        light *= np.float32(strength) / brightest
    return np.clip(image + _tinted(light, _WATER), 0, 1)


def _tinted(layer: np.ndarray, colour: np.ndarray) -> np.ndarray:
    return (colour[:, None, None] * layer).transpose(1, 2, 0)


def _relief(levels: np.ndarray) -> np.ndarray:
    """The shading of drops: the distance to their outline, equalised and embossed."""
    distance = chamfer_distance(canny(levels, 50, 150), limit=20)
    # The published program cuts the blurred distance to bytes; OpenCV's blur of bytes, at the end, rounds.
    distance = equalised((_box_sum(distance.astype(np.float64)) / 9).astype(np.float32).astype(np.uint8))
    padded = np.pad(distance.astype(np.int32), 1, mode="reflect")
    height, width = levels.shape
    lit = np.zeros((height, width), dtype=np.int32)
    for down, row in enumerate(_EMBOSS):
        for right, weight in enumerate(row):
            lit += weight * padded[down : down + height, right : right + width]
    return np.rint(_box_sum(np.clip(lit, 0, 255)) / 9)


def canny(levels: np.ndarray, low: int, high: int) -> np.ndarray:
    """The edges of a byte image as a mask, equal to OpenCV's Canny (3 x 3 Sobel, |dx| + |dy|)."""
    from scipy.ndimage import label

    padded = np.pad(levels.astype(np.int32), 1, mode="edge")
    across = padded[:, 2:] - padded[:, :-2]
    dx = across[:-2] + 2 * across[1:-1] + across[2:]
    down = padded[2:] - padded[:-2]
    dy = down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]
    strength = np.abs(dx) + np.abs(dy)
    ridge = (strength > low) & _is_ridge(strength, dx, dy)
    # Hysteresis: a connected part of the ridges is an edge if any of its pixels is above `high`.
    parts, count = label(ridge, structure=np.ones((3, 3)))
    strong = np.zeros(count + 1, dtype=bool)
    strong[parts[ridge & (strength > high)]] = True
    return strong[parts]


def _is_ridge(strength: np.ndarray, dx: np.ndarray, dy: np.ndarray) -> np.ndarray:
    """Where the gradient is a maximum along its direction (non-maximum suppression).

    As in OpenCV a tie with the neighbour to the right or below is allowed, but not with a diagonal one.
    """
    height, width = strength.shape
    padded = np.pad(strength, 1)

    def beside(down: int, right: int) -> np.ndarray:
        return padded[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    # 13573 is tan(22.5 degrees) in 1/32768, and tan(67.5 degrees) = tan(22.5 degrees) + 2.
    steep = np.abs(dy).astype(np.int64) << 15
    flat_limit = np.abs(dx).astype(np.int64) * 13573
    steep_limit = flat_limit + (np.abs(dx).astype(np.int64) << 16)
    sideways = (strength > beside(0, -1)) & (strength >= beside(0, 1))
    upright = (strength > beside(-1, 0)) & (strength >= beside(1, 0))
    falling = (strength > beside(-1, -1)) & (strength > beside(1, 1))
    rising = (strength > beside(-1, 1)) & (strength > beside(1, -1))
    slanted = np.where((dx ^ dy) < 0, rising, falling)
    return np.where(steep < flat_limit, sideways, np.where(steep > steep_limit, upright, slanted))


def chamfer_distance(edges: np.ndarray, limit: int) -> np.ndarray:
    """The length of the shortest 5 x 5 chamfer path from each pixel to an edge, at most `limit`.

    Of every row only its edge nearest to the pixel's column can be the nearest of all, so the minimum is taken over
    these, for rows up to `limit` away.
    """
    height, width = edges.shape
    column = np.arange(width)
    left = np.maximum.accumulate(np.where(edges, column, -width), axis=1)
    right = np.minimum.accumulate(np.where(edges, column, 2 * width)[:, ::-1], axis=1)[:, ::-1]
    beside = np.minimum(np.minimum(column - left, right - column), limit)
    distance = np.full(edges.shape, limit, dtype=np.float32)
    for rows, lengths in enumerate(_chamfer_lengths(limit)[:height]):
        if rows >= distance.max():  # rows further away cannot be nearer
            break
        paths = lengths.take(beside)
        np.minimum(distance[rows:], paths[: height - rows], out=distance[rows:])
        np.minimum(distance[: height - rows], paths[rows:], out=distance[: height - rows])
    return distance


def _chamfer_lengths(limit: int) -> np.ndarray:
    """Path lengths by rows and columns between two pixels: knight's moves, the rest straight or diagonal steps."""
    rows, columns = np.mgrid[: limit + 1, : limit + 1]
    longer, shorter = np.maximum(rows, columns), np.minimum(rows, columns)
    flat = shorter * _KNIGHT + (longer - 2 * shorter) * _ASIDE
    steep = (longer - shorter) * _KNIGHT + (2 * shorter - longer) * _DIAGONAL
    return (np.where(2 * shorter <= longer, flat, steep) / 65536).astype(np.float32)


def equalised(levels: np.ndarray) -> np.ndarray:
    """Histogram equalisation of bytes, equal to OpenCV's; an image of one level stays as it is."""
    counts = np.bincount(levels.reshape(-1), minlength=256)
    lowest = int(np.flatnonzero(counts)[0])
    others = levels.size - counts[lowest]
    if others == 0:
        return levels
    below = np.cumsum(counts) - counts[lowest]
    return np.rint(np.clip(below * (255 / others), 0, 255)).astype(np.uint8)[levels]


def _box_sum(values: np.ndarray) -> np.ndarray:
    """Sums over 3 x 3 pixels; mirrored at the border pixel."""
    padded = np.pad(values, 1, mode="reflect")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    return rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
