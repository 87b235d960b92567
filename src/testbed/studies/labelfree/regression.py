"""From a score to an accuracy: a line through sets whose accuracy is known, and how far its predictions are off.

Everything is a function of arrays with one number per set. Accuracies are in percent, errors in percentage points.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from testbed.stats.estimators import least_squares
from testbed.studies.labelfree.outputs import LabelFreeError, LabelFreeNote

_REACH = 1e-9  # of the span: rounding is no extrapolation


@dataclass(frozen=True)
class ScoreLine:
    """accuracy = intercept + slope * score, and the span of the scores it was fitted on."""

    slope: float
    intercept: float
    r2: float | None  # None where all fit sets are equally accurate
    low: float  # smallest and largest score of the fit sets
    high: float
    n: int
    centre: float = 0.0  # mean score of the fit sets, and the sum of squares around it
    width: float = 0.0
    noise: float | None = None  # standard deviation of the fit sets around the line; None for two sets
    left_out_error: float | None = None  # RMSE of predicting each fit set from the others

    def predict(self, scores: ArrayLike) -> np.ndarray:
        """Accuracies in percent. Not clipped to 0..100, as published: a value beyond is a line out of its depth."""
        return self.intercept + self.slope * np.asarray(scores, dtype=np.float64)

    def margin(self, score: float, confidence: float = 0.95) -> float | None:
        """Half the width of the prediction interval of a new set with this score: normal noise around the line."""
        from scipy.stats import t

        if self.noise is None:
            return None
        spread = 1 + 1 / self.n + (score - self.centre) ** 2 / self.width
        return float(t.ppf((1 + confidence) / 2, self.n - 2) * self.noise * np.sqrt(spread))

    def extrapolates(self, scores: ArrayLike) -> np.ndarray:
        """Whether each score lies outside those of the fit sets, where nothing supports the line."""
        values, margin = np.asarray(scores, dtype=np.float64), _REACH * (self.high - self.low)
        return (values < self.low - margin) | (values > self.high + margin)


@dataclass(frozen=True)
class Errors:
    """Predicted against true accuracies of a group of sets."""

    n: int
    rmse: float
    mae: float
    bias: float  # mean of predicted - true: above 0 is too optimistic
    rho: float | None  # Spearman's rank correlation; None for fewer than 3 sets or a constant


def fit_score(scores: ArrayLike, accuracies: ArrayLike) -> ScoreLine:
    """Ordinary least squares of accuracy (percent) on one score, over the fit sets."""
    x, y = _columns(scores, accuracies)
    if len(np.unique(x)) < 2:
        raise LabelFreeError(
            f"a line needs at least 2 fit sets with different scores, got {len(x)} with {len(np.unique(x))} different"
        )
    slope, intercept = (float(v) for v in least_squares(x, y))
    # ptp first: equal accuracies can differ from their computed mean by rounding.
    spread = float(((y - y.mean()) ** 2).sum()) if np.ptp(y) else 0.0
    if not spread:
        message = f"the fit sets are all {y[0]:.1f} % accurate: a line through them says that of every set"
        warnings.warn(message, LabelFreeNote, stacklevel=2)
    residuals = y - intercept - slope * x
    left = float((residuals**2).sum())
    centre, n = float(x.mean()), len(x)
    width = float(((x - centre) ** 2).sum())
    leverage = 1 / n + (x - centre) ** 2 / width
    # What each set is off from the line through the others follows from its leverage; a set that alone holds the
    # line in place has leverage 1, and no line without it.
    possible = n > 2 and bool((leverage < 1 - _REACH).all())
    return ScoreLine(
        slope,
        intercept,
        1 - left / spread if spread else None,
        float(x.min()),
        float(x.max()),
        n,
        centre,
        width,
        noise=float(np.sqrt(left / (n - 2))) if n > 2 else None,
        left_out_error=float(np.sqrt(((residuals / (1 - leverage)) ** 2).mean())) if possible else None,
    )


def errors(predicted: ArrayLike, true: ArrayLike) -> Errors:
    """RMSE, MAE, bias and rank correlation of predictions, all sets counting alike."""
    guess, truth = _columns(predicted, true)
    if not len(guess):
        raise LabelFreeError("errors need at least 1 set with a prediction and a known accuracy, got none")
    off = guess - truth
    rmse = float(np.sqrt((off**2).mean()))
    return Errors(len(off), rmse, float(np.abs(off).mean()), float(off.mean()), spearman(guess, truth))


def errors_by_group(predicted: ArrayLike, true: ArrayLike, groups: Sequence[str]) -> dict[str, Errors]:
    """The errors of each group, in the order in which groups first appear.

    Pooled errors are `errors` of all sets together, as published: a group of 20 sets weighs 20 times one of 1.
    """
    guess, truth = _columns(predicted, true)
    if len(groups) != len(guess):
        raise LabelFreeError(f"expected one group per set ({len(guess)}), got {len(groups)}")
    names = np.asarray(groups, dtype=object)
    return {name: errors(guess[names == name], truth[names == name]) for name in dict.fromkeys(groups)}


def spearman(a: ArrayLike, b: ArrayLike) -> float | None:
    """Rank correlation, equal values sharing their mean rank; None where it says nothing."""
    from scipy.stats import rankdata

    x, y = _columns(a, b)
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def _columns(a: ArrayLike, b: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise LabelFreeError(f"expected two equally long rows with a number per set, got shapes {x.shape}, {y.shape}")
    for values in (x, y):
        if not np.isfinite(values).all():
            raise LabelFreeError(f"expected finite numbers, got {np.count_nonzero(~np.isfinite(values))} that are not")
    return x, y
