"""Sparkles, water and cut-outs of ImageNet-C-bar, for batches (N, 3, height, width) in [0, 1] on any device.

`level` is between 0 and 10, and lengths are shares of the shorter side. The published programs compute one pixel at a
time; here the same functions are computed on whole batches. The few numbers that an image draws are known to the CPU,
and go to the device once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from testbed.perturb.corruptions.bar_noise import (
    Images,
    cosine_,
    known,
    numbers,
    offsets,
    per_image,
    power_,
    sine_,
)
from testbed.perturb.corruptions.filters import sample, smooth
from testbed.perturb.seeding import Random

_RAYS = (50, 200)  # a star has at least so many, and fewer than so many


def sparkles(images: Images, rng: Random, level: float) -> Images:
    """Add five white stars, whose light falls with the square of the distance from the centre."""
    radius = level / 10 * 0.1 * min(images.shape[-2:])
    dark = images.new_ones(len(images), *images.shape[-2:])
    for star in _stars(images, rng, 5, within=(0, 1), radius=radius, shortest=1):
        dark.addcmul_(dark, _starlight(images, star, power=1), value=-1)  # it whitens what the others left dark
    return _whitened(images, dark)


def inverse_sparkles(images: Images, rng: Random, level: float) -> Images:
    """Whiten the picture except for one star near its middle."""
    radius = 0.25 * min(images.shape[-2:])
    (star,) = _stars(images, rng, 1, within=(0.25, 0.75), radius=radius, shortest=-math.inf)
    return _whitened(images, _starlight(images, star, power=level / 10 * 65 / 50))


def checkerboard_cutout(images: Images, rng: Random, level: float) -> Images:
    """Turn grey a share `level` / 10 of the black squares of a rotated checkerboard."""
    height, width = images.shape[-2:]
    size = min(height, width)
    angle, square = known(rng.uniform(0, 1, (2,), on_host=True)).T * ((2 * np.pi,), (0.15,))
    square = np.maximum((0.1 + square) * size, 1)
    squares = (4 * max(height, width) // square).astype(int)
    smallest = max(0.1 * size, 1)
    lots = known(rng.uniform(0, 1, (int(4 * max(height, width) // smallest) ** 2,), on_host=True))
    # A table of all squares that the picture may show, whose numbers are negative on the far side of an axis.
    reach = math.ceil(math.hypot(height, width) / smallest) + 1
    number = np.arange(-reach, reach)
    # Truncated, as published: squares on both sides of an axis share their lot, negative ones count from the end.
    row = np.where(number < 0, number + 1, number) % squares[:, None]
    place = (row * squares[:, None])[:, :, None] + row[:, None]
    cut = np.take_along_axis(lots, place.reshape(len(lots), -1), axis=1) < level / 10
    greyed = cut & (np.add.outer(number, number) % 2 == 0).ravel()
    table = torch.from_numpy(greyed.astype(np.float32)).to(images.device, non_blocking=True)

    along, aside = per_image(images.device, np.cos(angle) / square, np.sin(angle) / square)
    y, x = numbers(images.device, height)[:, None], numbers(images.device, width)
    rank = (along * y + aside * x).floor_()
    file = (along * x - aside * y).floor_()
    shown = rank.mul_(2 * reach).add_(file).add_(reach * (2 * reach + 1)).int()
    return torch.lerp(images, images.new_full((), 128 / 255), _looked_up(table, shown)[:, None])


def caustic_refraction(images: Images, rng: Random, level: float) -> Images:
    """Show the picture through rippled water: the slopes of its caustics refract the view and are lit."""
    height, width = images.shape[-2:]
    size = min(height, width)
    time, period = known(rng.uniform(0, 1, (2,), on_host=True)).T * ((1.5,), (0.5,)) + ((0.5,), (0.75,))
    caustics = smooth(_caustics(images, time, period * size)[:, None], 1, mode="reflect")[:, 0]
    framed = torch.nn.functional.pad(caustics, (1, 1, 1, 1))
    slope_y = framed[:, 2:, 1:-1] - framed[:, :-2, 1:-1]
    slope_x = framed[:, 1:-1, 2:] - framed[:, 1:-1, :-2]
    # Snell's law for a view straight down onto a surface of normal (slope_y, slope_x, 1), refractive index 4.
    squared = torch.addcmul(slope_y.square(), slope_x, slope_x).add_(1).reciprocal_()
    upright = squared.sqrt()
    bend = squared.add_(15).div_(16).sqrt_().sub_(upright, alpha=0.25).mul_(upright)
    bend.mul_(upright.lt_(1 - 1e-3))  # as published, a nearly level surface does not refract
    bend.mul_(level / 10 * 0.5 * size * 1000)
    rows = (slope_y * bend).round_().mul_(0.001).add_(numbers(images.device, height)[:, None])
    columns = bend.mul_(slope_x).round_().mul_(0.001).add_(numbers(images.device, width))
    lit = slope_y.sub_(slope_x)[:, None]
    return sample(images, rows, columns, border="zero").add_(lit, alpha=level / 10 * 2).clamp_(0, 1)


class _Star(NamedTuple):
    """One star of every image: its centre and the number of its rays (N, 1, 1), and tables of the rays (N, 200)."""

    row: torch.Tensor
    column: torch.Tensor
    rays: torch.Tensor
    lengths: torch.Tensor
    steps: torch.Tensor  # from each length to the next


def _stars(
    images: Images, rng: Random, count: int, within: tuple[float, float], radius: float, shortest: float
) -> list[_Star]:
    """Stars at random places, as shares of both sides, with 50 to 199 rays.

    The rays are as long as the radius on average, with a standard deviation of a quarter of it.
    """
    height, width = images.shape[-2:]

    def drawn(own: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
        centres = own.uniform(*within, (count, 2)) * (height, width)
        return centres, [own.standard_normal(own.integers(*_RAYS)) for _ in range(count)]

    places = np.zeros((count, 3, len(images)))
    lengths = np.zeros((count, len(images), _RAYS[1] + 1), dtype=np.float32)
    for image, (centres, stars) in enumerate(rng.each(drawn)):
        places[:, :2, image] = centres
        for star, rays in enumerate(stars):
            places[star, 2, image] = len(rays)
            # A full turn ends where it began.
            lengths[star, image, : len(rays) + 2] = radius + 0.25 * radius * np.append(rays, rays[:2])
    np.maximum(lengths, shortest, out=lengths)
    tables = torch.from_numpy(np.stack([lengths[..., :-1], lengths[..., 1:] - lengths[..., :-1]], axis=1))
    tables = tables.to(images.device, non_blocking=True)
    values = per_image(images.device, *places.reshape(-1, len(images)))
    return [_Star(*values[3 * star : 3 * star + 3], *tables[star]) for star in range(count)]


def _starlight(images: Images, star: _Star, power: float) -> torch.Tensor:
    """The light of a star (N, H, W), from 0 to 1: 1 near the centre, falling as (ray length / distance) ** (2 * power).

    Between two rays the length is interpolated. Halfway between them the light is a third stronger than along them.
    """
    x, y = offsets(images, star.column, star.row)
    between = torch.atan2(x, y).add_(math.pi).mul_(star.rays / (2 * math.pi))
    first = between.int()
    between.sub_(first)
    light = _looked_up(star.lengths, first).addcmul_(between, _looked_up(star.steps, first)).square_()
    light.div_(x.square() + y.square().add_(1e-4))  # 1e-4, as published: the centre may fall on a pixel
    if power != 1:
        power_(light, power)
    return light.addcmul_(light, between.sub_(0.5).square_(), value=-1).clamp_(max=1)


def _looked_up(table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The entries at `places` (N, H, W), int32, of the table of each image (N, entries)."""
    if len(table) > 1:
        starts = torch.arange(0, table.numel(), table.shape[1], dtype=torch.int32, device=table.device)
        places = places + starts[:, None, None]
    return table.flatten().index_select(0, places.flatten()).view(places.shape)


def _whitened(images: Images, left: torch.Tensor) -> Images:
    """White, except for the share `left` of each pixel's darkness."""
    return torch.addcmul((1 - left)[:, None], images, left[:, None]).clamp_(0, 1)


def _caustics(images: Images, time: np.ndarray, period: np.ndarray) -> torch.Tensor:
    """The periodic light pattern on the ground of rippled water, in [0, 1]."""
    height, width = images.shape[-2:]
    (per_pixel,) = per_image(images.device, 1 / period)
    start_y = (numbers(images.device, height)[:, None] * per_pixel).frac_().mul_(2 * math.pi).sub_(250)
    start_x = (numbers(images.device, width) * per_pixel).frac_().mul_(2 * math.pi).sub_(250)
    y, x = start_y, start_x
    light = images.new_ones(len(images), height, width)
    for t in per_image(images.device, *(time * (1 - 3.5 / number) for number in range(1, 6))):
        y, x = (
            (start_y + cosine_(t - y)).add(sine_(t + x)),
            (start_x + sine_(t - x)).add(cosine_(t + y)),
        )
        # 200 divided by the length of the vector (start_y / sin(y + t), start_x / cos(x + t)).
        across, down = start_y / sine_(y + t), start_x / cosine_(x + t)
        light.add_(across.square_().addcmul_(down, down).rsqrt_(), alpha=200)
    light = power_(light.div_(5), 1.4).sub_(1.17)
    return light.square_().square_().square_().clamp_(max=1)
