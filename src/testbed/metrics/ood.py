"""Detection of pictures of unknown classes: scores from logits, and how well they separate known from unknown.

As in OpenOOD, pictures of unknown classes are the positives, and numbers are in percent. AUPR differs: it is average
precision (a step function), since the trapezoid of OpenOOD is too optimistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from testbed.metrics.estimate import ERROR, HIGHER, Estimate, MetricKind, clipped, mean_estimate
from testbed.metrics.labels import OWN, targets_are
from testbed.metrics.softmax import blocks, exponentials, log_softmax
from testbed.stats.intervals import clopper_pearson, logit_interval, mixed_beta_quantiles

DETECTION = MetricKind("%", HIGHER, 0.0, 100.0)  # areas under curves


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
    return familiarities(logits, [score])[score]


def familiarities(logits: np.ndarray, scores: Iterable[str] = tuple(SCORES)) -> dict[str, np.ndarray]:
    """Several scores of each picture, from logits that are read once."""
    parts = [{score: SCORES[score](part) for score in scores} for _, part in blocks(logits)]
    return {score: np.concatenate([part[score] for part in parts]) for score in scores}


@targets_are(OWN)
def mean_scores(logits: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn for pictures of unknown classes: the mean of each score. Detection needs known pictures as well."""
    return {f"{name}_mean": mean_estimate(v, SCORE_KINDS[name]) for name, v in familiarities(logits).items()}


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

    The interval has the variance of DeLong et al. (1988) and is formed on the logit scale (Pepe 2003), where it does
    not leave 0 to 100 and holds up close to 100.
    """
    of_unknown = 1 - _share_below(unknown, np.sort(known))
    of_known = _share_below(known, np.sort(unknown))
    return _area(float(of_known.mean()), of_known / len(known), of_unknown / len(unknown))


def _share_below(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """For each value the share of `ordered` that is lower; equal ones count half."""
    below = np.searchsorted(ordered, values, side="left")
    not_above = np.searchsorted(ordered, values, side="right")
    return (below + not_above) / (2 * len(ordered))


def _area(value: float, first: np.ndarray, second: np.ndarray) -> Estimate:
    """An area between 0 and 1 in percent, from what each picture of two independent samples adds to it."""
    smaller, n = min(len(first), len(second)), len(first) + len(second)
    if smaller < 2 or not 0 < value < 1:
        # Nothing varies. As uncertain as a share of so many pictures, which is never too narrow.
        low, high = clopper_pearson(value * smaller, smaller)
    else:
        variance = sum(len(part) * part.var(ddof=1) for part in (first, second))
        low, high = logit_interval(value, float(np.sqrt(variance)))
    return clipped(100 * value, 100 * low, 100 * high, n, DETECTION)


def fpr_at_95(known: np.ndarray, unknown: np.ndarray) -> Estimate:
    """The share of known pictures that are rejected at the threshold that rejects 95 % of the unknown ones.

    Unknown is positive, as in OpenOOD; other repositories define FPR95 with known as positive, and get other numbers.
    The interval covers both samples. With fewer than 72 unknown pictures all of them may lie below the true threshold,
    and its upper end is far up.
    """
    ordered, known_ordered = np.sort(unknown), np.sort(known)
    n = len(known)
    threshold = ordered[int(np.ceil(0.95 * len(unknown))) - 1]
    value = float((known <= threshold).mean())
    # The true threshold is between the j-th and the next unknown score with binomial probability ...
    chances, places = _quantile_places(len(unknown), 0.95)
    after = np.append(0, np.searchsorted(known_ordered, ordered, side="right"))  # rejected just above the j-th score
    until = np.append(np.searchsorted(known_ordered, ordered, side="left"), n)  # and just below the next one
    rejected = (after[places] + until[places]) / 2
    # ... and given the rejected pictures, the share is distributed as Jeffreys (1946) has it. The steps between
    # thresholds hold a part of the noise of the known pictures already, which is taken out here.
    share = float(chances @ rejected) / n
    noise, steps = share * (1 - share), float(chances @ np.abs(rejected / n - share))
    scale = noise / max(noise - steps, noise / 2) if noise > 0 else 1.0
    a, b = scale * rejected + 0.5, scale * (n - rejected) + 0.5
    low, high = mixed_beta_quantiles((0.025, 0.975), chances, a, b)
    return Estimate(100 * value, 100 * min(low, value), 100 * max(high, value), n, ERROR)


def _quantile_places(n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """(probability, j) that j of n values lie below the true quantile, for every j that is not next to impossible."""
    from scipy.special import bdtr

    reach = 8 * np.sqrt(n * share * (1 - share)) + 8  # eight standard deviations: less than 1e-14 is left out
    places = np.arange(max(int(n * share - reach), 0), min(int(n * share + reach), n) + 1)
    below = np.where(places > 0, bdtr(np.maximum(places - 1, 0), n, share), 0.0)
    return bdtr(places, n, share) - below, places


def average_precision(positives: np.ndarray, negatives: np.ndarray) -> Estimate:
    """Average precision of positives, which should score higher: the mean of the precision at each of their scores.

    The interval is the delta method's, on the logit scale: every picture counts in the precision at each threshold
    below its own score, a positive also by the precision at its own.
    """
    positives, negatives = np.sort(positives), np.sort(negatives)
    n = len(positives)
    # Of both kinds, those that score at least as high as each positive. Equal scores share one threshold.
    hits = n - np.searchsorted(positives, positives, side="left")
    taken = hits + len(negatives) - np.searchsorted(negatives, positives, side="left")
    precision = hits / taken
    # How the summed precision of the thresholds up to a score grows with one more positive, or one more negative.
    by_positive = np.append(0, np.cumsum((taken - hits) / taken**2))
    by_negative = np.append(0, np.cumsum(-hits / taken**2))
    of_positive = precision + by_positive[np.searchsorted(positives, positives, side="right")]
    of_negative = by_negative[np.searchsorted(positives, negatives, side="right")]
    return _area(float(precision.mean()), of_positive / n, of_negative / n)
