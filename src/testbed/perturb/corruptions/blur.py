"""Blurs of ImageNet-C, for batches on any device: images (N, 3, H, W) in [0, 1] in, and in [0, 1] out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch.nn.functional import pad

from testbed.perturb.corruptions.filters import correlated, line_blur, shifted_sum, smooth, spectrum, zoomed
from testbed.perturb.seeding import BatchRandom, Random

Images = torch.Tensor  # (N, 3, H, W) in [0, 1]


def gaussian_blur(images: Images, rng: Random, sigma: float) -> Images:
    """A Gaussian filter on each channel; border pixels are repeated."""
    return smooth(images, sigma).clamp_(0, 1)


def defocus_blur(images: Images, rng: Random, radius: float, alias_sigma: float) -> Images:
    """Filter with a disk whose edge is slightly smoothed; the picture is mirrored at the border."""
    kernel = disk(radius, alias_sigma)
    reach = len(kernel) // 2
    padded = _mirrored(images, reach)
    # Measured at 224 pixels: up to 5 x 5 taps a sum of shifts is the faster way, from 7 x 7 on the Fourier transform.
    if reach <= 2:
        down, across = np.nonzero(kernel)
        blurred = torch.empty_like(images)
        shifted_sum(padded, kernel[down, across], down, across, blurred)
    else:
        height, width = images.shape[-2:]
        factors = _disk_spectrum(images.device, radius, alias_sigma, *padded.shape[-2:])
        blurred = correlated(padded, factors)[..., :height, :width]
    return blurred.clamp(0, 1).contiguous()


def glass_blur(images: Images, rng: Random, sigma: float, reach: float, rounds: float) -> Images:
    """Smooth, replace each pixel by a random neighbour `rounds` times, and smooth again.

    As published, pixels are visited from the lower right to the upper left, offsets are -reach .. reach - 1, and the
    swap of two pixels is in fact a copy: the published program exchanges two views of one array, so the visited pixel
    takes its neighbour's value and the neighbour keeps it. A copied pixel may itself have been overwritten before.
    Instead of the published loop over pixels these chains of copies are followed for all pixels at once, with the same
    result. Unlike there, the smoothed values are not cut to whole grey levels in between.
    """
    pixels = smooth(images, sigma)
    own = torch.arange(images[:, 0].numel(), dtype=torch.int32, device=images.device).view_as(images[:, 0])
    source = _copied(own, rng, int(reach))
    for _ in range(int(rounds) - 1):
        source = source.index_select(0, _copied(own, rng, int(reach)))
    places = source.view(len(images), 1, -1) - own[:, :1, :1]  # counted in each picture from its first pixel
    shuffled = pixels.flatten(2).gather(2, places.long().expand(-1, images.shape[1], -1)).view_as(images)
    return smooth(shuffled, sigma).clamp_(0, 1)


def motion_blur(images: Images, rng: Random, radius: float, sigma: float) -> Images:
    """Blur along a line at a random angle between -45 and 45 degrees."""
    return line_blur(images, radius, sigma, rng.uniform(-45, 45, (), on_host=True)).clamp_(0, 1)


def zoom_blur(images: Images, rng: Random, end: float, step: float) -> Images:
    """The mean of the picture and of its enlargements by 1, 1 + step, ... up to `end`."""
    first, *factors = zoom_factors(end, step)
    assert first == 1  # the picture as it is, so that it counts twice
    return zoomed(images, *factors).add_(images, alpha=2).div_(len(factors) + 2).clamp_(0, 1)


@lru_cache(maxsize=16)
def disk(radius: float, alias_sigma: float) -> np.ndarray:
    """The defocus kernel: a disk with sum 1, smoothed by a Gaussian of 3 x 3 or (above radius 8) 5 x 5 pixels.

    As published, it is computed on 17 x 17 pixels up to radius 8 and on the disk's bounding square above. A disk of
    radius 8 or more touches the edge of that square, where the smoothing mirrors it, so such a kernel sums to 1.01.
    Rows and columns of zeros at the edge are cut off.
    """
    half, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    line = np.arange(-half, half + 1)
    kernel = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    kernel /= kernel.sum()
    soft = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * alias_sigma**2))
    for _ in range(2):
        kernel = _softened(kernel, soft / soft.sum()).T
    used = int(np.abs(line[(kernel > 1e-7).any(axis=0)]).max())
    return kernel[half - used : half + used + 1, half - used : half + used + 1].astype(np.float32)


def _softened(kernel: np.ndarray, soft: np.ndarray) -> np.ndarray:
    """The kernel filtered along its first axis: scipy.ndimage.correlate1d in mode "mirror", to the last bit.

    Importing scipy takes as long as blurring two hundred pictures.
    """
    reach, rows = len(soft) // 2, len(kernel)
    padded = np.pad(kernel, ((reach, reach), (0, 0)), mode="reflect")
    total = kernel * soft[reach]
    for away in range(reach, 0, -1):
        above, below = padded[reach - away :][:rows], padded[reach + away :][:rows]
        total += (above + below) * soft[reach - away]
    return total


@lru_cache(maxsize=16)
def _disk_spectrum(device: torch.device, radius: float, alias_sigma: float, height: int, width: int) -> torch.Tensor:
    return spectrum(torch.from_numpy(disk(radius, alias_sigma)), height, width).to(device)


def _mirrored(images: Images, reach: int) -> Images:
    """The pictures with `reach` more pixels on every side, mirrored at the border pixel."""
    height, width = images.shape[-2:]
    if reach < min(height, width):
        return pad(images, (reach,) * 4, mode="reflect")
    # A small picture is mirrored again and again, which `pad` does not do.
    for axis, side in ((-2, height), (-1, width)):
        places = torch.from_numpy(np.pad(np.arange(side), reach, mode="reflect")).to(images.device)
        images = images.index_select(axis, places)
    return images


def zoom_factors(end: float, step: float) -> list[float]:
    """1, 1 + step, ... up to `end`, which is usually left out."""
    # np.arange, as published: rounding makes it include 1.06 and 1.11 at a step of 0.01, but not the other ends.
    return [float(factor) for factor in np.arange(1, end, step)]


def _copied(own: torch.Tensor, rng: Random, reach: int) -> torch.Tensor:
    """One round of copies from random neighbours: for every pixel of the batch, the pixel that its value comes from.

    `own` are the numbers (N, H, W) of the pixels. The published loop runs backwards, so a neighbour further on has had
    its turn before, and hands on what it got. A neighbour further back, or one that is never visited, hands on its own
    value.
    """
    rows, columns = (slice(reach + 1, side - reach + 1) for side in own.shape[1:])
    step = _steps(rng, reach, own[0, rows, columns].shape, own.shape[2])
    further, back = own.clone(), own.clone()
    further[:, rows, columns].add_(step.clamp(min=0))
    back[:, rows, columns].add_(step.clamp_(max=0))
    chain = further.view(-1)
    # Every turn replaces a reference by what it refers to, so the rest of each chain halves. Four turns are nearly
    # always enough, and a fifth tells so. Only the CPU can look: elsewhere the answer would wait for the device.
    for turn in range((own[0].numel() - 1).bit_length() if reach > 1 else 0):  # with reach 1 no neighbour is further on
        chain, before = chain.index_select(0, chain), chain
        if turn > 3 and own.device.type == "cpu" and torch.equal(chain, before):
            break
    return back.view(-1).index_select(0, chain)


def _steps(rng: Random, reach: int, shape: Sequence[int], width: int) -> torch.Tensor:
    """How many pixels further on the neighbours are: -reach .. reach - 1 rows and as many columns, at random."""
    if isinstance(rng, BatchRandom):
        # One draw for both: making random bits takes longer than anything else in a round.
        choice = rng.uniform(0, (2 * reach) ** 2, shape).floor_()
        down = choice.div(2 * reach).floor_()
        return choice.add_(down, alpha=width - 2 * reach).sub_(reach * width + reach).int()
    across, down = rng.integers(-reach, reach, (2, *shape)).unbind(1)  # as the published program draws them
    return torch.add(across, down, alpha=width).int()
