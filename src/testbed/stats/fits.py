"""Fits of accuracy under shift against reference accuracy over models, on a logit, probit or linear axis.

There are two kinds of fit with the same methods (`predict`, `to_dict`): a line, and a two-piece fit for data in which a
model has 0 % under shift. `fit` chooses between them; `bootstrap` repeats the fit for resampled models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from testbed.stats.axes import check_axis, from_axis, to_axis
from testbed.stats.estimators import estimator

# With these the bands and coefficient intervals of Taori et al. (2020) are reproduced exactly.
PUBLISHED_SEED = 720257663
PUBLISHED_RESAMPLES = 1000

FORMULA = "shifted = inverse(intercept + slope * transform(reference)); {} of percent / 100"
BLOCK = 20_000_000  # bounds memory: Theil-Sen forms all pairs of models in every resample


@dataclass(frozen=True)
class LineFit:
    """A line on `axis`; r2 is the share of the variance on that axis that it explains.

    r and r2 are None if all models are equal under shift. The standard errors are None for methods other than least
    squares, and for two models.
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
        """The accuracy under shift, in percent, predicted from reference accuracies in percent."""
        return from_axis(self.intercept + self.slope * to_axis(reference, self.axis, clip), self.axis)

    def to_dict(self) -> dict[str, Any]:
        """The fit as plain data for JSON, with its formula."""
        return {"kind": "line", **asdict(self), "formula": FORMULA.format(self.axis)}


@dataclass(frozen=True)
class TwoPieceFit:
    """Two lines, below and above `pivot`: the reference accuracy of a model that has 0 % under shift.

    A model at the pivot itself is predicted by the line below, as in the tables of Taori et al. (2020).
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
        """The accuracy under shift, in percent, predicted from reference accuracies in percent."""
        below, above = self.below.predict(reference, clip), self.above.predict(reference, clip)
        return np.where(np.asarray(reference) > self.pivot, above, below)

    def to_dict(self) -> dict[str, Any]:
        """The fit as plain data for JSON: both lines and the pivot."""
        pieces = {"below": self.below.to_dict(), "above": self.above.to_dict()}
        return {"kind": "two-piece", "axis": self.axis, "n": self.n, "pivot": self.pivot, **pieces}


@dataclass(frozen=True)
class LineDraws:
    """The lines fitted to resampled models; NaN for a resample in which all models have one reference accuracy."""

    slopes: np.ndarray
    intercepts: np.ndarray
    axis: str
    seed: int

    @property
    def resamples(self) -> int:
        return len(self.slopes)

    def predict(self, reference: ArrayLike, clip: float | None = None) -> np.ndarray:
        """Predicted percentages (resamples, models). `reference` is (models,), or has a row for each resample."""
        positions = np.atleast_1d(to_axis(reference, self.axis, clip))
        return from_axis(self.intercepts[:, None] + self.slopes[:, None] * positions, self.axis)

    def band(
        self, grid: ArrayLike, confidence: float = 0.95, clip: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) edge of the line, in percent, at each reference accuracy of the grid."""
        return outer_percentiles(self.predict(grid, clip), confidence)

    def coefficient_intervals(self, confidence: float = 0.95) -> dict[str, tuple[float, float]]:
        """(low, high) of the slope and of the intercept."""
        low, high = outer_percentiles(np.stack([self.slopes, self.intercepts], axis=1), confidence)
        return {
            "slope": (float(low[0]), float(high[0])),
            "intercept": (float(low[1]), float(high[1])),
        }

    def to_dict(self, confidence: float = 0.95) -> dict[str, Any]:
        """Plain data for JSON: the coefficient intervals, and how they were drawn."""
        intervals = {name: list(pair) for name, pair in self.coefficient_intervals(confidence).items()}
        return {"confidence": confidence, "resamples": self.resamples, "seed": self.seed, **intervals}


@dataclass(frozen=True)
class TwoPieceDraws:
    """The resampled lines of a two-piece fit. The pivot is fixed, and each side resamples its own models.

    The two lines need not meet, so intervals of a model near the pivot include the step between them.
    """

    pivot: float
    below: LineDraws
    above: LineDraws

    @property
    def resamples(self) -> int:
        return self.below.resamples

    def predict(self, reference: ArrayLike, clip: float | None = None) -> np.ndarray:
        """Predicted percentages (resamples, models). `reference` is (models,), or has a row for each resample."""
        below, above = self.below.predict(reference, clip), self.above.predict(reference, clip)
        return np.where(np.asarray(reference) > self.pivot, above, below)

    def band(
        self, grid: ArrayLike, confidence: float = 0.95, clip: float | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(lower, upper) edge of the fit, in percent, at each reference accuracy of the grid."""
        return outer_percentiles(self.predict(grid, clip), confidence)

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
    """Fit accuracies in percent, one per model: a line, or two pieces if a model has 0 under shift and clip is None.

    Models without both accuracies (NaN) are left out; n of the fit is the number of the others.
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
    """The same fit for models drawn with replacement. To reproduce published draws, models must be in their order."""
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
    """One line through accuracies in percent, one per model; models without both accuracies (NaN) are left out."""
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
    """A fit as plain data for JSON; with `draws`, also the intervals of its coefficients."""
    described = fitted.to_dict()
    return described if draws is None else {**described, "bootstrap": draws.to_dict(confidence)}


def fit_from_dict(data: Mapping[str, Any]) -> Fit:
    """The fit from the data of `to_dict` or `describe`: a published line can be used without its models."""
    if data.get("kind") == "two-piece":
        return TwoPieceFit(float(data["pivot"]), _line_from_dict(data["below"]), _line_from_dict(data["above"]))
    return _line_from_dict(data)


def _line_from_dict(data: Mapping[str, Any]) -> LineFit:
    if data.get("kind") != "line":
        raise ValueError(f"expected a fit of kind 'line' or 'two-piece', got {data.get('kind')!r}")
    check_axis(data["axis"])
    return LineFit(**{field.name: data[field.name] for field in fields(LineFit)})


def outer_percentiles(draws: np.ndarray, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) percentiles over the first axis, each rounded outwards to an actual draw."""
    if not 0 < confidence < 1:
        raise ValueError(f"expected a confidence between 0 and 1, got {confidence}")
    tail = 100 * (1 - confidence) / 2
    # Not interpolated, as in the published intervals; degenerate resamples (NaN) are left out.
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
    # numpy's legacy generator, because the published intervals were drawn with it.
    chosen = np.random.RandomState(seed).randint(0, len(x), size=(resamples, len(x)))
    blocks = np.array_split(chosen, 1 + chosen.size * len(x) // BLOCK)
    lines = [estimator(method)(x[rows], y[rows]) for rows in blocks]
    slopes, intercepts = (np.concatenate(parts) for parts in zip(*lines, strict=True))
    return LineDraws(slopes, intercepts, axis, seed)


def _pairs(reference: ArrayLike, shifted: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """(reference, shifted) of the models that have both."""
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
    """(pivot, models below it, models above it), or None if one line suffices.

    The published program handles one model with 0 % under shift. Here there may be several: all are left out, and the
    one with the highest reference accuracy is the pivot.
    """
    check_axis(axis)
    x, y = _pairs(reference, shifted)
    # Infinite on a logit or probit axis. The published case is resnet50 on ImageNet-A, which was made of its errors.
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
