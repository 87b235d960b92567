"""Corruption error relative to AlexNet's: CE, mCE and relative mCE (Hendrycks and Dietterich 2019), in percent.

Arrays have values, lower ends and upper ends of intervals along their first axis, so that estimates of one model and
tables of many models use the same functions. The ends of a sum are the sums of the ends. This interval is never too
narrow, whatever the correlation between severities, which share pictures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from testbed.metrics.estimate import LOWER, Estimate, MetricKind, clipped, mean_of_estimates

# Error of torchvision's AlexNet on clean validation pictures; the paper gives 43.5 %.
ALEXNET_CLEAN_ERROR = 0.43478

ABSOLUTE = MetricKind("%", LOWER, 0.0)  # CE and mCE: 100 is the baseline model, and there is no upper limit
RELATIVE = MetricKind("%", LOWER)  # relative CE and mCE: below 0 if a model is better on corrupted pictures


# ---- arrays ----------------------------------------------------------------------------------------------


def summed_errors(accuracies: np.ndarray) -> np.ndarray:
    """Errors in percent, summed over severities: from accuracies (3, ..., severities) in percent to (3, ...)."""
    return (100 - accuracies[[0, 2, 1]]).sum(axis=-1)  # the lower end of an error is 100 minus an accuracy's upper end


def mean_corruption_error(accuracies: Mapping[str, np.ndarray], reference: Mapping[str, float]) -> np.ndarray:
    """mCE: the mean over the corruptions of `reference`, which has the baseline's summed error in percent for each.

    `accuracies` are (3, ..., severities) in percent. The result is (3, ...), NaN if an accuracy is missing.
    """
    return np.mean([100 * summed_errors(accuracies[name]) / error for name, error in reference.items()], axis=0)


# ---- estimates of one model ------------------------------------------------------------------------------


def corruption_errors(
    accuracies: Mapping[str, Sequence[Estimate]], baseline: Mapping[str, Sequence[float]]
) -> dict[str, Estimate]:
    """CE of each corruption: its errors summed over severities, divided by the baseline's sum.

    `accuracies` are in percent; `baseline` has errors as fractions, as published.
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
    """Relative CE: the rise of the error over the clean error, divided by the baseline's rise."""
    clean_errors = 100 - _ends([clean])[:, 0]
    errors = {}
    for name, members in accuracies.items():
        of_baseline = _severities(baseline, name, len(members))
        reference = 100 * (sum(of_baseline) - baseline_clean * len(members))
        # clean_errors has its upper end before its lower one, so opposite ends are subtracted: the widest interval.
        rise = summed_errors(_ends(members)) - len(members) * clean_errors
        errors[name] = _estimate(100 * rise / reference, RELATIVE)
    return errors


def mean_of(errors: Mapping[str, Estimate], kind: MetricKind = ABSOLUTE) -> Estimate:
    """mCE from CEs: their mean, with the mean of the ends as interval."""
    return mean_of_estimates(list(errors.values()), kind)


def _severities(baseline: Mapping[str, Sequence[float]], name: str, count: int) -> Sequence[float]:
    if name not in baseline or len(baseline[name]) != count:
        raise ValueError(f"corruption '{name}': expected baseline errors of {count} severities")
    return baseline[name]


def _ends(members: Sequence[Estimate]) -> np.ndarray:
    """Values, lower ends and upper ends, (3, members); NaN for an unknown end."""
    return np.array([[e.value, e.ci_low, e.ci_high] for e in members], dtype=np.float64).T


def _estimate(ends: np.ndarray, kind: MetricKind) -> Estimate:
    value, low, high = (float(end) for end in ends)
    return clipped(value, low, high, None, kind)
