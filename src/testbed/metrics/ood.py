"""Detection of pictures of unknown classes: scores from logits, and how well they separate known from unknown.

As in OpenOOD, pictures of unknown classes are the positives, and numbers are in percent. AUPR differs: it is average
precision (a step function), since the trapezoid of OpenOOD is too optimistic.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from testbed.metrics.estimate import ERROR, HIGHER, Estimate, MetricKind, clipped, mean_estimate, share
from testbed.metrics.labels import OWN, targets_are
from testbed.metrics.softmax import blocks, exponentials, log_softmax

DETECTION = MetricKind("%", HIGHER, 0.0, 100.0)  # areas under curves
_Z = 1.959964  # of a 95 % normal interval


def _msp(z: np.ndarray) -> np.ndarray:
    return 1 / exponentials(z)[2].sum(axis=1)


def _max_logit(z: np.ndarray) -> np.ndarray:
    return z.max(axis=1).astype(np.float64)


def _energy(z: np.ndarray) -> np.ndarray:
    return log_softmax(z)[1]


def _entropy(z: np.ndarray) -> np.ndarray:
    log_p, _ = log_softmax(z)
    return (np.exp(log_p) * log_p).sum(axis=1)


# Each is higher for pictures that look like a known class, so energy and entropy are negated.
SCORES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "msp": _msp,
    "max_logit": _max_logit,
    "energy": _energy,
    "entropy": _entropy,
}
# Without a better direction: only the scores of known and unknown pictures together say how well a model does.
SCORE_KINDS: dict[str, MetricKind] = {
    "msp": MetricKind("", None, 0.0, 1.0),
    "max_logit": MetricKind("logits"),
    "energy": MetricKind("nats"),
    "entropy": MetricKind("nats", None, None, 0.0),
}


def familiarity(logits: np.ndarray, score: str) -> np.ndarray:
    """The score of each picture; higher means more like the known classes."""
    if score not in SCORES:
        raise ValueError(f"expected a score among {', '.join(SCORES)}, got {score!r}")
    return np.concatenate([SCORES[score](part) for _, part in blocks(logits)])


@targets_are(OWN)
def mean_scores(logits: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn for pictures of unknown classes: the mean of each score. Detection needs known pictures as well."""
    return {f"{name}_mean": mean_estimate(familiarity(logits, name), SCORE_KINDS[name]) for name in SCORES}


def detection(known: np.ndarray, unknown: np.ndarray) -> dict[str, Estimate]:
    """auroc, fpr95, aupr_out and aupr_in of scores that are higher for known pictures."""
    if not len(known) or not len(unknown):
        raise ValueError(f"detection: expected scores of both kinds, got {len(known)} and {len(unknown)}")
    return {
        "auroc": auroc(known, unknown),
        "fpr95": fpr_at_95(known, unknown),
        "aupr_out": average_precision(-unknown, -known),
        "aupr_in": average_precision(known, unknown),
    }


def auroc(known: np.ndarray, unknown: np.ndarray) -> Estimate:
    """The probability that a known picture scores higher than an unknown one; ties count half.

    The interval is that of DeLong et al. (1988).
    """
    known_sorted, unknown_sorted = np.sort(known), np.sort(unknown)
    of_unknown = 1 - _share_below(unknown, known_sorted)
    of_known = _share_below(known, unknown_sorted)
    value = float(of_known.mean())
    n = len(known) + len(unknown)
    if min(len(known), len(unknown)) < 2:
        return Estimate(100 * value, n=n, kind=DETECTION)
    half = _Z * float(np.sqrt(of_known.var(ddof=1) / len(known) + of_unknown.var(ddof=1) / len(unknown)))
    return clipped(100 * value, 100 * (value - half), 100 * (value + half), n, DETECTION)


def _share_below(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """For each value the share of `ordered` that is lower; equal ones count half."""
    below = np.searchsorted(ordered, values, side="left")
    not_above = np.searchsorted(ordered, values, side="right")
    return (below + not_above) / (2 * len(ordered))


def fpr_at_95(known: np.ndarray, unknown: np.ndarray) -> Estimate:
    """The share of known pictures that are rejected at the threshold that rejects 95 % of the unknown ones.

    Unknown is positive, as in OpenOOD; other repositories define FPR95 with known as positive, and get other numbers.
    The interval takes the threshold as fixed.
    """
    threshold = np.sort(unknown)[int(np.ceil(0.95 * len(unknown))) - 1]
    return share(int((known <= threshold).sum()), len(known), ERROR)


def average_precision(positives: np.ndarray, negatives: np.ndarray) -> Estimate:
    """Average precision of positives, which should score higher, with the logit interval of Boyd et al. (2013)."""
    values = np.concatenate([positives, negatives])
    positive = np.concatenate([np.ones(len(positives)), np.zeros(len(negatives))])
    order = np.argsort(-values, kind="stable")
    values, positive = values[order], positive[order]
    # Equal scores share one threshold, so precision is taken after the last of them.
    last_of_ties = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    hits = np.cumsum(positive)[last_of_ties]
    precision = hits / (last_of_ties + 1)
    value = float((np.diff(hits, prepend=0) / len(positives) * precision).sum())
    if not 0 < value < 1:
        return Estimate(100 * value, n=len(values), kind=DETECTION)
    logit, half = np.log(value / (1 - value)), _Z / np.sqrt(len(positives) * value * (1 - value))
    low, high = (1 / (1 + np.exp(-(logit + end))) for end in (-half, half))
    return Estimate(100 * value, 100 * float(low), 100 * float(high), len(values), DETECTION)
