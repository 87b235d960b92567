"""Corruption error relative to AlexNet's: CE, mCE and relative mCE (Hendrycks and Dietterich 2019), in percent.

The arithmetic is on arrays whose first axis holds values, lower ends and upper ends of intervals; estimates of one
model and tables of many go through the same functions. A sum of errors is linear in them, so the ends are summed too;
severities share pictures, and the result is never too narrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from testbed.metrics.estimate import LOWER, Estimate, MetricKind, clipped, mean_of_estimates

# Error of torchvision's AlexNet on clean validation pictures; the paper says 43.5 %.
ALEXNET_CLEAN_ERROR = 0.43478

ABSOLUTE = MetricKind("%", LOWER, 0.0)  # of CE and mCE; 100 is the baseline model, and there is no highest
RELATIVE = MetricKind("%", LOWER)  # of the relative ones; below 0 for a model that is better on corrupted pictures


# ---- arrays ----------------------------------------------------------------------------------------------


def summed_errors(accuracies: np.ndarray) -> np.ndarray:
    """Errors in percent summed over severities: (3, ..., severities) accuracies in percent to (3, ...)."""
    return (100 - accuracies[[0, 2, 1]]).sum(axis=-1)  # the lower end of an error is the upper one of an accuracy


def mean_corruption_error(accuracies: Mapping[str, np.ndarray], reference: Mapping[str, float]) -> np.ndarray:
    """mCE: the mean over the corruptions of `reference`, which holds the baseline's summed error in percent of each.

    `accuracies` are (3, ..., severities) in percent; the result is (3, ...), NaN where an accuracy is missing.
    """
    return np.mean([100 * summed_errors(accuracies[name]) / error for name, error in reference.items()], axis=0)


# ---- estimates of one model ------------------------------------------------------------------------------


def corruption_errors(
    accuracies: Mapping[str, Sequence[Estimate]], baseline: Mapping[str, Sequence[float]]
) -> dict[str, Estimate]:
    """CE of each corruption: the errors over its severities, summed and divided by the baseline's.

    `accuracies` are in percent; `baseline` holds errors as fractions.
    """
    errors = {}
    for name, members in accuracies.items():
        reference = 100 * sum(_severities(baseline, name, len(members)))
        errors[name] = _estimate(mean_corruption_error({name: _ends(members)}, {name: reference}), ABSOLUTE)
    return errors


def relative_corruption_errors(
    accuracies: Mapping[str, Sequence[Estimate]],
    clean: Estimate,
    baseline: Mapping[str, Sequence[float]],
    baseline_clean: float = ALEXNET_CLEAN_ERROR,
) -> dict[str, Estimate]:
    """Relative CE: how much the error rises above the clean one, divided by how much the baseline's does."""
    clean_errors = 100 - _ends([clean])[:, 0]
    errors = {}
    for name, members in accuracies.items():
        of_baseline = _severities(baseline, name, len(members))
        reference = 100 * (sum(of_baseline) - baseline_clean * len(members))
        # The widest case: corrupted error at one end, clean error at the other.
        rise = summed_errors(_ends(members)) - len(members) * clean_errors
        errors[name] = _estimate(100 * rise / reference, RELATIVE)
    return errors


def mean_of(errors: Mapping[str, Estimate], kind: MetricKind = ABSOLUTE) -> Estimate:
    """mCE from CEs: the mean, with the mean of the ends."""
    return mean_of_estimates(list(errors.values()), kind)


def _severities(baseline: Mapping[str, Sequence[float]], name: str, count: int) -> Sequence[float]:
    if name not in baseline or len(baseline[name]) != count:
        raise ValueError(f"corruption '{name}': expected baseline errors of {count} severities")
    return baseline[name]


def _ends(members: Sequence[Estimate]) -> np.ndarray:
    """(3, members): values, lower and upper ends; NaN for an end that is not known."""
    return np.array([[e.value, e.ci_low, e.ci_high] for e in members], dtype=np.float64).T


def _estimate(ends: np.ndarray, kind: MetricKind) -> Estimate:
    value, low, high = (float(end) for end in ends)
    return clipped(value, low, high, None, kind)
