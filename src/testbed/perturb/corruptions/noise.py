"""Noise of ImageNet-C: pixels HWC in [0, 1] in, pixels in [0, 1] out."""

from __future__ import annotations

import numpy as np


def gaussian_noise(image: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Add normal noise of the same strength everywhere."""
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    return np.clip(image + np.float32(sigma) * noise, 0, 1)


def shot_noise(image: np.ndarray, rng: np.random.Generator, photons: float) -> np.ndarray:
    """Count photons: a white pixel receives `photons` of them on average."""
    counts = rng.poisson(image * photons).astype(np.float32)
    return np.clip(counts / np.float32(photons), 0, 1)


def impulse_noise(image: np.ndarray, rng: np.random.Generator, amount: float) -> np.ndarray:
    """Salt and pepper: a share `amount` of the values (each channel for itself) becomes 0 or 1, evenly."""
    draw = rng.random(image.shape, dtype=np.float32)
    out = image.copy()
    out[draw < amount] = 0
    out[draw < amount / 2] = 1
    return out


def speckle_noise(image: np.ndarray, rng: np.random.Generator, sigma: float) -> np.ndarray:
    """Add normal noise in proportion to the value."""
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    return np.clip(image * (1 + np.float32(sigma) * noise), 0, 1)
