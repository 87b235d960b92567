"""The line through standard models: which they are, the fit, its band, and every model's distance to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from _model_types import STANDARD, TYPES
from _results import Column, Results
from _settings import LOWER_ENDS

from testbed.errors import TestbedError, UnknownName
from testbed.stats.effective_robustness import effective_robustness, effective_robustness_interval
from testbed.stats.fits import Draws, Fit, bootstrap, describe, fit
from testbed.store.evaluation import OWN
from testbed.store.names import matches

# The authors' own trainings, of which the published line has none.
NOT_ON_THE_LINE = ("*aws*", "*batch64*", "*subsample*")
FEWEST = 3  # fewer models make no line worth drawing
FEWEST_FOR_BAND = 5  # of fewer, many resamples have but two different ones


@dataclass(frozen=True)
class Choice:
    """How a line is wanted."""

    axis: str = "logit"
    method: str = "ols"
    min_x: float | None = None
    models: Sequence[str] = ()  # these, or all of the type but `without`
    type: str = STANDARD
    without: Sequence[str] = NOT_ON_THE_LINE
    sources: Sequence[str] = ()
    confidence: float = 0.95

    @property
    def words(self) -> str:
        """What the models of the line are called."""
        return "chosen" if self.models else self.type


@dataclass(frozen=True)
class Line:
    """A fit with its resampled lines, and which points it goes through."""

    fitted: Fit
    draws: Draws
    on: np.ndarray
    choice: Choice


def with_lower_end(choice: Choice, results: Results, pair: tuple[str, str], x: Column, named: Sequence[str]) -> Choice:
    """The choice with the published lower end of x for this pair of settings, where --min-x was not given.

    It goes down to the lowest of own and named models: what somebody ran or asked for is never hidden by a default.
    """
    if choice.min_x is not None or pair not in LOWER_ENDS:
        return choice
    kept = np.array([p.source == OWN for p in results.points]) | results.highlighted(named)
    return replace(choice, min_x=float(np.nanmin([LOWER_ENDS[pair], *x.value[kept]])))


def shown(x: Column, y: Column, choice: Choice) -> np.ndarray:
    """Which points have both numbers, and enough of the first."""
    known = ~(np.isnan(x.value) | np.isnan(y.value))
    return known if choice.min_x is None else known & (x.value >= choice.min_x)


def candidates(results: Results, choice: Choice) -> np.ndarray:
    """Which points a line may go through: named or of the wanted type, published ones where there are any."""
    if choice.type not in TYPES:
        raise UnknownName(f"no model type '{choice.type}'; expected {', '.join(TYPES)}")
    wanted = [p.type == choice.type and not matches(p.model, choice.without) for p in results.points]
    if choice.models:
        wanted = list(results.matching(choice.models))
    allowed = set(choice.sources)
    if not allowed:
        sources = {p.source for p, good in zip(results.points, wanted, strict=True) if good}
        # A line through published models stays where it is when own results come in.
        allowed = sources - {OWN} or sources
    return np.array([g and p.source in allowed for p, g in zip(results.points, wanted, strict=True)], dtype=bool)


def fit_line(results: Results, x: Column, y: Column, choice: Choice) -> Line | None:
    """The line through the models that have both accuracies; None where there are too few."""
    on = candidates(results, choice) & shown(x, y, choice)
    # Different ones: three models at the same x make no line.
    if len(np.unique(x.value[on])) < FEWEST:
        return None
    clip = half_an_image(x, y, on) if _needs_clip(x.value[on], y.value[on], choice.axis) else None
    arguments = (x.value[on], y.value[on], choice.axis, choice.method, clip)
    try:
        return Line(fit(*arguments), bootstrap(*arguments), on, choice)
    except ValueError as error:
        raise TestbedError(f"no line of {y.label} on {x.label}: {error}") from error


def half_an_image(x: Column, y: Column, rows: np.ndarray) -> float:
    """Where 0 and 100 % are put on a logit axis: half an image of the smaller set inside."""
    n = np.concatenate([x.n[rows], y.n[rows]])
    return 50 / max(int(n[n > 0].min()), 2) if (n > 0).any() else 0.05


def _needs_clip(x: np.ndarray, y: np.ndarray, axis: str) -> bool:
    """0 and 100 have no place on the axis, but models without any accuracy under shift break the line in two."""
    if axis == "linear":
        return False
    if (np.isin(x, (0, 100)) | (y == 100)).any():
        return True
    zero = y == 0
    if not zero.any():
        return False
    pivot = x[zero].max()
    # Each of the two pieces needs two different models.
    return min(len(np.unique(x[(x < pivot) & ~zero])), len(np.unique(x[x > pivot]))) < 2


def robustness(line: Line, x: Column, y: Column) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Effective robustness of every point in percentage points, with its interval; NaN where a number is missing."""
    clip = None if line.choice.axis == "linear" else half_an_image(x, y, np.ones(len(x.value), dtype=bool))
    rho = effective_robustness(x.value, y.value, line.fitted, clip)
    edges = ((x.value, x.low, x.high), (y.value, y.low, y.high))
    low, high = effective_robustness_interval(*edges, line.fitted, line.draws, clip, line.choice.confidence)
    return rho, low, high


def described(results: Results, line: Line, x: Column, y: Column) -> dict[str, Any]:
    """The fit as plain data, with all that is needed to use it elsewhere."""
    rho, low, high = robustness(line, x, y)
    rows = shown(x, y, line.choice).nonzero()[0]
    return {
        **describe(line.fitted, line.draws, line.choice.confidence),
        "x": {"name": x.label, "eval_settings": list(x.settings)},
        "y": {"name": y.label, "eval_settings": list(y.settings)},
        "metric": results.metric,
        "through": [results.points[i].label for i in line.on.nonzero()[0]],
        "models": [
            {
                "model": results.points[i].model,
                "source": results.points[i].source,
                "type": results.points[i].type,
                "x": x.value[i],
                "x_interval": _pair(x.low[i], x.high[i]),
                "y": y.value[i],
                "y_interval": _pair(y.low[i], y.high[i]),
                "effective_robustness": rho[i],
                "effective_robustness_interval": _pair(low[i], high[i]),
            }
            for i in rows
        ],
    }


def _pair(low: float, high: float) -> list[float] | None:
    return None if np.isnan(low) or np.isnan(high) else [float(low), float(high)]
