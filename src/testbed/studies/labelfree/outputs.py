"""What the methods read: the outputs of one model on one set, and its labelled source set, prepared once.

What several methods need (softmax, entropy, thresholds) is computed on first use and kept with the object, so a set
is read once and everything about it is freed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from testbed.errors import TestbedError
from testbed.metrics.calibration import COLDEST, HOTTEST, fit_temperature

T = TypeVar("T")

_ELEMENTS_AT_ONCE = 4_000_000  # logits turned to float64 at a time


class LabelFreeError(TestbedError):
    """Outputs that a method cannot use as they are."""


class LabelFreeNote(UserWarning):
    """Something the reader of an estimate should know; given with `warnings.warn`."""


@dataclass(frozen=True, eq=False)
class Softmax:
    """The softmax of a set's logits at one temperature. Sums in float64: entropies of 1e-9 are told apart."""

    probabilities: np.ndarray  # (n, K) float32
    confidence: np.ndarray  # (n,) the largest probability
    entropy: np.ndarray  # (n,) in nats

    @property
    def negative_entropy(self) -> np.ndarray:
        return -self.entropy

    @cached_property
    def single_precision_negative_entropy(self) -> np.ndarray:
        """-H from float32 probabilities, as autoeval_baselines has it: p = 1 - 1e-10 counts as 1 there."""
        from scipy.special import entr

        return -entr(self.probabilities).sum(axis=1)


@dataclass(frozen=True, eq=False)
class SetOutputs:
    """What is stored of one model on one set of n images and K classes."""

    logits: np.ndarray  # (n, K)
    targets: np.ndarray | None = None  # (n,) class indices, -1 where unknown; None where all are
    features: np.ndarray | None = None  # (n, d)
    rotation: np.ndarray | None = None  # (n, 4, 4) logits of the rotation head, picture turned by 0, 90, 180, 270

    def __post_init__(self) -> None:
        if self.logits.ndim != 2 or len(self.logits) < 1 or self.logits.shape[1] < 2:
            raise LabelFreeError(f"expected logits of shape (images, at least 2 classes), got {self.logits.shape}")
        for name in ("targets", "features", "rotation"):
            values, n = getattr(self, name), len(self.logits)
            if values is not None and len(values) != n:
                raise LabelFreeError(f"expected {name} of {n} images, as many as logits, got {len(values)}")
        if self.features is not None and self.features.ndim != 2:
            raise LabelFreeError(f"expected features of shape (images, dimensions), got {self.features.shape}")
        if self.rotation is not None and self.rotation.shape[1:] != (4, 4):
            raise LabelFreeError(f"expected rotation logits of shape (images, 4, 4), got {self.rotation.shape}")

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    @cached_property
    def predictions(self) -> np.ndarray:
        return self.logits.argmax(axis=1)

    @cached_property
    def accuracy(self) -> float | None:
        """Share of the labelled images that are right (0..1); None without labels."""
        if self.targets is None or not (known := self.targets >= 0).any():
            return None
        return float((self.predictions[known] == self.targets[known]).mean())

    @cached_property
    def log_sum_exp(self) -> np.ndarray:
        """(n,) log of the sum of exp(logits): the negative energy."""
        return np.concatenate([_shifted(part, 1.0)[1] for _, part in _parts(self.logits)])

    def softmax(self, temperature: float = 1.0) -> Softmax:
        """Softmax of logits / temperature, kept."""
        return self.once(("softmax", temperature), lambda: _softmax(self.logits, temperature))

    def check(self, what: str) -> None:
        """Refuse NaN and infinity in what a method reads: "logits", "features" or "rotation"."""
        self.once(("finite", what), lambda: _check_finite(what, getattr(self, what)))

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """compute(), kept under `key` for whoever needs the same again."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}


@dataclass(frozen=True, eq=False)
class Source:
    """The labelled clean set of the same model, and what the methods take from it. Make it with `Source.of`."""

    outputs: SetOutputs  # its labelled images only
    accuracy: float  # 0..1
    temperature: float  # of least NLL on these images
    class_prior: np.ndarray  # (K,) class shares that transport assumes of every target set

    @classmethod
    def of(cls, outputs: SetOutputs, class_prior: np.ndarray | str = "source") -> Source:
        """`class_prior`: "source" (the shares of its labels), "uniform", or one share per class."""
        if outputs.accuracy is None or outputs.targets is None:
            raise LabelFreeError("the source set needs labels, got none; choose a labelled setting as the source")
        known = outputs.targets >= 0
        if outputs.targets.max() >= outputs.classes:
            raise LabelFreeError(f"expected targets below {outputs.classes} classes, got {outputs.targets.max()}")
        if not known.all():
            kept = (None if a is None else a[known] for a in (outputs.features, outputs.rotation))
            outputs = SetOutputs(outputs.logits[known], outputs.targets[known], *kept)
        _check_finite("logits of the source", outputs.logits)
        targets = np.asarray(outputs.targets)
        prior = _prior(class_prior, targets, outputs.classes)
        return cls(outputs, float(outputs.accuracy or 0), fit_temperature(outputs.logits, targets), prior)

    @property
    def temperature_at_bound(self) -> bool:
        """Whether the NLL still falls at the end of the search; where every image is right it falls for ever."""
        return self.accuracy == 1 or not 1.01 * COLDEST < self.temperature < 0.99 * HOTTEST

    def threshold(self, score: str, temperature: float = 1.0) -> float:
        """The t below which lies the share of source images that the model gets wrong: P(s < t) = 1 - accuracy.

        `score`: "confidence" or "negative_entropy". With ties at t fewer lie below; infinite where all are wrong.
        """
        ranked = self.outputs.once(
            ("ranked", score, temperature), lambda: np.sort(getattr(self.outputs.softmax(temperature), score))
        )
        wrong = len(ranked) - self._right
        return float(ranked[wrong]) if wrong < len(ranked) else float("inf")

    @cached_property
    def compat_threshold(self) -> float:
        """autoeval_baselines' ATC threshold on negative entropy: the accuracy quantile where the error's is meant.

        There `sort(s)[ceil(accuracy * n)]`, which ends in an IndexError for accuracy 1; here the last value.
        """
        values = np.sort(self.outputs.softmax().single_precision_negative_entropy)
        return float(values[min(self._right, len(values) - 1)])

    @cached_property
    def feature_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance (n - 1) of the source features."""
        if self.outputs.features is None:
            raise LabelFreeError("the source set has no features; evaluate it again with features recorded")
        _check_finite("features of the source", self.outputs.features)
        return moments(self.outputs.features)

    @cached_property
    def feature_axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of that covariance."""
        values, vectors = np.linalg.eigh(self.feature_moments[1])
        return np.maximum(values, 0), vectors

    @cached_property
    def _right(self) -> int:
        return int((self.outputs.predictions == self.outputs.targets).sum())


def moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance (n - 1) of the rows, in float64."""
    if len(features) < 2:
        raise LabelFreeError(f"a covariance of features needs at least 2 images, got {len(features)}")
    values = np.asarray(features, dtype=np.float64)
    return values.mean(axis=0), np.atleast_2d(np.cov(values, rowvar=False))


def _check_finite(what: str, values: np.ndarray) -> None:
    """Refuse outputs with NaN or infinity: one image would spoil the number of the whole set."""
    if not np.isfinite(values.sum(dtype=np.float64)):
        rows = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        raise LabelFreeError(f"expected finite {what}, got NaN or infinity for {len(rows)} images, first row {rows[0]}")


def _prior(wanted: np.ndarray | str, targets: np.ndarray, classes: int) -> np.ndarray:
    if isinstance(wanted, str):
        if wanted not in ("source", "uniform"):
            raise LabelFreeError(f'expected a class prior "source", "uniform" or one share per class, got {wanted!r}')
        counts = np.bincount(targets, minlength=classes) if wanted == "source" else np.ones(classes)
        return counts / counts.sum()
    shares = np.asarray(wanted, dtype=np.float64)
    if shares.shape != (classes,):
        raise LabelFreeError(f"expected {classes} class shares, one per class, got {shares.size}")
    if not ((shares >= 0) & np.isfinite(shares)).all() or not shares.sum() > 0:
        raise LabelFreeError(
            f"expected finite class shares that are not negative, got numbers from {shares.min():g} to {shares.max():g}"
        )
    return shares / shares.sum()


def _parts(logits: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The rows in blocks, each with its first row: a set of a thousand classes needs no second copy in float64."""
    rows = max(1, _ELEMENTS_AT_ONCE // logits.shape[1])
    return [(start, logits[start : start + rows]) for start in range(0, len(logits), rows)]


def _shifted(logits: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities and log-sum-exp of some rows, in float64."""
    scaled = logits.astype(np.float64)
    if temperature != 1:
        scaled /= temperature
    total = scaled.max(axis=1)
    scaled -= total[:, None]
    more = np.log(np.exp(scaled).sum(axis=1))
    scaled -= more[:, None]
    return scaled, total + more


def _softmax(logits: np.ndarray, temperature: float) -> Softmax:
    n, classes = logits.shape
    found = Softmax(np.empty((n, classes), dtype=np.float32), np.empty(n), np.empty(n))
    for start, part in _parts(logits):
        rows = slice(start, start + len(part))
        log_p, _ = _shifted(part, temperature)
        p = np.exp(log_p)
        found.probabilities[rows] = p
        found.confidence[rows] = p.max(axis=1)
        found.entropy[rows] = -np.einsum("ij,ij->i", p, log_p)
    return found
