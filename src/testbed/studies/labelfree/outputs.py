"""What the methods read: `Outputs` of one model on one set, checked, and the labelled source set of the same model.

Beside logits a method may read what was recorded: "features", (n, d), and "rotation", (n, 4, 4), the logits of the
rotation head for the picture turned by 0, 90, 180 and 270 degrees. What several methods need is kept with the object
(`Outputs.once`), so a set is read once and freed as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from testbed.data.rows import Rows
from testbed.data.samples import UNKNOWN
from testbed.errors import TestbedError
from testbed.metrics.calibration import COLDEST, HOTTEST, fit_temperature
from testbed.metrics.softmax import Softmax
from testbed.store.outputs import Outputs

FEATURES, ROTATION = "features", "rotation"


class LabelFreeError(TestbedError):
    """Outputs that a method cannot use as they are."""


class LabelFreeNote(UserWarning):
    """Something the reader of an estimate should know; given with `warnings.warn`."""


# ---- outputs that enter the study ----------------------------------------------------------------------------


def outputs_from(
    logits: np.ndarray,
    targets: np.ndarray | None = None,
    features: np.ndarray | None = None,
    rotation: np.ndarray | None = None,
) -> Outputs:
    """Checked outputs from arrays: for tests, scripts and logits from elsewhere. Without targets all are UNKNOWN."""
    places = np.arange(len(np.atleast_1d(logits)))
    labels = np.full(len(places), UNKNOWN) if targets is None else targets
    arrays = {FEATURES: features, ROTATION: rotation}
    extras = {name: values for name, values in arrays.items() if values is not None}
    return checked(Outputs(Rows(places.astype(np.str_), labels, places), logits, extras))


def checked(outputs: Outputs) -> Outputs:
    """The same outputs, if their arrays fit together. Values are looked at later: a method reads only some of them."""
    logits, n = outputs.logits, len(outputs.logits) if outputs.logits.ndim else 0
    if logits.ndim != 2 or n < 1 or logits.shape[1] < 2:
        raise LabelFreeError(f"expected logits of shape (images, at least 2 classes), got {logits.shape}")
    features, rotation = outputs.extras.get(FEATURES), outputs.extras.get(ROTATION)
    for name, values in (("targets", outputs.targets), (FEATURES, features), (ROTATION, rotation)):
        if values is not None and len(values) != n:
            raise LabelFreeError(f"expected {name} of {n} images, as many as logits, got {len(values)}")
    if features is not None and features.ndim != 2:
        raise LabelFreeError(f"expected features of shape (images, dimensions), got {features.shape}")
    if rotation is not None and rotation.shape[1:] != (4, 4):
        raise LabelFreeError(f"expected rotation logits of shape (images, 4, 4), got {rotation.shape}")
    return outputs


def check_finite(outputs: Outputs, what: str) -> None:
    """Refuse NaN and infinity in what a method reads: "logits", "features" or "rotation"."""
    values = outputs.logits if what == "logits" else recorded(outputs, what)
    outputs.once(("finite", what), lambda: _refuse_not_finite(what, values))


def recorded(outputs: Outputs, what: str) -> np.ndarray:
    """The array that was kept beside the logits."""
    if what not in outputs.extras:
        raise LabelFreeError(f"expected {what} of the set, got none; evaluate it again with {what} recorded")
    return np.asarray(outputs.extras[what])


def _refuse_not_finite(what: str, values: np.ndarray) -> None:
    """One image with NaN or infinity would spoil the number of the whole set."""
    # The sum tells whether all are finite, without an array of booleans as large as the outputs.
    if not np.isfinite(values.sum(dtype=np.float64)):
        rows = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        raise LabelFreeError(f"expected finite {what}, got NaN or infinity for {len(rows)} images, first row {rows[0]}")


# ---- the source set ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Source:
    """The labelled clean set of the same model, and what the methods take from it. Make it with `Source.of`."""

    outputs: Outputs  # its labelled images only
    accuracy: float  # 0..1
    temperature: float  # of least NLL on these images
    class_prior: np.ndarray  # (K,) class shares that transport assumes of every target set

    @classmethod
    def of(cls, outputs: Outputs, class_prior: np.ndarray | str = "source") -> Source:
        """`class_prior`: "source" (the shares of its labels), "uniform", or one share per class."""
        outputs, labelled = checked(outputs), outputs.targets >= 0
        if not labelled.any():
            raise LabelFreeError("the source set needs labels, got none; choose a labelled setting as the source")
        if outputs.targets.max() >= outputs.columns:
            raise LabelFreeError(f"expected targets below {outputs.columns} classes, got {outputs.targets.max()}")
        if not labelled.all():
            outputs = outputs.take(labelled)
        _refuse_not_finite("logits of the source", outputs.logits)
        assert outputs.accuracy is not None  # there are labels
        prior = _prior(class_prior, outputs.targets, outputs.columns)
        return cls(outputs, outputs.accuracy, fit_temperature(outputs.logits, outputs.targets), prior)

    @property
    def temperature_at_bound(self) -> bool:
        """Whether the temperature is no minimum: the NLL still falls at the end of the search."""
        # Where every image is right, colder is always better: there is no minimum to find.
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
        values = np.sort(single_precision_negative_entropy(self.outputs.softmax()))
        return float(values[min(self._right, len(values) - 1)])

    @cached_property
    def feature_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance (n - 1) of the source features."""
        if FEATURES not in self.outputs.extras:
            raise LabelFreeError("the source set has no features; evaluate it again with features recorded")
        features = recorded(self.outputs, FEATURES)
        _refuse_not_finite("features of the source", features)
        return moments(features)

    @cached_property
    def feature_axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of that covariance."""
        values, vectors = np.linalg.eigh(self.feature_moments[1])
        # A covariance has no negative eigenvalue; a computed one may, by rounding.
        return np.maximum(values, 0), vectors

    @cached_property
    def _right(self) -> int:
        return int(self.outputs.correct.sum())


def single_precision_negative_entropy(softmax: Softmax) -> np.ndarray:
    """(n,) -H from float32 probabilities, as autoeval_baselines has it: p = 1 - 1e-10 counts as 1 there."""
    from scipy.special import entr

    return -entr(softmax.probabilities).sum(axis=1)


def moments(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance (n - 1) of the rows, in float64."""
    if len(features) < 2:
        raise LabelFreeError(f"a covariance of features needs at least 2 images, got {len(features)}")
    values = np.asarray(features, dtype=np.float64)
    return values.mean(axis=0), np.atleast_2d(np.cov(values, rowvar=False))


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
