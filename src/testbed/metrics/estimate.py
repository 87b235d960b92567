"""A measured number with its interval."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.stats.intervals import clopper_pearson


@dataclass(frozen=True)
class Estimate:
    """A value, its 95 % interval and the number of images behind it."""

    value: float
    ci_low: float | None = None
    ci_high: float | None = None
    n: int | None = None


def share(hits: int, n: int) -> Estimate:
    """hits of n in percent, with the exact interval."""
    low, high = clopper_pearson(hits, n)
    return Estimate(100.0 * hits / n, 100.0 * low, 100.0 * high, n)
