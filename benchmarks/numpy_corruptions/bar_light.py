"""Sparkles, water and cut-outs of ImageNet-C-bar: pixels HWC in [0, 1] in, pixels in [0, 1] out.

`level` is between 0 and 10, and lengths are shares of the shorter side. The published programs compute one pixel at a
time; here the same functions are computed on whole arrays.
"""

from __future__ import annotations

import numpy as np

from numpy_corruptions.filters import sample, smooth


def sparkles(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Add five white stars, whose light falls with the square of the distance from the centre."""
    height, width = image.shape[:2]
    size = min(height, width)
    radius = level / 10 * 0.1 * size
    dark = np.ones((height, width), dtype=np.float32)
    for centre in rng.uniform(0, 1, (5, 2)) * (height, width):
        rays = np.maximum(_ray_lengths(rng, radius), 1)
        dark *= 1 - _starlight(height, width, centre, rays, power=1)  # a star whitens what the others left dark
    return 1 - (1 - image) * dark[..., None]


def inverse_sparkles(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Whiten the picture except for one star near its middle."""
    height, width = image.shape[:2]
    centre = rng.uniform(0.25, 0.75, 2) * (height, width)
    rays = _ray_lengths(rng, 0.25 * min(height, width))
    light = _starlight(height, width, centre, rays, power=level / 10 * 65 / 50)
    return 1 - (1 - image) * light[..., None]


def checkerboard_cutout(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Turn grey a share `level` / 10 of the black squares of a rotated checkerboard."""
    height, width = image.shape[:2]
    size = min(height, width)
    angle = rng.uniform(0, 2 * np.pi)
    square = max(rng.uniform(0.1, 0.25) * size, 1)
    squares = int(4 * max(height, width) // square)
    cut = rng.uniform(size=(squares, squares)) < level / 10
    y, x = np.arange(height)[:, None], np.arange(width)
    rank = (np.cos(angle) * y + np.sin(angle) * x) / square
    file = (-np.sin(angle) * y + np.cos(angle) * x) / square
    black = np.floor(rank) % 2 == np.floor(file) % 2
    # Truncated, as published: squares on both sides of an axis share their lot, negative ones count from the end.
    greyed = black & cut[np.trunc(rank).astype(int), np.trunc(file).astype(int)]
    return np.where(greyed[..., None], np.float32(128 / 255), image)


def caustic_refraction(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Show the picture through rippled water: the slopes of its caustics refract the view and are lit."""
    height, width = image.shape[:2]
    size = min(height, width)
    time = rng.uniform(0.5, 2)
    caustics = smooth(_caustics(height, width, time, rng.uniform(0.75, 1.25) * size), 1, mode="reflect")
    framed = np.pad(caustics, 1)
    slope_y = framed[2:, 1:-1] - framed[:-2, 1:-1]
    slope_x = framed[1:-1, 2:] - framed[1:-1, :-2]
    # Snell's law for a view straight down onto a surface of normal (slope_y, slope_x, 1), refractive index 4.
    upright = 1 / np.sqrt(slope_y**2 + slope_x**2 + 1)
    bend = upright * (np.sqrt(1 - (1 - upright**2) / 16) - upright / 4) * (level / 10 * 0.5 * size)
    bend[upright >= 1 - 1e-3] = 0  # as published, a nearly level surface does not refract
    rows = np.arange(height)[:, None] + np.round(slope_y * bend, 3)
    columns = np.arange(width) + np.round(slope_x * bend, 3)
    lit = (slope_y - slope_x) * np.float32(level / 10 * 2)
    return np.clip(sample(image, rows, columns, border="zero") + lit[..., None], 0, 1)


def _ray_lengths(rng: np.random.Generator, radius: float) -> np.ndarray:
    """Random lengths of 50 to 199 rays: the radius on average, with a standard deviation of a quarter of it."""
    count = int(rng.integers(50, 200))
    return radius + 0.25 * radius * rng.standard_normal(count)


def _starlight(height: int, width: int, centre: np.ndarray, rays: np.ndarray, power: float) -> np.ndarray:
    """The light of a star, from 0 to 1: 1 near the centre, falling as (ray length / distance) ** (2 * power).

    Between two rays the length is interpolated. Halfway between them the light is a third stronger than along them.
    """
    y = (np.arange(height) - centre[0]).astype(np.float32)[:, None]
    x = (np.arange(width) - centre[1]).astype(np.float32)
    turn = (np.arctan2(x, y) + np.float32(np.pi)) * np.float32(len(rays) / (2 * np.pi))
    first = turn.astype(np.intp)
    between = turn - first
    lengths = np.append(rays, rays[:2]).astype(np.float32)  # a full turn ends where it began
    length = lengths[first] + between * (lengths[first + 1] - lengths[first])
    light = length**2 / (x**2 + y**2 + np.float32(1e-4))  # 1e-4, as published: the centre may fall on a pixel
    if power != 1:
        light **= np.float32(power)
    return np.minimum(light * (1 - (between - np.float32(0.5)) ** 2), 1)


def _caustics(height: int, width: int, time: float, period: float) -> np.ndarray:
    """The periodic light pattern on the ground of rippled water, in [0, 1]."""
    start_y = (np.arange(height)[:, None] / period % 1) * 2 * np.pi - 250 + np.zeros(width)
    start_x = (np.arange(width) / period % 1) * 2 * np.pi - 250 + np.zeros((height, 1))
    start_y, start_x = start_y.astype(np.float32), start_x.astype(np.float32)
    y, x = start_y, start_x
    light = np.ones((height, width), dtype=np.float32)
    for turn in range(5):
        t = np.float32(time * (1 - 3.5 / (turn + 1)))
        y, x = (
            start_y + np.cos(t - y) + np.sin(t + x),
            start_x + np.sin(t - x) + np.cos(t + y),
        )
        light += 200 / np.hypot(start_y / np.sin(y + t), start_x / np.cos(x + t))
    return np.minimum(np.abs(np.float32(1.17) - (light / 5) ** np.float32(1.4)) ** 8, 1)
