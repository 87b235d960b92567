"""Noise and patterns of ImageNet-C-bar, for batches (N, 3, height, width) in [0, 1] on any device.

`level` is between 0 and 10, lengths are shares of the shorter side, and strengths are in grey levels of 255. The
published programs compute one pixel at a time; here the same functions are computed on whole batches. The few numbers
that an image draws are known to the CPU, and go to the device once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from testbed.perturb.seeding import Random

Images = torch.Tensor  # (N, 3, H, W)

_OCTAVES = (1, 2, 4, 8, 16)


def single_frequency_greyscale(images: Images, rng: Random, level: float) -> Images:
    """Add one sine wave of random direction, length and phase."""
    height, width = images.shape[-2:]

    def drawn(own: np.random.Generator) -> tuple[float, float, float]:
        faster = own.uniform(-np.pi, np.pi)
        slower = own.uniform(-abs(faster), abs(faster))
        along_x, along_y = own.permutation([faster, slower])
        return along_x, along_y, own.uniform(0, 2 * np.pi)

    step_x, step_y, start = per_image(images.device, *np.array(rng.each(drawn)).T)
    across = torch.addcmul(start, step_x, numbers(images.device, width))
    down = step_y * numbers(images.device, height)[:, None]
    # sin(across + down) by the addition theorem: sines of one row and one column instead of every pixel.
    wave = (across.sin() * down.cos()).addcmul_(across.cos(), down.sin())
    return _added(images, wave, level / 10 * 196)


def cocentric_sine_waves(images: Images, rng: Random, level: float) -> Images:
    """Add concentric rings whose radius oscillates with the angle."""
    size = min(images.shape[-2:])
    drawn = known(rng.uniform(0, 1, (5,), on_host=True)) * (size, size, 10, size / 10, size / 10)
    rings = 1 / np.maximum(drawn[:, 4], 1e-6)  # a width of 0 may be drawn
    centre_x, centre_y, frequency, amplitude, per_pixel = per_image(images.device, *drawn[:, :4].T, rings)
    x, y = offsets(images, centre_x, centre_y)
    angles = torch.atan2(x, y).mul_(frequency)
    distance = (x.square() + y.square()).sqrt_()
    turns = distance.addcmul_(sine_(angles), amplitude).mul_(per_pixel)
    return _added(images, turns.sub_(turns.floor()).sub_(0.5), level / 10 * 128)


def plasma_noise(images: Images, rng: Random, level: float) -> Images:
    """Fade the picture and add coloured swirls: coordinates shifted repeatedly by sines of growing frequency."""
    height, width = images.shape[-2:]
    device = images.device
    times = known(rng.uniform(0, 6 * np.pi, (), on_host=True))
    rounds = known(rng.integers(4, 7, (), on_host=True))
    sharpness, scale = known(rng.uniform(0, 1, (2,), on_host=True)).T
    sharpness, scale = 0.5 + 0.5 * sharpness, (0.075 + 0.125 * scale) * min(height, width)
    time, mixed, per_pixel = per_image(device, times, np.sin(times), 1 / scale)
    x = numbers(device, width) * per_pixel
    y = numbers(device, height)[:, None] * per_pixel
    number = np.arange(rounds.max())[:, None]
    shifts = per_image(device, *(times / 1.15**number))
    # A picture with fewer rounds than the others of its batch is moved by 0 in the last ones.
    weights = per_image(device, *np.where(number < rounds, (2.25 - sharpness) ** -number, 0))
    # In every round both shifts are computed from the old coordinates before either of them is applied. Those of the
    # first round depend on the row or on the column alone.
    for i, (shift, weight) in enumerate(zip(shifts, weights, strict=True)):
        stir_x = torch.add(shift, y, alpha=1.93**i)
        stir_y = torch.add(shift, x, alpha=1.93**i)
        stir_x, stir_y = cosine_(stir_x).mul_(weight), sine_(stir_y).mul_(weight)
        x = torch.add(x, stir_x).add_(stir_y, alpha=-0.3)
        y = torch.add(y, stir_y).add_(stir_x, alpha=0.3)
    swirls = torch.empty_like(images)
    red, green, blue = swirls.unbind(1)
    torch.sub(x, time, out=red)
    torch.add(x, y, out=green).add_(mixed).mul_(0.5)
    torch.add(y, time, out=blue)
    return torch.lerp(images, sine_(swirls), level / 10 * 64 / 255, out=swirls).clamp_(0, 1)


def blue_noise_sample(images: Images, rng: Random, level: float) -> Images:
    """Set pixels to black where noise with a rising spectrum (blue noise) is below a threshold."""
    noise, spread = _spectral_noise(images, rng, planes=1, falling=False)
    return noise.gt_(spread * (level / 10 * 3 - 2.5)) * images


def brownish_noise(images: Images, rng: Random, level: float) -> Images:
    """Add noise whose spectrum falls with the square of the frequency, drawn for each channel."""
    noise, spread = _spectral_noise(images, rng, planes=3, falling=True)
    return torch.addcmul(images, noise, (level / 10 * 64 / 255) / spread).clamp_(0, 1)


def perlin_noise(images: Images, rng: Random, level: float) -> Images:
    """Blend with five octaves of Perlin noise in absolute value; the first has seven cells along the shorter side."""
    height, width = images.shape[-2:]
    cell = 32 * min(height, width) / 224
    gradients = _gradients(rng, _points(width, 16 / cell), _points(height, 16 / cell))
    turbulence = images.new_zeros(height, len(images) * width)
    for octave in _OCTAVES:
        # A coarser octave uses the first gradients of the finest.
        points_x, points_y = _points(width, octave / cell), _points(height, octave / cell)
        columns = gradients[:, :points_x, :, :points_y].reshape(2 * points_x, -1)
        across = times(_lattice(images.device, width, octave / cell, "each"), columns).view(2, width, -1, points_y)
        columns = across.permute(0, 3, 2, 1).reshape(2 * points_y, -1)
        noise = times(_lattice(images.device, height, octave / cell, "sum"), columns)
        turbulence.add_(noise.abs_(), alpha=1.5 / octave)
    cloud = turbulence.mul_(0.5).add_(0.5).clamp_(max=1).view(height, -1, width).transpose(0, 1)
    return torch.lerp(images, cloud[:, None], level / 10 * 0.5)  # between the two, so in [0, 1]


def known(drawn: torch.Tensor) -> np.ndarray:
    """The values of a tensor on the CPU."""
    return np.array(drawn.tolist())


def per_image(device: torch.device, *numbers: np.ndarray) -> tuple[torch.Tensor, ...]:
    """Arrays of one number for each image, as tensors (N, 1, 1) on the device."""
    tensor = torch.from_numpy(np.array(numbers, dtype=np.float32))
    return tensor.to(device, non_blocking=True)[..., None, None].unbind(0)


def offsets(images: Images, centre_x: torch.Tensor, centre_y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y of every pixel relative to a centre: (N, 1, W) and (N, H, 1)."""
    height, width = images.shape[-2:]
    return numbers(images.device, width) - centre_x, numbers(images.device, height)[:, None] - centre_y


# Functions in place: by torch, but on the CPU by NumPy. There it takes less than half the time of torch, and no value
# depends on its place in the tensor: torch computes what is left behind the last whole vector by another program.


def sine_(angles: torch.Tensor) -> torch.Tensor:
    if angles.device.type != "cpu":
        return angles.sin_()
    np.sin(angles.numpy(), out=angles.numpy())
    return angles


def cosine_(angles: torch.Tensor) -> torch.Tensor:
    if angles.device.type != "cpu":
        return angles.cos_()
    np.cos(angles.numpy(), out=angles.numpy())
    return angles


def power_(values: torch.Tensor, exponent: float) -> torch.Tensor:
    """A power of values that are not negative."""
    if values.device.type != "cpu":
        return values.pow_(exponent)
    array = values.numpy()
    with np.errstate(divide="ignore"):  # the logarithm of 0
        np.log(array, out=array)
    array *= np.float32(exponent)
    np.exp(array, out=array)
    return values


@lru_cache(maxsize=32)
def numbers(device: torch.device, count: int) -> torch.Tensor:
    """0 to count - 1."""
    return torch.arange(count, dtype=torch.float32, device=device)


def _gradients(rng: Random, points_x: int, points_y: int) -> torch.Tensor:
    """The gradients along y and x at the points of a lattice: (2, points_x, N, points_y).

    256 gradients of length 1 (drawn from a square, as in Perlin's program) are looked up through a permutation.
    """
    directions = rng.integers(-256, 256, (256, 2)).float()
    order = rng.permutation(256)
    length = torch.linalg.vector_norm(directions, dim=2, keepdim=True).clamp_(min=1)  # (0, 0) may be drawn, stays so
    table = (directions / length).transpose(1, 2).gather(2, order[:, None].expand(-1, 2, -1))
    place_x, place_y = (torch.arange(points, device=order.device) % 256 for points in (points_x, points_y))
    place = order.index_select(1, place_y)[:, None, None] + place_x[:, None]
    found = torch.cat([table, table], dim=2).gather(2, place.expand(-1, 2, -1, -1).flatten(2))
    return found.unflatten(2, (points_x, points_y)).permute(1, 2, 0, 3)


def _points(side: int, frequency: float) -> int:
    """How many points a lattice has along a side: one before every pixel and one behind the last."""
    return int((side - 1) * frequency) + 2


@lru_cache(maxsize=128)
def _lattice(device: torch.device, side: int, frequency: float, which: str) -> Any:
    """The weights of the lattice points for the pixels of a side, as a matrix for `times`.

    Gradient noise is bilinear in interpolation weights ("value") and in weights times distances ("slope"): the sum of
    value along x times slope along y, for gradients along y, and of slope along x times value along y, for gradients
    along x. "each" takes both kinds of gradients, one below the other, along x; "sum" takes the results along y.
    """
    place = np.arange(side) * frequency
    first = np.floor(place).astype(int)
    beyond = place - first
    later = beyond**2 * (3 - 2 * beyond)  # Perlin's smooth step, not linear interpolation
    pixel = np.arange(side)
    value = np.zeros((side, _points(side, frequency)), dtype=np.float32)
    slope = np.zeros_like(value)
    value[pixel, first], value[pixel, first + 1] = 1 - later, later
    slope[pixel, first], slope[pixel, first + 1] = (1 - later) * beyond, later * (beyond - 1)
    if which == "sum":
        return product_form(np.hstack([slope, value]), device)
    apart = np.zeros_like(value)
    return product_form(np.block([[value, apart], [apart, slope]]), device)


def product_form(matrix: np.ndarray, device: torch.device) -> Any:
    """A matrix that is mostly zero, as `times` takes it: sparse on the CPU, dense on other devices."""
    from scipy.sparse import csr_matrix

    return csr_matrix(matrix) if device.type == "cpu" else torch.from_numpy(matrix).to(device)


def times(matrix: Any, columns: torch.Tensor) -> torch.Tensor:
    """The product of a matrix in product form with a tensor of two axes."""
    return matrix @ columns if isinstance(matrix, torch.Tensor) else torch.from_numpy(matrix @ columns.numpy())


def _spectral_noise(images: Images, rng: Random, planes: int, falling: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise (N, planes, H, W) from a spectrum that falls or rises and random phases; and its standard deviation.

    It is the real part of the inverse Fourier transform. As published, opposite frequencies of the (centred) spectrum
    have the same phase.
    """
    height, width = images.shape[-2:]
    phases = rng.uniform(0, 2 * np.pi, (planes, height * width // 2))
    if height * width % 2:
        phases = torch.nn.functional.pad(phases, (0, 1))  # the one in the middle is not random
    here, opposite, strength, of_opposite = _half_plane(images.device, height, width, falling)
    here, opposite = (places.expand(*phases.shape[:2], -1) for places in (here, opposite))
    cosines, sines = cosine_(phases.clone()), sine_(phases)
    # The real part is the transform of half the sum of the spectrum and its mirror, conjugate: a sum that is its own
    # mirror, so that half of it suffices. The factor falls out with the standard deviation.
    real = cosines.gather(2, here).mul_(strength).addcmul_(cosines.gather(2, opposite), of_opposite)
    imaginary = sines.gather(2, here).mul_(strength).addcmul_(sines.gather(2, opposite), of_opposite, value=-1)
    spectrum = torch.complex(real, imaginary).unflatten(2, (height, width // 2 + 1))
    noise = torch.fft.irfft2(spectrum, s=(height, width), norm="ortho")
    # The sum of squares is that of the spectrum; its first value stands for the mean, which the deviation leaves out.
    total = torch.linalg.vector_norm(noise, dim=(2, 3), keepdim=True).square_()
    constant = real[..., :1, None]
    return noise, total.addcmul_(constant, constant, value=-1).div_(height * width).sqrt_()


@lru_cache(maxsize=16)
def _half_plane(device: torch.device, height: int, width: int, falling: bool) -> tuple[torch.Tensor, ...]:
    """For the frequencies of a real transform: the place of their phase and of the opposite one, and both amplitudes.

    The phases are those of the first half of the centred spectrum, row by row; the second half has them backwards.
    """
    size = min(height, width)
    y = (np.arange(height, dtype=np.float32)[:, None] / height - 0.5) * size
    x = (np.arange(width, dtype=np.float32) / width - 0.5) * size
    strength = 1 / (x**2 + y**2 + 1) if falling else np.hypot(x, y)
    rows, columns = np.arange(height)[:, None], np.arange(width // 2 + 1)
    found: list[Any] = []
    for sign in (1, -1):
        place = (sign * rows + height // 2) % height * width + (sign * columns + width // 2) % width
        phase = np.minimum(place, height * width - 1 - place)
        found += [phase.ravel(), strength.ravel()[place.ravel()]]
    here, amplitude, opposite, other = (torch.from_numpy(array).to(device) for array in found)
    return here, opposite, amplitude, other


def _added(images: Images, pattern: torch.Tensor, grey_levels: float) -> Images:
    return torch.add(images, pattern[:, None], alpha=grey_levels / 255).clamp_(0, 1)
