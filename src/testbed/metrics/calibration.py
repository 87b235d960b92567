"""Calibration: NLL, Brier score, calibration error, selective risk, and the temperature that fits best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from testbed.metrics.estimate import ERROR, LOWER, Estimate, MetricKind, clipped, mean_estimate
from testbed.metrics.labels import COLUMNS, targets_are
from testbed.metrics.softmax import exponentials, row_blocks

NLL = MetricKind("nats", LOWER, 0.0)
BRIER = MetricKind("", LOWER, 0.0, 2.0)
TEMPERATURE = MetricKind("", None, 0.0)  # 1: as trained; above 1 the model was overconfident, below 1 underconfident
BINS = 15  # Guo et al. 2017
_RESAMPLES = 200
_Z = 1.959964  # of a 95 % normal interval
_ROWS_AT_ONCE = 4096  # bounded memory for a memory-mapped file
COLDEST, HOTTEST = 1e-2, 1e2  # the range that is searched for a temperature


@dataclass(frozen=True)
class Scores:
    """The softmax scores of each image that has a label."""

    nll: np.ndarray  # -log of the probability of the label, in nats
    brier: np.ndarray  # squared distance of the probabilities from the one-hot label, 0 to 2
    confidence: np.ndarray  # probability of the predicted class
    correct: np.ndarray  # whether the predicted class is the label

    def __len__(self) -> int:
        return len(self.nll)


# (rows among the labelled images, their logits, their labels as a column)
Look = Callable[[slice, np.ndarray, np.ndarray], None]


def scores(logits: np.ndarray, targets: np.ndarray, temperature: float = 1.0, look: Look | None = None) -> Scores:
    """Scores of every image, with logits divided by `temperature`. Images without a label are left out.

    `look` is shown every block of logits on the way, so that a stored file is read once for everything.
    """
    known = np.flatnonzero(targets >= 0)
    n = len(known)
    per_image = Scores(np.empty(n), np.empty(n), np.empty(n), np.empty(n, dtype=bool))
    labels = targets[known, None]
    for rows in row_blocks(n, logits.shape[1]):
        part, label = _rows(logits, known[rows]), labels[rows]
        if look is not None:
            look(rows, part, label)
        _, shifted, powers = exponentials(part, temperature)
        total = powers.sum(axis=1)
        of_label = np.take_along_axis(shifted, label, axis=1)[:, 0]
        squares = np.einsum("ij,ij->i", powers, powers) / total**2
        per_image.nll[rows] = np.log(total) - of_label
        # For a confident, correct answer the three terms cancel, and rounding may leave a negative number.
        per_image.brier[rows] = np.maximum(squares - 2 * np.exp(of_label) / total + 1, 0)
        per_image.confidence[rows] = 1 / total
        per_image.correct[rows] = part.argmax(axis=1) == label[:, 0]
    return per_image


def _rows(logits: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The selected rows; a slice, which copies nothing, if they are consecutive."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return logits[rows[0] : rows[-1] + 1]
    return logits[rows]


# ---- bins of confidence ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConfidenceBins:
    """Images in bins of confidence. Each array has one value per bin."""

    count: np.ndarray
    summed_confidence: np.ndarray
    right: np.ndarray

    @property
    def confidence(self) -> np.ndarray:
        """The mean confidence of each bin as a fraction; NaN for an empty bin."""
        return self.summed_confidence / np.where(self.count, self.count, np.nan)

    @property
    def accuracy(self) -> np.ndarray:
        """The accuracy of each bin as a fraction; NaN for an empty bin."""
        return self.right / np.where(self.count, self.count, np.nan)

    @property
    def expected_error(self) -> float:
        """Expected calibration error in percent: |accuracy - confidence| of each bin, averaged over images."""
        return 100 * float(np.abs(self.right - self.summed_confidence).sum()) / int(self.count.sum())


def equal_width_places(confidence: np.ndarray, bins: int = BINS) -> np.ndarray:
    """The bin of each image among (0, 1/bins], (1/bins, 2/bins], ..."""
    return np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)


def binned(confidence: np.ndarray, correct: np.ndarray, place: np.ndarray, bins: int = BINS) -> ConfidenceBins:
    """The bins, where `place` is the bin of each image."""
    columns = (np.bincount(place, weights, minlength=bins) for weights in (None, confidence, correct))
    return ConfidenceBins(*columns)


# ---- numbers from scores ---------------------------------------------------------------------------------


def nll_of(per_image: Scores) -> Estimate:
    return mean_estimate(per_image.nll, NLL)


def brier_of(per_image: Scores) -> Estimate:
    return mean_estimate(per_image.brier, BRIER)


def ece_of(per_image: Scores, bins: int = BINS) -> Estimate:
    """Expected calibration error in percent over equal-width bins of confidence."""
    return _binned_error(per_image, equal_width_places(per_image.confidence, bins), bins)


def adaptive_ece_of(per_image: Scores, bins: int = BINS) -> Estimate:
    """Expected calibration error over bins with equal numbers of images (Nixon et al. 2019)."""
    order = np.argsort(per_image.confidence, kind="stable")
    place = np.empty(len(per_image), dtype=np.int64)
    # If n is no multiple of the bins, other programs cut the ranks differently: up to 0.4 points for n = 1000.
    place[order] = np.arange(len(per_image)) * bins // max(len(per_image), 1)
    return _binned_error(per_image, place, bins)


def selective_risk_of(per_image: Scores) -> Estimate:
    """The area under the risk-coverage curve in percent: the error of the k most confident images, averaged over k.

    Images of equal confidence get their mean error (Geifman and El-Yaniv 2017). The interval resamples images.
    """
    n = len(per_image)
    order = np.argsort(-per_image.confidence, kind="stable")
    sure, wrong = per_image.confidence[order], (~per_image.correct[order]).astype(np.float64)
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
    return Estimate(area(None), float(low), float(high), n, ERROR)


def _binned_error(per_image: Scores, place: np.ndarray, bins: int) -> Estimate:
    """The error with a bootstrap interval over images. For few images both are biased upwards."""
    n = len(per_image)

    def error(rows: np.ndarray | slice) -> float:
        return binned(per_image.confidence[rows], per_image.correct[rows], place[rows], bins).expected_error

    rng = np.random.default_rng(0)
    low, high = np.percentile([error(rng.integers(0, n, n)) for _ in range(_RESAMPLES)], [2.5, 97.5])
    value = error(slice(None))
    # The resampled errors are biased even more than the value, which may then lie below their interval.
    return Estimate(value, min(float(low), value), max(float(high), value), n, ERROR)


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
    """The temperature with the lowest NLL (Guo et al. 2017).

    The NLL is convex in 1 / temperature: Newton's method, with bisection where a step would leave the bracket.
    """
    known = np.flatnonzero(targets >= 0)
    if not len(known):
        raise ValueError("fit_temperature: expected images with labels, got none")
    low, high, inverse = 1 / HOTTEST, 1 / COLDEST, 1.0
    for _ in range(60):
        slope, curvature, _ = _nll_slope(logits, targets, known, inverse)
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        step = inverse - slope / curvature if curvature > 0 else low
        following = step if low < step < high else (low + high) / 2
        if abs(following - inverse) <= tolerance * inverse:
            return 1 / following
        inverse = following
    return 1 / inverse


def temperature_interval(logits: np.ndarray, targets: np.ndarray, temperature: float) -> tuple[float, float]:
    """The 95 % interval of a fitted temperature: the sandwich estimate (Huber 1967), normal on the log scale.

    Infinite where the temperature is not bounded by the images, as of a model that is never wrong.
    """
    known = np.flatnonzero(targets >= 0)
    _, curvature, square = _nll_slope(logits, targets, known, 1 / temperature)
    if curvature <= 0:
        return 0.0, float("inf")
    # Relative errors of the temperature and of its inverse are the same.
    half = _Z * temperature * float(np.sqrt(square / len(known))) / curvature
    return temperature * float(np.exp(-half)), temperature * float(np.exp(half))


def _nll_slope(
    logits: np.ndarray, targets: np.ndarray, known: np.ndarray, inverse: float
) -> tuple[float, float, float]:
    """First and second derivative of the mean NLL by 1 / temperature, and the mean square of the images' first ones.

    In float32 for speed, with sums in float64.
    """
    slope = curvature = squares = 0.0
    for start in range(0, len(known), _ROWS_AT_ONCE):
        rows = known[start : start + _ROWS_AT_ONCE]
        part = np.asarray(_rows(logits, rows), dtype=np.float32)
        part = part - part.max(axis=1, keepdims=True)
        p = np.exp(np.float32(inverse) * part)
        total = p.sum(axis=1, dtype=np.float64)
        p *= part
        mean = p.sum(axis=1, dtype=np.float64) / total
        square = np.einsum("ij,ij->i", p, part, dtype=np.float64) / total
        of_image = mean - np.take_along_axis(part, targets[rows][:, None], axis=1)[:, 0]
        slope += float(of_image.sum())
        squares += float((of_image**2).sum())
        curvature += float((square - mean**2).sum())
    return slope / len(known), curvature / len(known), squares / len(known)


def calibration_at(logits: np.ndarray, targets: np.ndarray, temperature: float = 1.0) -> dict[str, Estimate]:
    """Every calibration metric for logits divided by `temperature`."""
    per_image = scores(logits, targets, temperature)
    return {
        "ece": ece_of(per_image),
        "adaptive_ece": adaptive_ece_of(per_image),
        "nll": nll_of(per_image),
        "brier": brier_of(per_image),
        "selective_risk": selective_risk_of(per_image),
    }


@targets_are(COLUMNS)
def calibration(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn: every calibration metric, also at a temperature that was fitted on the other half of the images."""
    known = np.flatnonzero(targets >= 0)
    if len(known) < 2:
        return {}
    halves = [np.full(len(targets), -1, dtype=targets.dtype) for _ in range(2)]
    for offset, labels in enumerate(halves):  # without the other half's labels: logits need not be copied
        labels[known[offset::2]] = targets[known[offset::2]]
    temperatures = [fit_temperature(logits, labels) for labels in halves]
    # Each half is scored at the other half's temperature, so that no image is scored with its own fit.
    parts = [scores(logits, labels, t) for labels, t in zip(halves, reversed(temperatures), strict=True)]
    cooled = Scores(*(np.concatenate([getattr(p, f) for p in parts]) for f in Scores.__dataclass_fields__))
    temperature = float(np.mean(temperatures))
    ends = temperature_interval(logits, targets, temperature)
    return {
        **calibration_at(logits, targets),
        "temperature": clipped(temperature, *ends, len(known), TEMPERATURE),
        "ece_at_temperature": ece_of(cooled),
        "nll_at_temperature": nll_of(cooled),
    }
