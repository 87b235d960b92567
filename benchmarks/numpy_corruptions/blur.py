"""Blurs of ImageNet-C: pixels HWC in [0, 1] in, pixels in [0, 1] out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from numpy_corruptions.filters import clipped_zoom, line_blur, smooth


def gaussian_blur(image: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """A Gaussian filter on each channel; border pixels are repeated."""
    return np.clip(smooth(image, sigma), 0, 1)


def defocus_blur(image: np.ndarray, rng: np.random.Generator, radius: float, alias_sigma: float) -> np.ndarray:
    """Filter with a disk whose edge is slightly smoothed; the picture is mirrored at the border."""
    kernel = disk(radius, alias_sigma)
    reach = kernel.shape[0] // 2
    padded = np.pad(image, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    # Measured at 224 pixels: up to 5 x 5 taps a sum of shifts is the faster way, from 7 x 7 on the Fourier transform.
    blurred = _few_taps(padded, kernel) if reach <= 2 else _by_fourier(padded, radius, alias_sigma)
    height, width = image.shape[:2]
    return np.clip(blurred[:height, :width], 0, 1)


def glass_blur(image: np.ndarray, rng: np.random.Generator, sigma: float, reach: float, rounds: float) -> np.ndarray:
    """Smooth, replace each pixel by a random neighbour `rounds` times, and smooth again.

    As published, pixels are visited from the lower right to the upper left, offsets are -reach .. reach - 1, and the
    swap of two pixels is in fact a copy: the published program exchanges two views of one array, so the visited pixel
    takes its neighbour's value and the neighbour keeps it. A copied pixel may itself have been overwritten before.
    Instead of the published loop over pixels these chains of copies are followed for all pixels at once, with the same
    result. Unlike there, the smoothed values are not cut to whole grey levels in between.
    """
    pixels = smooth(image, sigma)
    for _ in range(int(rounds)):
        pixels = _shuffled(pixels, rng, int(reach))
    return np.clip(smooth(pixels, sigma), 0, 1)


def motion_blur(image: np.ndarray, rng: np.random.Generator, radius: float, sigma: float) -> np.ndarray:
    """Blur along a line at a random angle between -45 and 45 degrees."""
    return np.clip(line_blur(image, radius, sigma, rng.uniform(-45, 45)), 0, 1)


def zoom_blur(image: np.ndarray, rng: np.random.Generator, end: float, step: float) -> np.ndarray:
    """The mean of the picture and of its enlargements by 1, 1 + step, ... up to `end`."""
    height, width, channels = image.shape
    count, down, across = _zooms(height, width, end, step)
    rows = (down @ image.reshape(height, -1)).reshape(count, height, width, channels)
    turned = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(count * width, -1)
    total = (across @ turned).reshape(width, height, channels).swapaxes(0, 1)
    return np.clip((image + total) / np.float32(count + 1), 0, 1)


@lru_cache(maxsize=16)
def disk(radius: float, alias_sigma: float) -> np.ndarray:
    """The defocus kernel: a disk with sum 1, smoothed by a Gaussian of 3 x 3 or (above radius 8) 5 x 5 pixels.

    As published, it is computed on 17 x 17 pixels up to radius 8 and on the disk's bounding square above. A disk of
    radius 8 or more touches the edge of that square, where the smoothing mirrors it, so such a kernel sums to 1.01.
    Rows and columns of zeros at the edge are cut off.
    """
    from scipy.ndimage import correlate1d

    half, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    line = np.arange(-half, half + 1)
    kernel = (line[:, None] ** 2 + line**2 <= radius**2).astype(np.float64)
    kernel /= kernel.sum()
    soft = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2 * alias_sigma**2))
    for axis in (0, 1):
        kernel = correlate1d(kernel, soft / soft.sum(), axis=axis, mode="mirror")
    used = int(np.abs(line[(kernel > 1e-7).any(axis=0)]).max())
    return kernel[half - used : half + used + 1, half - used : half + used + 1].astype(np.float32)


def _few_taps(padded: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The picture filtered with a small kernel, as a sum of shifted copies."""
    side = kernel.shape[0]
    height, width = padded.shape[0] - side + 1, padded.shape[1] - side + 1
    out = np.zeros((height, width, padded.shape[2]), dtype=np.float32)
    for (down, right), weight in np.ndenumerate(kernel):
        if weight:
            out += weight * padded[down : down + height, right : right + width]
    return out


def _by_fourier(padded: np.ndarray, radius: float, alias_sigma: float) -> np.ndarray:
    """The picture filtered with the disk, by Fourier transform.

    The result is as large as the padded picture. Its upper left part, where the kernel lies wholly inside, is valid.
    """
    from scipy import fft

    height, width = padded.shape[:2]
    spectrum = _disk_spectrum(radius, alias_sigma, height, width)
    shape = fft.next_fast_len(height, real=True), fft.next_fast_len(width, real=True)
    planes = fft.rfft2(padded.transpose(2, 0, 1), shape)
    return fft.irfft2(planes * spectrum, shape).transpose(1, 2, 0)


@lru_cache(maxsize=16)
def _disk_spectrum(radius: float, alias_sigma: float, height: int, width: int) -> np.ndarray:
    from scipy import fft

    shape = fft.next_fast_len(height, real=True), fft.next_fast_len(width, real=True)
    # Conjugated for a correlation: a convolution would put the valid part elsewhere.
    return np.conj(fft.rfft2(disk(radius, alias_sigma), shape))


def zoom_factors(end: float, step: float) -> list[float]:
    """1, 1 + step, ... up to `end`, which is usually left out."""
    # np.arange, as published: rounding makes it include 1.06 and 1.11 at a step of 0.01, but not the other ends.
    return [float(factor) for factor in np.arange(1, end, step)]


@lru_cache(maxsize=16)
def _zooms(height: int, width: int, end: float, step: float) -> tuple[int, Any, Any]:
    """The number of enlargements, and two matrices that apply all of them at once.

    The first stacks the enlargements of the columns; the second enlarges the rows of each and adds them up.
    """
    from scipy.sparse import hstack, vstack

    factors = zoom_factors(end, step)
    down = vstack([clipped_zoom(height, factor) for factor in factors], format="csr")
    across = hstack([clipped_zoom(width, factor) for factor in factors], format="csr")
    return len(factors), down, across


def _shuffled(pixels: np.ndarray, rng: np.random.Generator, reach: int) -> np.ndarray:
    """One round of copies from random neighbours.

    `source` tells where each pixel gets its value: an entry i < count is the final value of pixel i, an entry
    i + count its initial value.
    """
    height, width, channels = pixels.shape
    count = height * width
    own = np.arange(count).reshape(height, width)
    source = own + count
    inner = np.s_[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1]
    visited = np.zeros((height, width), dtype=bool)
    visited[inner] = True
    offsets = rng.integers(-reach, reach, size=(2, *own[inner].shape))
    neighbour = own[inner] + offsets[1] * width + offsets[0]
    # The published loop runs backwards, so a neighbour further on has had its turn before.
    overwritten = (neighbour > own[inner]) & visited.reshape(-1)[neighbour]
    source[inner] = np.where(overwritten, neighbour, neighbour + count)
    chain = source.reshape(-1)
    # Every turn replaces a reference by what it refers to, so chains of copies halve in length.
    while (open_ends := np.flatnonzero(chain < count)).size:
        chain[open_ends] = chain[chain[open_ends]]
    return pixels.reshape(count, channels)[chain - count].reshape(pixels.shape)
