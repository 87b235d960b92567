"""Noise of ImageNet-C: pixels HWC in [0, 1] in, pixels in [0, 1] out.

Random numbers are drawn channel by channel, red first, whatever the memory layout of the picture.
"""

from __future__ import annotations

import numpy as np


def gaussian_noise(image: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Add normal noise of the same strength everywhere."""
    noise = _normal(image, rng)
    noise *= np.float32(sigma)
    noise += image
    return np.clip(noise, 0, 1, out=noise)


def shot_noise(image: np.ndarray, rng: np.random.Generator, photons: float) -> np.ndarray:
    """Poisson noise: each value is a count of photons, of which a white pixel receives `photons` on average."""
    counts = rng.poisson(image.transpose(2, 0, 1) * photons).transpose(1, 2, 0)
    return np.minimum(counts.astype(np.float32) / np.float32(photons), 1)


def impulse_noise(image: np.ndarray, rng: np.random.Generator, amount: float) -> np.ndarray:
    """Salt and pepper: a share `amount` of the values becomes 0 or 1 with equal probability, channel by channel."""
    height, width, channels = image.shape
    draw = rng.random((channels, height, width), dtype=np.float32).transpose(1, 2, 0)
    salted = draw < np.float32(amount / 2)  # one draw decides whether a value changes, and to what
    return np.where(draw < np.float32(amount), salted, image)


def speckle_noise(image: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Add normal noise whose strength is proportional to the value."""
    noise = _normal(image, rng)
    noise *= np.float32(sigma)
    noise += 1
    noise *= image
    return np.clip(noise, 0, 1, out=noise)


def _normal(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    height, width, channels = image.shape
    return rng.standard_normal((channels, height, width), dtype=np.float32).transpose(1, 2, 0)
