"""Corruption error relative to AlexNet's: CE, mCE and relative mCE (Hendrycks and Dietterich 2019), in percent.

Once for tables of many models, as arrays with values, lower ends and upper ends along their first axis: the ends of a
sum are the sums of the ends, which is never too narrow, whatever the correlation between severities. And once as
weights of accuracies, from which testbed.metrics.aggregates makes estimates that know which pictures severities share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from testbed.metrics.estimate import LOWER, MetricKind

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


# ---- weights of accuracies -------------------------------------------------------------------------------

# A number as a weighted sum of accuracies in percent: (weight of each setting, kind, constant). Its interval can then
# take account of the pictures that the settings share.
Weights = tuple[dict[str, float], MetricKind, float]


def mce_weights(settings: Mapping[str, Sequence[str]], baseline: Mapping[str, Sequence[float]]) -> Weights:
    """mCE over corruptions, each with its settings in the order of severities; of a single corruption its CE."""
    weights: dict[str, float] = {}
    constant = 0.0
    for name, members in settings.items():
        share = 1 / sum(_severities(baseline, name, len(members))) / len(settings)
        weights |= dict.fromkeys(members, -share)
        constant += 100 * len(members) * share
    return weights, ABSOLUTE, constant


def relative_mce_weights(
    settings: Mapping[str, Sequence[str]],
    clean: str,
    baseline: Mapping[str, Sequence[float]],
    baseline_clean: float = ALEXNET_CLEAN_ERROR,
) -> Weights:
    """Relative mCE, where `clean` is the setting without corruption."""
    weights = {clean: 0.0}
    for name, members in settings.items():
        rise = sum(_severities(baseline, name, len(members))) - baseline_clean * len(members)
        share = 1 / rise / len(settings)
        weights |= dict.fromkeys(members, -share)
        weights[clean] += len(members) * share
    return weights, RELATIVE, 0.0


def _severities(baseline: Mapping[str, Sequence[float]], name: str, count: int) -> Sequence[float]:
    if name not in baseline or len(baseline[name]) != count:
        raise ValueError(f"corruption '{name}': expected baseline errors of {count} severities")
    return baseline[name]
