"""The slow corruptions of `blur` and `digital`, for a whole batch on a GPU.

The pictures are the same up to float32 rounding: matrices, kernels and random numbers are shared. Only matrix
products, Fourier transforms and grid_sample are used, since newer GPUs round convolutions to TF32.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch.nn.functional import grid_sample, pad

from testbed.perturb.corruptions.blur import disk, zoom_factors
from testbed.perturb.corruptions.digital import affine_back
from testbed.perturb.corruptions.filters import clipped_zoom, line_kernel, smoothing

Images = torch.Tensor  # (N, 3, H, W) in [0, 1]


class Generators(Protocol):
    """One generator for each image of the batch; `each` calls `draw` with every one of them."""

    def each(self, draw: Callable[[np.random.Generator], Any]) -> list[Any]: ...


def gaussian_blur(images: Images, rng: Generators, sigma: float) -> Images:
    return _smooth(images, sigma).clamp(0, 1)


def defocus_blur(images: Images, rng: Generators, radius: float, alias_sigma: float) -> Images:
    kernel = _on(images.device, disk, radius, alias_sigma)
    reach = len(kernel) // 2
    return _correlated(pad(images, (reach,) * 4, mode="reflect"), kernel[None, None]).clamp(0, 1)


def motion_blur(images: Images, rng: Generators, radius: float, sigma: float) -> Images:
    reach = 2 * int(np.ceil(radius))
    kernels = torch.zeros(len(images), 1, 2 * reach + 1, 2 * reach + 1)
    for kernel, angle in zip(kernels[:, 0], rng.each(lambda own: own.uniform(-45, 45)), strict=True):
        weights, down, across = map(torch.from_numpy, line_kernel(radius, sigma, angle))
        # Two points of the line may round to the same pixel: their weights add up.
        kernel.index_put_((down + reach, across + reach), weights, accumulate=True)
    return _correlated(pad(images, (reach,) * 4, mode="replicate"), kernels.to(images.device)).clamp(0, 1)


def zoom_blur(images: Images, rng: Generators, end: float, step: float) -> Images:
    factors = zoom_factors(end, step)
    total = images.clone()
    for factor in factors:
        total += _along_both_axes(images, clipped_zoom, factor)
    return (total / (len(factors) + 1)).clamp(0, 1)


def elastic_transform(images: Images, rng: Generators, alpha: float, sigma: float, affine: float) -> Images:
    height, width = images.shape[-2:]
    rows, columns = (torch.arange(side, device=images.device, dtype=torch.float32) for side in (height, width))
    maps = np.stack(rng.each(lambda own: affine_back(height, width, affine, own)))
    back = torch.from_numpy(maps).to(images.device, torch.float32)[..., None, None]  # (N, 3, 2, 1, 1)
    x, y = (columns * back[:, 0, axis] + rows[:, None] * back[:, 1, axis] + back[:, 2, axis] for axis in (0, 1))
    images = _sampled(images, y, x, mirror=True)
    if alpha:
        fields = np.stack(rng.each(lambda own: np.stack([own.uniform(-1, 1, (height, width)) for _ in "xy"])))
        push = torch.from_numpy(fields).to(images.device, torch.float32)
        push = _smooth(push, sigma, mode="reflect", truncate=3) * alpha
        images = _sampled(images, rows[:, None] + push[:, 1], columns + push[:, 0], mirror=False)
    return images.clamp(0, 1)


BATCHED = {f.__name__: f for f in (gaussian_blur, defocus_blur, motion_blur, zoom_blur, elastic_transform)}


def _smooth(images: torch.Tensor, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> torch.Tensor:
    return _along_both_axes(images, smoothing, sigma, mode, truncate)


def _along_both_axes(images: torch.Tensor, matrix: Callable[..., Any], *arguments: float | str) -> torch.Tensor:
    """Apply the matrices `matrix(side, *arguments)` along the columns and the rows."""
    down, across = (_on(images.device, matrix, side, *arguments) for side in images.shape[-2:])
    return down @ images @ across.T


@lru_cache(maxsize=128)
def _on(device: torch.device, matrix: Callable[..., Any], *arguments: float | str) -> torch.Tensor:
    """`matrix(*arguments)` as a dense tensor on the device, kept there for the next batch."""
    array = matrix(*arguments)
    return torch.from_numpy(array if isinstance(array, np.ndarray) else array.toarray()).to(device)


def _correlated(padded: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """The correlation of padded pictures with kernels, where the kernel lies wholly inside."""
    height, width = padded.shape[-2:]
    # As in `blur`: conjugated for a correlation, whose valid part is the upper left one.
    spectrum = torch.fft.rfft2(kernels, s=(height, width)).conj()
    blurred = torch.fft.irfft2(torch.fft.rfft2(padded) * spectrum, s=(height, width))
    return blurred[..., : height - kernels.shape[-2] + 1, : width - kernels.shape[-1] + 1]


def _sampled(images: Images, rows: torch.Tensor, columns: torch.Tensor, mirror: bool) -> Images:
    """Bilinear interpolation at fractional rows and columns (N, H, W), as `filters.sample`.

    Beyond the border the picture is mirrored at the border pixel (`mirror`), or behind it, which repeats it.
    """
    height, width = images.shape[-2:]
    # grid_sample counts from -1 to 1: between the centres of the border pixels with align_corners, else between their
    # outer edges. It reflects at these two, which gives the two border rules.
    if mirror:
        places = torch.stack([2 * columns / (width - 1) - 1, 2 * rows / (height - 1) - 1], dim=-1)
    else:
        places = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], dim=-1)
    return grid_sample(images, places, padding_mode="reflection", align_corners=mirror)
