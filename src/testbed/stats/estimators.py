"""Estimators of a straight line, by name. Arrays may have leading axes, so that all resamples are fitted at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# (x, y) of shape (..., n) to (slope, intercept) of shape (...); NaN where all x of a resample are equal.
Estimator = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

HUBER_THRESHOLD = 1.345  # 95 % efficiency for normal errors (Huber 1981)
MAD_TO_SIGMA = 0.6745  # median absolute deviation of a standard normal


def least_squares(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ordinary least squares, y on x."""
    return weighted_least_squares(x, y, np.ones_like(x))


def weighted_least_squares(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted least squares in closed form, which fits a thousand resamples in one expression."""
    total = weights.sum(-1)
    mean_x = (weights * x).sum(-1) / total
    mean_y = (weights * y).sum(-1) / total
    from_mean = x - mean_x[..., None]
    spread = (weights * from_mean**2).sum(-1)
    # A resample with one x has no slope; rounding may leave a tiny spread, so x itself is asked.
    spread = np.where(np.ptp(x, axis=-1) > 0, spread, np.nan)
    slope = (weights * from_mean * (y - mean_y[..., None])).sum(-1) / spread
    return slope, mean_y - slope * mean_x


def theil_sen(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Theil-Sen: the median slope over all pairs of points with different x; the intercept is median(y - slope x)."""
    first, second = np.triu_indices(x.shape[-1], k=1)
    rise = y[..., second] - y[..., first]
    run = x[..., second] - x[..., first]
    slopes = np.divide(rise, run, out=np.full(run.shape, np.nan), where=run != 0)
    slopes.sort(axis=-1)  # NaN, of pairs with equal x, is sorted to the end
    known = np.isfinite(slopes).sum(-1, keepdims=True)
    # The median of the known slopes: the mean of the two middle ones, which are the same for an odd number.
    low = np.take_along_axis(slopes, np.maximum(known - 1, 0) // 2, axis=-1)[..., 0]
    high = np.take_along_axis(slopes, np.minimum(known // 2, slopes.shape[-1] - 1), axis=-1)[..., 0]
    slope = (low + high) / 2
    return slope, np.median(y - slope[..., None] * x, axis=-1)


def huber(
    x: np.ndarray, y: np.ndarray, threshold: float = HUBER_THRESHOLD, iterations: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Huber's M-estimator by iteratively reweighted least squares; the scale is from the median absolute residual."""
    slope, intercept = least_squares(x, y)
    # If most points are exactly on a line, the scale is 0; with the floor they keep weight 1 and the others get none.
    floor = 1e-12 * np.maximum(np.ptp(y, axis=-1), np.finfo(float).tiny)[..., None]
    for _ in range(iterations):
        residual = np.abs(y - intercept[..., None] - slope[..., None] * x)
        scale = np.maximum(np.median(residual, axis=-1, keepdims=True) / MAD_TO_SIGMA, floor)
        before = slope
        weights = 1 / np.maximum(1, residual / (threshold * scale))
        slope, intercept = weighted_least_squares(x, y, weights)
        if np.all((np.abs(slope - before) <= 1e-10 * np.abs(slope)) | np.isnan(slope)):
            break
    return slope, intercept


METHODS: dict[str, Estimator] = {"ols": least_squares, "theil-sen": theil_sen, "huber": huber}


def estimator(method: str) -> Estimator:
    """The estimator of that name."""
    if method not in METHODS:
        raise ValueError(f"expected a method among {', '.join(METHODS)}, got {method!r}")
    return METHODS[method]
