"""Confidence intervals of a proportion, of a mean, and of any function of resampled rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def clopper_pearson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact binomial interval of successes / n, as fractions (Clopper and Pearson 1934).

    The error bars of Taori et al. (2020) are this interval at 99.5 %, with successes = accuracy x n, not rounded.
    """
    from scipy.special import betaincinv

    _check_share(successes, n, confidence)
    tail = (1 - confidence) / 2
    # Beta quantiles; at 0 and n one parameter would be 0, and the edge is exact.
    low = 0.0 if successes == 0 else float(betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(betaincinv(successes + 1, n - successes, 1 - tail))
    return low, high


def wilson(successes: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The score interval of successes / n, as fractions (Wilson 1927).

    Narrower than Clopper-Pearson: its coverage is nominal on average over proportions, not for each of them.
    """
    from scipy.special import ndtri

    _check_share(successes, n, confidence)
    share, z2 = successes / n, float(ndtri((1 + confidence) / 2)) ** 2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = float(np.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n)))) / (1 + z2 / n)
    # At 0 and n the formula gives exactly 0 and 1, up to rounding.
    low = 0.0 if successes == 0 else max(centre - half, 0.0)
    high = 1.0 if successes == n else min(centre + half, 1.0)
    return low, high


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float]:
    """(mean, low, high) of independent values, with the normal interval; NaN edges for fewer than two values."""
    from scipy.special import ndtri

    values = np.asarray(values, dtype=np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, float("nan"), float("nan")
    half = float(ndtri((1 + confidence) / 2) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def logit_interval(share: float, standard_error: float, confidence: float = 0.95) -> tuple[float, float]:
    """The normal interval of a share between 0 and 1, formed on the logit scale by the delta method."""
    from scipy.special import expit, logit, ndtri

    half = float(ndtri((1 + confidence) / 2)) * standard_error / (share * (1 - share))
    return float(expit(logit(share) - half)), float(expit(logit(share) + half))


def mixed_beta_quantiles(
    levels: tuple[float, ...], weights: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[float, ...]:
    """Quantiles of a mixture of Beta(a, b) distributions, by bisection of its distribution function."""
    from scipy.special import betainc

    def quantile(level: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(50):  # to 1e-15
            middle = (low + high) / 2
            low, high = (middle, high) if weights @ betainc(a, b, middle) < level else (low, middle)
        return (low + high) / 2

    return tuple(quantile(level) for level in levels)


def bootstrap_rows(
    function: Callable[[np.ndarray], dict[str, Any]],
    n_rows: int,
    resamples: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Bootstrap percentile intervals of every number that `function(row_indices)` returns."""
    rng = np.random.default_rng(seed)
    draws: dict[str, list[float]] = {}
    for _ in range(resamples):
        for name, value in function(rng.integers(0, n_rows, n_rows)).items():
            draws.setdefault(name, []).append(float(value))
    tail = 100 * (1 - confidence) / 2
    return {
        name: (float(np.nanpercentile(v, tail)), float(np.nanpercentile(v, 100 - tail))) for name, v in draws.items()
    }


def _check_share(successes: float, n: int, confidence: float) -> None:
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"expected 0 <= successes <= n with n > 0, got {successes} of {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1, got {confidence}")
