"""Corruption error relative to AlexNet's: CE, mCE and relative mCE (Hendrycks and Dietterich 2019), in percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from testbed.metrics.estimate import Estimate

# Error of torchvision's AlexNet on clean validation pictures; the paper says 43.5 %.
ALEXNET_CLEAN_ERROR = 0.43478


def corruption_errors(
    accuracies: Mapping[str, Sequence[Estimate]], baseline: Mapping[str, Sequence[float]]
) -> dict[str, Estimate]:
    """CE of each corruption: the errors over its severities, summed and divided by the baseline's.

    `accuracies` are in percent; `baseline` holds errors as fractions. A sum of errors is linear in them, so the ends
    of the intervals are summed too; severities share pictures, and the result is never too narrow.
    """
    found = {}
    for name, members in accuracies.items():
        errors = _errors(members, baseline, name)
        scale = 100 / (100 * sum(baseline[name]))
        found[name] = _estimate([scale * float(sum(e)) for e in errors])
    return found


def relative_corruption_errors(
    accuracies: Mapping[str, Sequence[Estimate]],
    clean: Estimate,
    baseline: Mapping[str, Sequence[float]],
    baseline_clean: float = ALEXNET_CLEAN_ERROR,
) -> dict[str, Estimate]:
    """Relative CE: how much the error rises above the clean one, divided by how much the baseline's does."""
    value, low, high = (100 - end for end in (clean.value, _end(clean, "ci_low"), _end(clean, "ci_high")))
    found = {}
    for name, members in accuracies.items():
        errors = _errors(members, baseline, name)
        scale = 100 / (100 * (sum(baseline[name]) - baseline_clean * len(baseline[name])))
        # The widest case: corrupted error at one end, clean error at the other.
        ends = [sum(e) - len(members) * c for e, c in zip(errors, (value, low, high), strict=True)]
        found[name] = _estimate([scale * float(e) for e in ends])
    return found


def mean_of(errors: Mapping[str, Estimate]) -> Estimate:
    """mCE from CEs: the mean, with the mean of the ends."""
    members = list(errors.values())
    return _estimate(
        [float(np.mean([_end(e, end) for e in members])) for end in ("value", "ci_low", "ci_high")], members[0].n
    )


def _errors(
    members: Sequence[Estimate], baseline: Mapping[str, Sequence[float]], name: str
) -> tuple[list[float], list[float], list[float]]:
    """Errors in percent: values, lower ends, upper ends."""
    if name not in baseline or len(baseline[name]) != len(members):
        raise ValueError(f"corruption '{name}': expected baseline errors of {len(members)} severities")
    return (
        [100 - e.value for e in members],
        [100 - _end(e, "ci_high") for e in members],
        [100 - _end(e, "ci_low") for e in members],
    )


def _end(estimate: Estimate, end: str) -> float:
    found = getattr(estimate, end)
    return estimate.value if found is None else float(found)


def _estimate(ends: Sequence[float], n: int | None = None) -> Estimate:
    value, low, high = ends
    return Estimate(value, low, high, n)
