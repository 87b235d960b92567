"""Effective and relative robustness in percentage points: how far a model is above the line, or above its baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from testbed.stats.fits import Draws, Fit

# (value, lower edge, upper edge) of an accuracy in percent, each with one number per model; NaN for an unknown edge.
Interval = tuple[ArrayLike, ArrayLike, ArrayLike]


def effective_robustness(
    reference: ArrayLike, shifted: ArrayLike, fitted: Fit, clip: float | None = None
) -> np.ndarray:
    """Accuracy under shift minus the accuracy that the fit predicts from the reference accuracy (Taori et al. 2020)."""
    return np.asarray(shifted, dtype=np.float64) - fitted.predict(reference, clip)


def effective_robustness_interval(
    reference: Interval,
    shifted: Interval,
    fitted: Fit,
    draws: Draws,
    clip: float | None = None,
    confidence: float = 0.95,
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) edges of effective robustness for each model, over resampled models and over images.

    The uncertainties of the accuracy under shift, of the prediction by the reference accuracy and of the line (its
    band) are independent, and their sides are added in squares (MOVER, Zou and Donner 2008). Where an accuracy has no
    interval (NaN), its images are left out. If the accuracies share images (a corrupted copy of the reference set, or
    a line fitted on the same shifted images), their errors partly cancel and this interval is too wide. A model that
    lacks an accuracy gets NaN. With `clip`, reference accuracies are first moved into [clip, 100 - clip].
    """
    x, x_low, x_high = _rows(*reference)
    y, y_low, y_high = _rows(*shifted)
    if x.shape != y.shape:
        raise ValueError(f"expected two equally long rows, one value per model, got {x.shape} and {y.shape}")
    low, high = np.full(x.shape, np.nan), np.full(x.shape, np.nan)
    known = ~(np.isnan(x) | np.isnan(y))
    if not known.any():
        return low, high

    def predicted(values: np.ndarray, instead: np.ndarray) -> np.ndarray:
        return fitted.predict(np.where(np.isnan(values), instead, values)[known], clip)

    expected = predicted(x, x)
    ends = np.stack([predicted(x_low, x), predicted(x_high, x), expected])
    band = draws.band(x[known], confidence, clip)
    rho = y[known] - expected
    above_line = (ends.max(axis=0) - expected, np.maximum(band[1] - expected, 0))
    below_line = (expected - ends.min(axis=0), np.maximum(expected - band[0], 0))
    low[known] = rho - _root_of_squares(np.nan_to_num((y - y_low)[known]), *above_line)
    high[known] = rho + _root_of_squares(np.nan_to_num((y_high - y)[known]), *below_line)
    return low, high


def _root_of_squares(*sides: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(sides).sum(axis=0))


def relative_robustness(shifted: ArrayLike, baseline_shifted: ArrayLike) -> np.ndarray:
    """Accuracy under shift minus that of the model from which this one was derived (Taori et al. 2020).

    Where the correctness of each image is known, `paired.difference` gives the same number with an interval.
    """
    return np.asarray(shifted, dtype=np.float64) - np.asarray(baseline_shifted, dtype=np.float64)


@dataclass(frozen=True)
class Correlation:
    """Pearson's r over n models with its Fisher interval and the p-value of r = 0."""

    r: float
    low: float
    high: float
    p_value: float
    n: int


def robustness_correlation(first: ArrayLike, second: ArrayLike, confidence: float = 0.95) -> Correlation:
    """The correlation of effective robustness on two shifts, over the models that have both."""
    from scipy.stats import pearsonr

    a, b = _rows(first, second)
    known = ~(np.isnan(a) | np.isnan(b))
    a, b = a[known], b[known]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        raise ValueError(f"expected at least 3 models that differ on both shifts, got {len(a)} with both")
    result = pearsonr(a, b)
    interval = result.confidence_interval(confidence)
    return Correlation(float(result.statistic), float(interval.low), float(interval.high), float(result.pvalue), len(a))


def _rows(*columns: ArrayLike) -> tuple[np.ndarray, ...]:
    rows = tuple(np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in columns)
    if rows[0].ndim != 1 or len({row.shape for row in rows}) > 1:
        shapes = " and ".join(str(row.shape) for row in rows)
        raise ValueError(f"expected equally long rows, one value per model, got {shapes}")
    return rows
