"""A measured number with its interval, and the kind of number: unit, better direction, range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import numpy as np

from testbed.stats.intervals import clopper_pearson, mean_interval

HIGHER, LOWER = "higher", "lower"


@dataclass(frozen=True)
class MetricKind:
    """The kind of a metric: its unit, its better direction, and its range."""

    unit: str = ""  # "%", "nats", "images", ...; "" for a plain number
    better: str | None = None  # "higher", "lower", or None if it has no better direction
    lowest: float | None = None
    highest: float | None = None

    def __post_init__(self) -> None:
        if self.better not in (HIGHER, LOWER, None):
            raise ValueError(f"expected better to be {HIGHER!r}, {LOWER!r} or None, got {self.better!r}")
        if self.lowest is not None and self.highest is not None and not self.lowest <= self.highest:
            raise ValueError(f"expected lowest <= highest, got {self.lowest} and {self.highest}")

    def clip(self, value: float) -> float:
        """The value, moved into the range."""
        if self.lowest is not None:
            value = max(value, self.lowest)
        return value if self.highest is None else min(value, self.highest)


UNDECLARED = MetricKind()
ACCURACY = MetricKind("%", HIGHER, 0.0, 100.0)
ERROR = MetricKind("%", LOWER, 0.0, 100.0)
SHARE = MetricKind("%", None, 0.0, 100.0)
COUNT = MetricKind("images", None, 0.0)


def as_number(value: object) -> float:
    """The value as a float, NaN as it is. Refuses what float() would change or guess: complex numbers, text."""
    if type(value) is float:  # nearly always
        return value
    # A tensor or an array with a single number is one; it tells so by its `item`.
    item = getattr(value, "item", None)
    plain = item() if callable(item) and getattr(value, "ndim", None) == 0 else value
    if not isinstance(plain, Real):
        raise ValueError(f"expected a real number, got {type(plain).__name__} {str(value)[:40]!r}")
    return float(plain)


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, the number of images it is computed from, and its kind."""

    value: float
    ci_low: float | None = None
    ci_high: float | None = None
    n: int | None = None
    kind: MetricKind = UNDECLARED

    def scaled(self, factor: float, kind: MetricKind) -> Estimate:
        """The estimate in another unit: value and ends times a positive factor."""
        low, high = (None if end is None else factor * end for end in (self.ci_low, self.ci_high))
        return Estimate(factor * self.value, low, high, self.n, kind)


def share(hits: int, n: int, kind: MetricKind = ACCURACY) -> Estimate:
    """The share hits / n in percent, with its exact (Clopper-Pearson) interval."""
    low, high = clopper_pearson(hits, n)
    return Estimate(100.0 * hits / n, 100.0 * low, 100.0 * high, n, kind)


def clipped(value: float, low: float, high: float, n: int | None, kind: MetricKind) -> Estimate:
    """An estimate whose interval is cut to the range of its kind; without an interval if its ends are not finite."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return Estimate(value, n=n, kind=kind)
    return Estimate(value, kind.clip(low), kind.clip(high), n, kind)


def mean_estimate(values: Sequence[float] | np.ndarray, kind: MetricKind, n: int | None = None) -> Estimate:
    """The mean of independent values with its normal interval; a single value has no interval.

    `n` is the number of values if it is not given.
    """
    return clipped(*mean_interval(np.asarray(values)), len(values) if n is None else n, kind)


def mean_of_estimates(members: Sequence[Estimate], kind: MetricKind, n: int | None = None) -> Estimate:
    """The mean of estimates, with the mean of their ends as interval; without an interval if a member has none.

    Members usually share pictures, so their errors are correlated. This interval is never too narrow.
    """
    value = float(np.mean([e.value for e in members]))
    if any(e.ci_low is None or e.ci_high is None for e in members):
        return Estimate(value, n=n, kind=kind)
    low, high = (float(np.mean([getattr(e, end) for e in members])) for end in ("ci_low", "ci_high"))
    return Estimate(value, low, high, n, kind)
