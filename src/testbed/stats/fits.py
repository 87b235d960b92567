"""The line through models: accuracy under shift on accuracy without, in the space of a chosen axis.

Two kinds of fit answer the same calls (`predict`, `to_dict`): a line, and the two-piece fit that is used
where a model has no accuracy at all under the shift. `fit` chooses; `bootstrap` resamples the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from testbed.stats.axes import check_axis, from_axis, to_axis
from testbed.stats.estimators import estimator

# The published bands and coefficient intervals (Taori et al. 2020) were drawn with these.
PUBLISHED_SEED = 720257663
PUBLISHED_RESAMPLES = 1000

FORMULA = "shifted = inverse(intercept + slope * transform(reference)); {} of percent / 100"
BLOCK = 20_000_000  # numbers held at once while resampling pairs of models


@dataclass(frozen=True)
class LineFit:
    """A line in the space of `axis`, r2 being the share of the variance there that it explains.

    None stands for what is not defined: r and r2 of models that are all equal under shift, standard errors
    of another method than least squares or of two models.
    """

    slope: float
    intercept: float
    r: float | None
    r2: float | None
    slope_stderr: float | None
    intercept_stderr: float | None
    n: int
    axis: str = "logit"
    method: str = "ols"
    clip: float | None = None

    def predict(self, reference: ArrayLike, clip: float | None = None) -> np.ndarray:
        """Accuracy under shift, in percent, expected of these reference accuracies."""
        return from_axis(self.intercept + self.slope * to_axis(reference, self.axis, clip), self.axis)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the formula beside the coefficients."""
        return {"kind": "line", **asdict(self), "formula": FORMULA.format(self.axis)}


@dataclass(frozen=True)
class TwoPieceFit:
    """Separate lines left and right of the reference accuracy (`pivot`) of a model without any under shift.

    A model at the pivot is predicted by the line below, as in the published tables.
    """

    pivot: float
    below: LineFit
    above: LineFit

    @property
    def axis(self) -> str:
        return self.below.axis

    @property
    def n(self) -> int:
        return self.below.n + self.above.n

    def predict(self, reference: ArrayLike, clip: float | None = None) -> np.ndarray:
        """Accuracy under shift, in percent, expected of these reference accuracies."""
        below, above = self.below.predict(reference, clip), self.above.predict(reference, clip)
        return np.where(np.asarray(reference) > self.pivot, above, below)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, one line for each side of the pivot."""
        pieces = {"below": self.below.to_dict(), "above": self.above.to_dict()}
        return {"kind": "two-piece", "axis": self.axis, "n": self.n, "pivot": self.pivot, **pieces}


@dataclass(frozen=True)
class LineDraws:
    """The lines of resampled models. A resample whose models share one reference accuracy is NaN."""

    slopes: np.ndarray
    intercepts: np.ndarray
    axis: str
    seed: int

    @property
    def resamples(self) -> int:
        return len(self.slopes)

    def predict(self, reference: ArrayLike, clip: float | None = None) -> np.ndarray:
        """(resamples, models) expected percentages. `reference`: (models,), or a row for each resample."""
        positions = np.atleast_1d(to_axis(reference, self.axis, clip))
        return from_axis(self.intercepts[:, None] + self.slopes[:, None] * positions, self.axis)

    def band(self, grid: ArrayLike, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper edge, in percent, of the line at each percentage of the grid."""
        return outer_percentiles(self.predict(grid), confidence)

    def coefficient_intervals(self, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
        """Intervals of the slope and of the intercept."""
        low, high = outer_percentiles(np.stack([self.slopes, self.intercepts], axis=1), confidence)
        return {
            "slope": (float(low[0]), float(high[0])),
            "intercept": (float(low[1]), float(high[1])),
        }

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """Plain data for JSON: the coefficient intervals and how they came about."""
        intervals = {name: list(pair) for name, pair in self.coefficient_intervals(confidence).items()}
        return {"confidence": confidence, "resamples": self.resamples, "seed": self.seed, **intervals}


@dataclass(frozen=True)
class TwoPieceDraws:
    """The resampled lines of a two-piece fit; the pivot stays, each side resamples its own models.

    The two lines need not meet: intervals of a model near the pivot include the step between them.
    """

    pivot: float
    below: LineDraws
    above: LineDraws

    @property
    def resamples(self) -> int:
        return self.below.resamples

    def predict(self, reference: ArrayLike, clip: float | None = None) -> np.ndarray:
        """(resamples, models) expected percentages. `reference`: (models,), or a row for each resample."""
        below, above = self.below.predict(reference, clip), self.above.predict(reference, clip)
        return np.where(np.asarray(reference) > self.pivot, above, below)

    def band(self, grid: ArrayLike, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper edge, in percent, of the fit at each percentage of the grid."""
        return outer_percentiles(self.predict(grid), confidence)

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """Plain data for JSON: the coefficient intervals of both sides."""
        return {"below": self.below.to_dict(confidence), "above": self.above.to_dict(confidence)}


Fit = LineFit | TwoPieceFit
Draws = LineDraws | TwoPieceDraws


def fit(
    reference: ArrayLike,
    shifted: ArrayLike,
    axis: str = "logit",
    method: str = "ols",
    clip: float | None = None,
) -> Fit:
    """The fit over models given in percent: a line, or two where a model has 0 under shift (unless clipped).

    Models that lack either accuracy (NaN) are left out; the fit's n tells how many remained.
    """
    pieces = _two_pieces(reference, shifted, axis, clip)
    if pieces is None:
        return fit_line(reference, shifted, axis, method, clip)
    pivot, below, above = pieces
    return TwoPieceFit(pivot, fit_line(*below, axis, method), fit_line(*above, axis, method))


def bootstrap(
    reference: ArrayLike,
    shifted: ArrayLike,
    axis: str = "logit",
    method: str = "ols",
    clip: float | None = None,
    resamples: int = PUBLISHED_RESAMPLES,
    seed: int = PUBLISHED_SEED,
) -> Draws:
    """The same fit over models drawn with replacement. The published draws depend on the models' order."""
    pieces = _two_pieces(reference, shifted, axis, clip)
    if pieces is None:
        return _line_draws(reference, shifted, axis, method, clip, resamples, seed)
    pivot, below, above = pieces
    return TwoPieceDraws(
        pivot,
        _line_draws(*below, axis, method, None, resamples, seed),
        _line_draws(*above, axis, method, None, resamples, seed),
    )


def fit_line(
    reference: ArrayLike,
    shifted: ArrayLike,
    axis: str = "logit",
    method: str = "ols",
    clip: float | None = None,
) -> LineFit:
    """One line over models given in percent; models that lack either accuracy (NaN) are left out."""
    x, y = _positions(reference, shifted, axis, clip)
    slope, intercept = (float(v) for v in estimator(method)(x, y))
    n = len(x)
    spread_x, spread_y = float(((x - x.mean()) ** 2).sum()), float(((y - y.mean()) ** 2).sum())
    unexplained = float(((y - intercept - slope * x) ** 2).sum())
    r = r2 = slope_stderr = intercept_stderr = None
    if spread_y > 0:
        r, r2 = float(np.corrcoef(x, y)[0, 1]), 1 - unexplained / spread_y
    if method == "ols" and n > 2:
        slope_stderr = float(np.sqrt(unexplained / (n - 2) / spread_x))
        intercept_stderr = float(slope_stderr * np.sqrt((x**2).mean()))
    return LineFit(slope, intercept, r, r2, slope_stderr, intercept_stderr, n, axis, method, clip)


def describe(fitted: Fit, draws: Draws | None = None, confidence: float = 0.95) -> dict[str, Any]:
    """A fit as plain data for JSON, with the intervals of its coefficients where draws are given."""
    described = fitted.to_dict()
    return described if draws is None else {**described, "bootstrap": draws.to_dict(confidence)}


def fit_from_dict(data: Mapping[str, Any]) -> Fit:
    """The fit that `to_dict` or `describe` wrote, so that a published line can be used without its models."""
    if data.get("kind") == "two-piece":
        return TwoPieceFit(float(data["pivot"]), _line_from_dict(data["below"]), _line_from_dict(data["above"]))
    return _line_from_dict(data)


def _line_from_dict(data: Mapping[str, Any]) -> LineFit:
    if data.get("kind") != "line":
        raise ValueError(f"expected a fit of kind 'line' or 'two-piece', got {data.get('kind')!r}")
    check_axis(data["axis"])
    return LineFit(**{field.name: data[field.name] for field in fields(LineFit)})


def outer_percentiles(draws: np.ndarray, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Interval edges over the first axis: the draw at or below, and at or above, the wanted percentiles."""
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1, got {confidence}")
    tail = 100 * (1 - confidence) / 2
    low = np.nanpercentile(draws, tail, axis=0, method="lower")
    return low, np.nanpercentile(draws, 100 - tail, axis=0, method="higher")


def _line_draws(
    reference: ArrayLike,
    shifted: ArrayLike,
    axis: str,
    method: str,
    clip: float | None,
    resamples: int,
    seed: int,
) -> LineDraws:
    x, y = _positions(reference, shifted, axis, clip)
    # The legacy generator, because the published intervals come from its stream.
    chosen = np.random.RandomState(seed).randint(0, len(x), size=(resamples, len(x)))
    blocks = np.array_split(chosen, 1 + chosen.size * len(x) // BLOCK)
    lines = [estimator(method)(x[rows], y[rows]) for rows in blocks]
    slopes, intercepts = (np.concatenate(parts) for parts in zip(*lines, strict=True))
    return LineDraws(slopes, intercepts, axis, seed)


def _pairs(reference: ArrayLike, shifted: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both accuracies of the models that have both."""
    x, y = np.asarray(reference, dtype=np.float64), np.asarray(shifted, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"expected two equally long rows of accuracies, got shapes {x.shape} and {y.shape}")
    known = ~(np.isnan(x) | np.isnan(y))
    return x[known], y[known]


def _positions(
    reference: ArrayLike, shifted: ArrayLike, axis: str, clip: float | None
) -> tuple[np.ndarray, np.ndarray]:
    x, y = _pairs(reference, shifted)
    if len(np.unique(x)) < 2:
        raise ValueError(
            f"expected at least 2 models with different reference accuracy to fit a line, got {len(x)} "
            f"model{'s' * (len(x) != 1)} with {len(np.unique(x))} different"
        )
    return to_axis(x, axis, clip), to_axis(y, axis, clip)


def _two_pieces(
    reference: ArrayLike, shifted: ArrayLike, axis: str, clip: float | None
) -> tuple[float, tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None:
    """(pivot, models below, models above), or None where one line will do.

    The published fit knows one model with 0. Of several, all are left out and the best is the pivot.
    """
    check_axis(axis)
    x, y = _pairs(reference, shifted)
    zero = y == 0
    if not zero.any() or clip is not None or axis == "linear":
        return None
    pivot = float(x[zero].max())
    below, above = (x < pivot) & ~zero, (x > pivot) & ~zero
    if min(len(np.unique(x[below])), len(np.unique(x[above]))) < 2:
        raise ValueError(
            f"expected at least 2 models on each side of the one with 0 under shift (reference {pivot:g}), "
            f"got {below.sum()} below and {above.sum()} above; leave it out or pass clip=..."
        )
    return pivot, (x[below], y[below]), (x[above], y[above])
