"""Noise and patterns of ImageNet-C-bar: pixels HWC in [0, 1] in, pixels in [0, 1] out.

`level` is between 0 and 10, lengths are shares of the shorter side, and strengths are in grey levels of 255. The
published programs compute one pixel at a time; here the same functions are computed on whole arrays.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np


def single_frequency_greyscale(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Add one sine wave of random direction, length and phase."""
    height, width = image.shape[:2]
    faster = rng.uniform(-np.pi, np.pi)
    slower = rng.uniform(-abs(faster), abs(faster))
    along_x, along_y = rng.permutation([faster, slower])
    across = np.arange(width) * along_x + rng.uniform(0, 2 * np.pi)
    down = np.arange(height)[:, None] * along_y
    # sin(across + down) by the addition theorem: sines of one row and one column instead of every pixel.
    wave = np.sin(across) * np.cos(down) + np.cos(across) * np.sin(down)
    return _added(image, wave, level / 10 * 196)


def cocentric_sine_waves(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Add concentric rings whose radius oscillates with the angle."""
    size = min(image.shape[:2])
    centre_x, centre_y = rng.uniform(0, size, 2)
    frequency = rng.uniform(0, 10)
    amplitude, ring_width = rng.uniform(0, size / 10, 2)
    x, y = _offsets(image, centre_x, centre_y)
    distance = np.hypot(x, y) + np.float32(amplitude) * np.sin(np.arctan2(x, y) * np.float32(frequency))
    turns = distance / np.float32(max(ring_width, 1e-6))  # a width of 0 may be drawn
    return _added(image, turns - np.floor(turns) - np.float32(0.5), level / 10 * 128)


def plasma_noise(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Fade the picture and add coloured swirls: coordinates shifted repeatedly by sines of growing frequency."""
    time = rng.uniform(0, 6 * np.pi)
    rounds = int(rng.integers(4, 7))
    sharpness = rng.uniform(0.5, 1)
    scale = np.float32(rng.uniform(0.075, 0.2) * min(image.shape[:2]))
    height, width = image.shape[:2]
    x = np.arange(width, dtype=np.float32) / scale + np.zeros((height, 1), dtype=np.float32)
    y = np.arange(height, dtype=np.float32)[:, None] / scale + np.zeros(width, dtype=np.float32)
    frequency, slowness, divisor = 1.0, 1.0, 1.0
    # In every round both shifts are computed from the old coordinates before either of them is applied.
    for _ in range(rounds):
        shift = np.float32(time / slowness)
        stir_x = np.cos(y * np.float32(frequency) + shift) / np.float32(divisor)
        stir_y = np.sin(x * np.float32(frequency) + shift) / np.float32(divisor)
        x += stir_x - np.float32(0.3) * stir_y
        y += stir_y + np.float32(0.3) * stir_x
        frequency, slowness, divisor = frequency * 1.93, slowness * 1.15, divisor * (2.25 - sharpness)
    red, blue = np.sin(x - np.float32(time)), np.sin(y + np.float32(time))
    green = np.sin((x + y + np.float32(np.sin(time))) * np.float32(0.5))
    strength = np.float32(level / 10 * 64 / 255)
    return np.clip((1 - strength) * image + strength * np.stack([red, green, blue], axis=2), 0, 1)


def blue_noise_sample(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Set pixels to black where noise with a rising spectrum (blue noise) is below a threshold."""
    noise = _spectral_noise(image.shape[0], image.shape[1], rng, falling=False)
    return image * (noise > level / 10 * 3 - 2.5)[..., None]


def brownish_noise(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Add noise whose spectrum falls with the square of the frequency, drawn for each channel."""
    height, width = image.shape[:2]
    planes = [_spectral_noise(height, width, rng, falling=True) for _ in range(3)]
    return np.clip(image + np.float32(level / 10 * 64 / 255) * np.stack(planes, axis=2), 0, 1)


def perlin_noise(image: np.ndarray, rng: np.random.Generator, level: float) -> np.ndarray:
    """Blend with five octaves of Perlin noise in absolute value; the first has seven cells along the shorter side."""
    height, width = image.shape[:2]
    cell = 32 * min(height, width) / 224
    gradients, order = _lattice(rng)
    turbulence = np.zeros((height, width), dtype=np.float32)
    for octave in (1, 2, 4, 8, 16):
        value_y, slope_y = _lattice_weights(height, octave / cell)
        value_x, slope_x = _lattice_weights(width, octave / cell)
        cells = np.arange(value_y.shape[1])[:, None], np.arange(value_x.shape[1])
        chosen = gradients[order[(order[cells[0] % 256] + cells[1]) % 256]]
        noise = value_x @ (slope_y @ chosen[..., 0]).T + slope_x @ (value_y @ chosen[..., 1]).T
        turbulence += np.abs(noise.T) * np.float32(1.5 / octave)
    alpha = np.float32(level / 10 * 0.5)
    cloud = np.minimum(turbulence * np.float32(0.5) + np.float32(0.5), 1)
    return np.clip((1 - alpha) * image + alpha * cloud[..., None], 0, 1)


def _lattice(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """256 gradients of length 1 (drawn from a square, as in Perlin's program), and a permutation to look them up."""
    directions = rng.integers(-256, 256, (256, 2)).astype(np.float32)
    length = np.hypot(directions[:, 0], directions[:, 1])[:, None]
    return directions / np.maximum(length, 1), rng.permutation(256)  # (0, 0) may be drawn and stays so


@lru_cache(maxsize=32)
def _lattice_weights(side: int, frequency: float) -> tuple[Any, Any]:
    """Two matrices (pixels, lattice points) for one side: interpolation weights, and weights times distance.

    Gradient noise is bilinear in these and the gradients, so an octave is four products with sparse matrices.
    """
    from scipy.sparse import csr_matrix

    place = np.arange(side) * frequency
    first = np.floor(place).astype(int)
    beyond = place - first
    later = beyond**2 * (3 - 2 * beyond)  # Perlin's smooth step, not linear interpolation
    pixel = np.arange(side)
    value = np.zeros((side, first[-1] + 2))
    slope = np.zeros_like(value)
    value[pixel, first], value[pixel, first + 1] = 1 - later, later
    slope[pixel, first], slope[pixel, first + 1] = (1 - later) * beyond, later * (beyond - 1)
    return csr_matrix(value.astype(np.float32)), csr_matrix(slope.astype(np.float32))


def _spectral_noise(height: int, width: int, rng: np.random.Generator, falling: bool) -> np.ndarray:
    """Noise (height, width) with standard deviation 1, from a spectrum that falls or rises and random phases.

    It is the real part of the inverse Fourier transform. As published, opposite frequencies of the (centred) spectrum
    have the same phase.
    """
    from scipy import fft

    half = rng.uniform(0, 2 * np.pi, height * width // 2).astype(np.float32)
    turns = np.cos(half) + 1j * np.sin(half)
    centre = np.ones(height * width % 2, dtype=turns.dtype)
    spectrum = np.concatenate([turns, centre, turns[::-1]]).reshape(height, width)
    noise = fft.ifft2(fft.ifftshift(spectrum * _strength(height, width, falling))).real
    return noise / noise.std()


@lru_cache(maxsize=8)
def _strength(height: int, width: int, falling: bool) -> np.ndarray:
    """The amplitude of every frequency, with frequency 0 in the middle."""
    size = min(height, width)
    y = (np.arange(height, dtype=np.float32)[:, None] / height - 0.5) * size
    x = (np.arange(width, dtype=np.float32) / width - 0.5) * size
    return 1 / (x**2 + y**2 + 1) if falling else np.hypot(x, y)


def _offsets(image: np.ndarray, centre_x: float, centre_y: float) -> tuple[np.ndarray, np.ndarray]:
    """x and y of every pixel relative to a centre; two arrays that broadcast to (height, width)."""
    height, width = image.shape[:2]
    x = (np.arange(width) - centre_x).astype(np.float32)
    return np.broadcast_to(x, (height, width)), (np.arange(height)[:, None] - centre_y).astype(np.float32)


def _added(image: np.ndarray, pattern: np.ndarray, grey_levels: float) -> np.ndarray:
    return np.clip(image + (pattern * (grey_levels / 255)).astype(np.float32)[..., None], 0, 1)
