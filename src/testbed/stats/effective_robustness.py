"""Effective and relative robustness in percentage points: how far a model is above the line, or above its baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from testbed.stats.fits import Draws, Fit, outer_percentiles


def effective_robustness(
    reference: ArrayLike, shifted: ArrayLike, fitted: Fit, clip: float | None = None
) -> np.ndarray:
    """Accuracy under shift minus the accuracy that the fit predicts from the reference accuracy (Taori et al. 2020)."""
    return np.asarray(shifted, dtype=np.float64) - fitted.predict(reference, clip)


def effective_robustness_interval(
    reference: ArrayLike,
    shifted: ArrayLike,
    draws: Draws,
    n_reference: ArrayLike | None,
    n_shifted: ArrayLike | None,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """(lower, upper) edges of effective robustness for each model, over resampled models and resampled images.

    For each resampled line in `draws`, both accuracies are drawn again from a binomial distribution with their n
    images; with None for an n, that accuracy is kept. The draws are independent of each other and of the line. If the
    accuracies share images (a corrupted copy of the reference set, or a line fitted on the same shifted images), their
    errors partly cancel and this interval is too wide. A model that lacks an accuracy gets NaN.
    """
    x, y = _rows(reference, shifted)
    low, high = np.full(x.shape, np.nan), np.full(x.shape, np.nan)
    known = ~(np.isnan(x) | np.isnan(y))
    rng = np.random.default_rng(seed)
    drawn_x = np.broadcast_to(x[known], (draws.resamples, known.sum()))
    drawn_y = np.broadcast_to(y[known], drawn_x.shape)
    if n_reference is not None:
        n = _images(n_reference, known)
        # A drawn 0 or 100 has no logit; it is moved inside by half an image.
        drawn_x = np.clip(_draw_images(drawn_x, n, rng), 50 / n, 100 - 50 / n)
    if n_shifted is not None:
        drawn_y = _draw_images(drawn_y, _images(n_shifted, known), rng)
    low[known], high[known] = outer_percentiles(drawn_y - draws.predict(drawn_x), confidence)
    return low, high


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


def _rows(first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    a, b = (np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in (first, second))
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"expected two equally long rows, one value per model, got {a.shape} and {b.shape}")
    return a, b


def _images(n: ArrayLike, known: np.ndarray) -> np.ndarray:
    """The number of images of each model with `known` accuracies."""
    counts = np.broadcast_to(np.asarray(n), known.shape)[known]
    if (counts < 1).any():
        raise ValueError(f"expected at least 1 image behind every accuracy, got {counts.min()}")
    return counts


def _draw_images(percent: np.ndarray, n: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Accuracies in percent of a new binomial sample of n images each."""
    return 100 * rng.binomial(n, percent / 100) / n
