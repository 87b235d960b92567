"""Noise of ImageNet-C, for batches on any device: images (N, 3, H, W) in [0, 1] in, and in [0, 1] out.

Random numbers are drawn channel by channel, red first.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch

from testbed.perturb.seeding import BatchRandom, Random, Shape

Images = torch.Tensor  # (N, 3, H, W) in [0, 1]

_LEVELS = 256  # grey levels of a byte
_NEAR = 2**-13  # in grey levels: what float32 may be away from the level that a byte stands for


def gaussian_noise(images: Images, rng: Random, sigma: float) -> Images:
    """Add normal noise of the same strength everywhere."""
    return rng.normal(images.shape[1:]).mul_(sigma).add_(images).clamp_(0, 1)


def shot_noise(images: Images, rng: Random, photons: float) -> Images:
    """Poisson noise: each value is a count of photons, of which a white pixel receives `photons` on average.

    Pictures come from bytes, so there are 256 rates, and a table of each. A value between two grey levels gets the
    count of the level below and that of the remaining rate: the sum of Poisson numbers is one of the sum of the rates.
    """
    scaled = images * (_LEVELS - 1)
    level = (scaled + _NEAR).floor_()
    rest = scaled.sub_(level)
    counts = _from_tables(level, _random_bits(rng, images.shape[1:]), photons)
    # Whether there is a rest can be asked on the CPU only: elsewhere the answer would wait for the device.
    if images.device.type != "cpu" or rest.max() > _NEAR:
        counts += _of_small_rates(rest.mul_(rest > _NEAR), rng, photons / (_LEVELS - 1))
    return counts.div_(photons).clamp_(max=1)


def impulse_noise(images: Images, rng: Random, amount: float) -> Images:
    """Salt and pepper: a share `amount` of the values becomes 0 or 1 with equal probability, channel by channel."""
    draw = rng.uniform(0, 1, images.shape[1:])
    # One draw decides whether a value changes, and to what.
    salt = torch.lt(draw, amount / 2, out=torch.empty_like(draw))
    return salt.addcmul_(draw.ge_(amount), images)


def speckle_noise(images: Images, rng: Random, sigma: float) -> Images:
    """Add normal noise whose strength is proportional to the value."""
    return rng.normal(images.shape[1:]).mul_(sigma).add_(1).mul_(images).clamp_(0, 1)


def _random_bits(rng: Random, shape: Shape) -> torch.Tensor:
    """32 random bits for every number of the shape, as int32; not to be changed in place."""
    return rng.bits(shape) if isinstance(rng, BatchRandom) else rng.integers(0, 1 << 32, shape).int()


def _from_tables(level: torch.Tensor, drawn: torch.Tensor, photons: float) -> torch.Tensor:
    """Poisson numbers of the rates level / 255 * photons, as floats: the alias method of Walker.

    Every level has a table of 2 ** n columns, which are equally likely. A column stands for its own number and, from
    its threshold on, for another one: the lower n bits drawn choose the column, the upper ones are compared.
    """
    table, columns = _alias_tables(level.device, photons)
    column = drawn & (columns - 1)
    place = level.mul_(columns).int().add_(column)
    entry = table.index_select(0, place.view(-1)).view_as(place)
    other = entry & (columns - 1)
    below = (drawn | (columns - 1)).lt_(entry)  # 1 or 0: with its lower bits set, only the upper bits drawn decide
    return column.sub_(other).mul_(below).add_(other).float()


@lru_cache(maxsize=16)
def _alias_tables(device: torch.device, photons: float) -> tuple[torch.Tensor, int]:
    """The tables of all grey levels one after the other, and the number of columns of each.

    An entry holds the threshold in its upper and the other number in its lower bits. Probabilities are whole multiples
    of 2 ** -32, and the thresholds are exact for these.
    """
    from scipy.special import pdtr

    columns = 1 << _most(photons).bit_length()
    rates = np.arange(_LEVELS)[:, None] * photons / (_LEVELS - 1)
    edges = np.rint(pdtr(np.arange(columns), rates) * 2**32)
    edges[:, -1] = 2**32  # the tail that is cut off is shorter than a step
    left = np.diff(edges, prepend=0).astype(np.int64)
    every = np.arange(_LEVELS)
    full = (1 << 32) // columns
    threshold = np.zeros(left.shape, dtype=np.int64)
    other = np.tile(np.arange(columns), (_LEVELS, 1))  # a full column: another number, which is its own
    for _ in range(columns):
        # The emptiest column is filled up from the fullest, and is done. Those done are as full as all are on average.
        small, large = left.argmin(axis=1), left.argmax(axis=1)
        missing = full - left[every, small]
        rows = np.flatnonzero(missing)
        threshold[rows, small[rows]] = left[rows, small[rows]]
        other[rows, small[rows]] = large[rows]
        left[rows, large[rows]] -= missing[rows]
        left[rows, small[rows]] = full
    entries = (threshold - full // 2) * columns + other  # bits drawn are compared as int32, which has a sign
    return torch.from_numpy(entries.reshape(-1).astype(np.int32)).to(device), columns


def _of_small_rates(share: torch.Tensor, rng: Random, largest: float) -> torch.Tensor:
    """Poisson numbers of the rates share * largest, as floats, by inversion in as many steps as `largest` may need."""
    rate = share.mul_(largest)
    drawn = rng.integers(0, 1 << 31, rate.shape[1:]).float().mul_(2**-31)
    term = torch.exp(-rate)
    beyond = torch.expm1(-rate).neg_()  # the probability of more than the number reached
    counts = torch.zeros_like(rate)
    for number in range(1, _most(largest) + 2):
        counts += torch.lt(drawn, beyond, out=torch.empty_like(rate))
        beyond -= term.mul_(rate).mul_(1 / number)
    return counts


@lru_cache(maxsize=32)
def _most(rate: float) -> int:
    """The largest Poisson number that comes more often than once in 2 ** 33 times."""
    from scipy.special import pdtr, pdtrik

    least = max(math.ceil(pdtrik(1 - 2**-33, rate)) - 1, 0)
    return least if pdtr(least, rate) >= 1 - 2**-33 else least + 1
