"""Does a classifier know how sure it may be? NLL, Brier score, calibration error, selective risk, temperature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed.metrics.estimate import Estimate
from testbed.stats.intervals import mean_interval

BINS = 15  # Guo et al. 2017
_RESAMPLES = 200
_ROWS_AT_ONCE = 4096  # bounded memory for a memory-mapped file
COLDEST, HOTTEST = 1e-2, 1e2  # temperatures that are looked at


@dataclass(frozen=True)
class Scores:
    """What the softmax says of each image that has a label."""

    nll: np.ndarray  # -log of the probability of the label, in nats
    brier: np.ndarray  # squared distance of the probabilities from the label's corner, 0 to 2
    confidence: np.ndarray  # probability of the predicted class
    correct: np.ndarray  # whether it is the label

    def __len__(self) -> int:
        return len(self.nll)


def scores(logits: np.ndarray, targets: np.ndarray, temperature: float = 1.0) -> Scores:
    """Per image, with logits divided by `temperature`. Images without a label are left out."""
    known = np.flatnonzero(targets >= 0)
    labels = targets[known]
    columns = [np.empty(len(known)) for _ in range(3)]
    correct = np.empty(len(known), dtype=bool)
    for start in range(0, len(known), _ROWS_AT_ONCE):
        stop = start + _ROWS_AT_ONCE
        part = np.asarray(_rows(logits, known[start:stop]), dtype=np.float32) / np.float32(temperature)
        label = labels[start:stop, None]
        predicted = part.argmax(axis=1)
        part -= np.take_along_axis(part, predicted[:, None], axis=1)
        of_label = np.take_along_axis(part, label, axis=1)[:, 0].astype(np.float64)
        np.exp(part, out=part)
        total = part.sum(axis=1, dtype=np.float64)
        p_label = np.exp(of_label) / total
        squares = np.einsum("ij,ij->i", part, part, dtype=np.float64) / total**2
        columns[0][start:stop] = np.log(total) - of_label
        columns[1][start:stop] = squares - 2 * p_label + 1
        columns[2][start:stop] = 1 / total
        correct[start:stop] = predicted == label[:, 0]
    return Scores(columns[0], columns[1], columns[2], correct)


def _rows(logits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Those rows; consecutive ones as a slice, which copies nothing."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return logits[rows[0] : rows[-1] + 1]
    return logits[rows]


# ---- numbers from scores ---------------------------------------------------------------------------------


def nll_of(found: Scores) -> Estimate:
    return _mean(found.nll)


def brier_of(found: Scores) -> Estimate:
    return _mean(found.brier)


def ece_of(found: Scores, bins: int = BINS) -> Estimate:
    """Expected calibration error in percent: |accuracy - confidence| over equal-width bins (0, 1/15], (1/15, ...]."""
    place = np.clip(np.ceil(found.confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    return _binned_error(found, place, bins)


def adaptive_ece_of(found: Scores, bins: int = BINS) -> Estimate:
    """The same over bins that hold equally many images (Nixon et al. 2019)."""
    order = np.argsort(found.confidence, kind="stable")
    place = np.empty(len(found), dtype=np.int64)
    place[order] = np.arange(len(found)) * bins // max(len(found), 1)
    return _binned_error(found, place, bins)


def selective_risk_of(found: Scores) -> Estimate:
    """Area under the risk-coverage curve in percent: the error among the k surest images, averaged over all k.

    Equally sure images count as equally wrong (Geifman and El-Yaniv 2017). The interval resamples images.
    """
    n = len(found)
    order = np.argsort(-found.confidence, kind="stable")
    sure, wrong = found.confidence[order], (~found.correct[order]).astype(np.float64)
    tied = np.cumsum(np.append(0, np.diff(sure) != 0))
    counts = np.arange(1, n + 1)

    def area(weights: np.ndarray | None) -> float:
        rows = slice(None) if weights is None else np.repeat(np.arange(n), weights)  # still in order of confidence
        level = tied[rows]
        mean_of_level = np.bincount(level, wrong[rows]) / np.maximum(np.bincount(level), 1)
        return 100 * float((np.cumsum(mean_of_level[level]) / counts).mean())

    rng = np.random.default_rng(0)
    draws = [area(np.bincount(rng.integers(0, n, n), minlength=n)) for _ in range(_RESAMPLES)]
    low, high = np.percentile(draws, [2.5, 97.5])
    return Estimate(area(None), float(low), float(high), n)


def _mean(values: np.ndarray) -> Estimate:
    return Estimate(*_finite_interval(values), len(values))


def _finite_interval(values: np.ndarray) -> tuple[float, float | None, float | None]:
    mean, low, high = mean_interval(values)
    return (mean, low, high) if np.isfinite(low) else (mean, None, None)


def _binned_error(found: Scores, place: np.ndarray, bins: int) -> Estimate:
    """Interval by resampling images. Calibration error of few images is biased upwards, and so is its interval."""
    n = len(found)
    gap = found.correct - found.confidence

    def error(rows: np.ndarray | slice) -> float:
        return 100 * float(np.abs(np.bincount(place[rows], gap[rows], minlength=bins)).sum()) / n

    rng = np.random.default_rng(0)
    low, high = np.percentile([error(rng.integers(0, n, n)) for _ in range(_RESAMPLES)], [2.5, 97.5])
    value = error(slice(None))
    return Estimate(value, min(float(low), value), max(float(high), value), n)


# ---- numbers from logits ---------------------------------------------------------------------------------


def nll(logits: np.ndarray, targets: np.ndarray) -> Estimate:
    return nll_of(scores(logits, targets))


def brier(logits: np.ndarray, targets: np.ndarray) -> Estimate:
    return brier_of(scores(logits, targets))


def ece(logits: np.ndarray, targets: np.ndarray, bins: int = BINS) -> Estimate:
    return ece_of(scores(logits, targets), bins)


def adaptive_ece(logits: np.ndarray, targets: np.ndarray, bins: int = BINS) -> Estimate:
    return adaptive_ece_of(scores(logits, targets), bins)


def fit_temperature(logits: np.ndarray, targets: np.ndarray, tolerance: float = 1e-5) -> float:
    """The temperature whose softmax has the least NLL (Guo et al. 2017).

    The NLL is convex in 1 / temperature: Newton's steps, and halving where one would leave the bracket.
    """
    known = np.flatnonzero(targets >= 0)
    if not len(known):
        raise ValueError("fit_temperature: expected images with labels, got none")
    low, high, inverse = 1 / HOTTEST, 1 / COLDEST, 1.0
    for _ in range(60):
        slope, curvature = _nll_slope(logits, targets, known, inverse)
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        step = inverse - slope / curvature if curvature > 0 else low
        following = step if low < step < high else (low + high) / 2
        if abs(following - inverse) <= tolerance * inverse:
            return 1 / following
        inverse = following
    return 1 / inverse


def _nll_slope(logits: np.ndarray, targets: np.ndarray, known: np.ndarray, inverse: float) -> tuple[float, float]:
    """First and second derivative of the mean NLL by 1 / temperature."""
    slope = curvature = 0.0
    for start in range(0, len(known), _ROWS_AT_ONCE):
        rows = known[start : start + _ROWS_AT_ONCE]
        part = np.asarray(_rows(logits, rows), dtype=np.float32)
        part = part - part.max(axis=1, keepdims=True)
        p = np.exp(np.float32(inverse) * part)
        total = p.sum(axis=1, dtype=np.float64)
        p *= part
        mean = p.sum(axis=1, dtype=np.float64) / total
        square = np.einsum("ij,ij->i", p, part, dtype=np.float64) / total
        slope += float((mean - np.take_along_axis(part, targets[rows][:, None], axis=1)[:, 0]).sum())
        curvature += float((square - mean**2).sum())
    return slope / len(known), curvature / len(known)


def calibration_at(logits: np.ndarray, targets: np.ndarray, temperature: float = 1.0) -> dict[str, Estimate]:
    """All of the above for logits / temperature."""
    found = scores(logits, targets, temperature)
    return {
        "ece": ece_of(found),
        "adaptive_ece": adaptive_ece_of(found),
        "nll": nll_of(found),
        "brier": brier_of(found),
        "selective_risk": selective_risk_of(found),
    }


def calibration(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn: all of the above, and what is left after a temperature fitted on the other half of the images."""
    known = np.flatnonzero(targets >= 0)
    if len(known) < 2:
        return {}
    halves = known[::2], known[1::2]
    temperatures = [fit_temperature(logits[half], targets[half]) for half in halves]
    # Each half is judged at the temperature of the other one.
    parts = [scores(logits[h], targets[h], t) for h, t in zip(halves, reversed(temperatures), strict=True)]
    cooled = Scores(*(np.concatenate([getattr(p, f) for p in parts]) for f in Scores.__dataclass_fields__))
    low, high = sorted(temperatures)
    return {
        **calibration_at(logits, targets),
        "temperature": Estimate((low + high) / 2, n=len(known)),
        "ece_at_temperature": ece_of(cooled),
        "nll_at_temperature": nll_of(cooled),
    }


calibration.columns_are_classes = True  # type: ignore[attr-defined]
