"""The filters that corruptions share, for batches on any device: smoothing, zooming, sampling, blur along a line.

Smoothing and zooming are linear along each axis, border rule included: each is a matrix that is made once per side
length and kept. Convolutions are left alone, since newer GPUs round them to TF32. What differs by device is how a
matrix is applied and how shifted copies are added up; the CPU takes one picture after the other, which fits its cache.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import embedding_bag, grid_sample, pad

Images = torch.Tensor  # (N, C, H, W)
Matrix = tuple[Any, ...]  # a name in _MATRICES, and the arguments after the side


def smooth(images: Images, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Images:
    """A Gaussian filter over the last two axes; `mode` is the name of a border rule of scipy.ndimage."""
    return along_axes(images, ("smoothing", sigma, mode, truncate))


def zoomed(images: Images, *factors: float) -> Images:
    """The middle of every picture, enlarged by `factor` to the size of the picture; the sum over several factors."""
    return along_axes(images, *(("clipped_zoom", factor) for factor in factors))


def along_axes(images: Images, *matrices: Matrix) -> Images:
    """The sum of `down @ picture @ across.T` over the matrices, each made for the height and for the width."""
    device, (height, width) = images.device, images.shape[-2:]
    if device.type == "cpu" and all(_narrow(side, *matrix) for matrix in matrices for side in (height, width)):
        return _by_rows(images, matrices)
    total = None
    for name, *rest in matrices:
        product = _on(device, name, height, *rest) @ images @ _on(device, name, width, *rest).T
        total = product if total is None else total.add_(product)
    assert total is not None, "along_axes: expected at least one matrix"
    return total


def smoothing(side: int, sigma: float, mode: str, truncate: float) -> np.ndarray:
    """The (side, side) matrix that applies the Gaussian filter along one axis."""
    from scipy.ndimage import gaussian_filter1d

    # The filter is linear, so the filtered unit vectors are the columns of its matrix.
    return gaussian_filter1d(np.eye(side), sigma, axis=0, mode=mode, truncate=truncate).astype(np.float32)


def clipped_zoom(side: int, factor: float) -> np.ndarray:
    """The (side, side) matrix that enlarges the middle ceil(side / factor) pixels to `side` pixels.

    As published: enlarged by scipy's `zoom` of order 1, then trimmed equally at both ends.
    """
    from scipy.ndimage import zoom

    middle = int(np.ceil(side / factor))
    start = (side - middle) // 2
    enlarged = zoom(np.eye(middle), (factor, 1), order=1)
    trim = (enlarged.shape[0] - side) // 2
    matrix = np.zeros((side, side), dtype=np.float32)
    matrix[:, start : start + middle] = enlarged[trim : trim + side]
    return matrix


_MATRICES: dict[str, Any] = {"smoothing": smoothing, "clipped_zoom": clipped_zoom}


@lru_cache(maxsize=128)
def _on(device: torch.device, matrix: str, *arguments: float | str) -> torch.Tensor:
    """A matrix as a tensor on the device, kept there for the next batch."""
    return torch.from_numpy(_MATRICES[matrix](*arguments)).to(device)


@lru_cache(maxsize=512)
def _narrow(side: int, matrix: str, *arguments: float | str) -> bool:
    """Whether sums of rows are faster than a dense product: on one core, up to a quarter of the entries."""
    return bool(np.count_nonzero(_MATRICES[matrix](side, *arguments), axis=1).max() <= side // 4)


def _by_rows(images: Images, matrices: tuple[Matrix, ...]) -> Images:
    """`along_axes` for matrices with few entries: rows are added up, turned, and added up again."""
    height, width = images.shape[-2:]
    # Pieces that stay in the cache: one picture, or three products of one plane.
    steps, at_once = (3, 1) if len(matrices) > 1 else (1, images.shape[1] if images.ndim == 4 else 1)
    groups = [matrices[first : first + steps] for first in range(0, len(matrices), steps)]
    sums = [_row_sums(height, width, at_once, group) for group in groups]
    out = torch.empty(images.shape)
    turned = torch.empty(steps * at_once, width, height)
    pieces = (whole.view(-1, at_once * height, width) for whole in (images.contiguous(), out))
    for planes, result in zip(*pieces, strict=True):
        total = None
        for down, across in sums:
            rows = _added(down, planes).view(-1, height, width)
            product = _added(across, turned[: len(rows)].copy_(rows.transpose(1, 2)).view(-1, height))
            total = product if total is None else total.add_(product)
            del rows  # so that the next ones get the same memory
        assert total is not None, "along_axes: expected at least one matrix"
        result.view(at_once, height, width).copy_(total.view(at_once, width, height).transpose(1, 2))
    return out


class _Sums(NamedTuple):
    """Weighted sums of rows: the rows of all sums one after the other, where each sum starts, and the weights."""

    rows: torch.Tensor
    starts: torch.Tensor
    weights: torch.Tensor


def _added(sums: _Sums, source: torch.Tensor) -> torch.Tensor:
    """The sums (sums, columns) of the rows of `source`: by the one function of torch that adds up rows in one pass."""
    return embedding_bag(sums.rows, source, sums.starts, mode="sum", per_sample_weights=sums.weights)


@lru_cache(maxsize=128)
def _row_sums(height: int, width: int, planes: int, matrices: tuple[Matrix, ...]) -> tuple[_Sums, _Sums]:
    """The matrices as weighted sums of rows, for some planes at once.

    The first sums make the products of every matrix with every plane. The second are for these products, turned: they
    apply the matrices to the other axis, and add up what belongs to one plane.
    """
    plane, step = np.arange(planes)[:, None, None, None], np.arange(len(matrices))[:, None, None]
    columns, weights = _entries(height, matrices)
    down = _as_sums(plane * height + columns, weights, 1)
    columns, weights = _entries(width, matrices)
    rows = (plane * len(matrices) + step) * width + columns  # (plane, matrix, row, entry): one sum for all matrices
    return down, _as_sums(rows.swapaxes(1, 2), weights.swapaxes(0, 1), len(matrices))


def _entries(side: int, matrices: tuple[Matrix, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The columns and the values of the entries that are not 0, (matrices, side, most entries of a row).

    Shorter rows are filled up with entries that are 0.
    """
    stack = np.stack([_MATRICES[name](side, *rest) for name, *rest in matrices])
    most = int(np.count_nonzero(stack, axis=2).max())
    columns = np.argsort(stack == 0, axis=2, kind="stable")[..., :most]
    return columns, np.take_along_axis(stack, columns, axis=2)


def _as_sums(rows: np.ndarray, weights: np.ndarray, matrices: int) -> _Sums:
    """The last axis, or the last two if there are several matrices in a sum, are the members of a sum."""
    starts = np.arange(0, rows.size, matrices * rows.shape[-1], dtype=np.int32)
    weights = np.broadcast_to(weights, rows.shape).flatten()
    return _Sums(*map(torch.from_numpy, (rows.astype(np.int32).flatten(), starts, weights)))


def sample(images: Images, rows: torch.Tensor, columns: torch.Tensor, border: str) -> Images:
    """Bilinear interpolation at fractional rows and columns (N, H, W).

    Values beyond the border: "mirror" (mirrored at the border pixel), "reflect" (mirrored behind the border pixel,
    which is repeated) or "zero".
    """
    height, width = images.shape[-2:]
    # grid_sample counts from -1 to 1: between the centres of the border pixels with align_corners, else between their
    # outer edges. It reflects at these two, which gives the two border rules.
    corners = border == "mirror"
    places = torch.empty(*rows.shape, 2, device=images.device)
    for axis, (wanted, side) in enumerate(((columns, width), (rows, height))):
        if corners:
            torch.mul(wanted, 2 / (side - 1), out=places[..., axis])
        else:
            torch.mul(wanted, 2 / side, out=places[..., axis]).add_(1 / side)
    places -= 1
    padding = "zeros" if border == "zero" else "reflection"
    return grid_sample(images, places, padding_mode=padding, align_corners=corners)


def line_blur(images: Images, radius: float, sigma: float, angles: torch.Tensor) -> Images:
    """ImageMagick's motion blur: one half of a Gaussian along a line; border pixels are repeated.

    `angles` are in degrees, one for each picture, on the CPU.
    """
    lines = [line_kernel(radius, sigma, angle) for angle in angles.tolist()]
    if images.device.type != "cpu":
        return _lines_by_fourier(images, 2 * int(np.ceil(radius)), lines)
    blurred = torch.empty_like(images)
    for image, out, (weights, down, across) in zip(images, blurred, lines, strict=True):
        top, left = max(-int(down.min()), 0), max(-int(across.min()), 0)
        margins = (left, max(int(across.max()), 0), top, max(int(down.max()), 0))
        padded = pad(image[None], margins, mode="replicate")[0]
        shifted_sum(padded, weights, down + top, across + left, out)
    return blurred


def _lines_by_fourier(images: Images, reach: int, lines: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Images:
    """`line_blur` for all pictures at once, which a GPU does in a few steps instead of one for each tap and picture."""
    kernels = np.zeros((len(lines), 1, 2 * reach + 1, 2 * reach + 1), dtype=np.float32)
    for kernel, (weights, down, across) in zip(kernels[:, 0], lines, strict=True):
        np.add.at(kernel, (down + reach, across + reach), weights)  # points that round to the same pixel add up
    padded = pad(images, (reach,) * 4, mode="replicate")
    height, width = images.shape[-2:]
    moved = torch.from_numpy(kernels).to(images.device, non_blocking=True)
    return correlated(padded, spectrum(moved, *padded.shape[-2:]))[..., :height, :width]


def line_kernel(radius: float, sigma: float, angle: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The weights of a blur along a line, and the offset of each in pixels down and to the right.

    The line has 2 * radius + 1 points, one pixel apart, rounded to whole pixels. `angle` is in degrees.
    """
    steps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).astype(np.float32)
    turn = np.deg2rad(angle)
    across = np.ceil(steps * np.cos(turn) - 0.5).astype(int)  # ImageMagick's rounding: halves go down
    down = np.ceil(steps * np.sin(turn) - 0.5).astype(int)
    relevant = weights > 1e-6  # the far end of a narrow kernel adds nothing
    return weights[relevant], down[relevant], across[relevant]


def shifted_sum(
    padded: torch.Tensor, weights: np.ndarray, down: np.ndarray, across: np.ndarray, out: torch.Tensor
) -> None:
    """Put into `out` the weighted sum of parts of `padded` that start at the rows and columns given."""
    starts = int(padded.storage_offset()) + down * padded.stride(-2) + across * padded.stride(-1)
    out.zero_()
    for weight, start in zip(weights.tolist(), starts.tolist(), strict=True):
        # The part by one call: slices take as long as the sum itself.
        out.add_(padded.as_strided(out.shape, padded.stride(), start), alpha=weight)


def correlated(padded: Images, factors: torch.Tensor) -> Images:
    """The pictures correlated with the kernels whose `spectrum` is given, by Fourier transform.

    The result is larger than the picture was. Its upper left part, where the kernel lies wholly inside, is valid.
    """
    shape = _fourier_shape(*padded.shape[-2:])
    planes = torch.fft.rfft2(padded, s=shape)
    return torch.fft.irfft2(planes.mul_(factors), s=shape)


def spectrum(kernels: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """What `correlated` needs to know of kernels (..., rows, columns) for padded pictures of this size."""
    # Conjugated for a correlation: a convolution would put the valid part elsewhere.
    return torch.fft.rfft2(kernels, s=_fourier_shape(height, width)).conj().resolve_conj()


def _fourier_shape(height: int, width: int) -> tuple[int, int]:
    """Sides from these on that are multiples of 16 and of small primes: several times faster than others."""
    rows, columns = (16 * _of_small_primes(-(-side // 16)) for side in (height, width))
    return rows, columns


def _of_small_primes(least: int) -> int:
    """The first number from `least` on that has no prime factor above 5: scipy.fft.next_fast_len, without scipy."""
    return next(number for number in count(least) if 60**12 % number == 0)
