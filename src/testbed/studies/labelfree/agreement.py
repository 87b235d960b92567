"""Accuracy from how often models agree: hard predictions of several models, no labels of the target set.

All three methods answer the same call: (models, n) predictions on the source and on the target set, and the models'
accuracies on the source (0..1). Models of one row of both arrays are the same model.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from testbed.stats.axes import from_axis, to_axis
from testbed.stats.fits import LineFit, fit_line
from testbed.studies.labelfree.outputs import LabelFreeError, LabelFreeNote

FEWEST_MODELS = 3  # a line needs 3 pairs
STRAIGHT = 0.95  # R2 below which the agreement line is no line to rely on


@dataclass(frozen=True)
class AgreementEstimate:
    """Estimated accuracies on the target set, one per model, and the line they rest on (none for GDE)."""

    accuracies: np.ndarray  # percent
    line: LineFit | None = None  # agreement on the target on agreement on the source, probit axes


def pairwise_agreement(predictions: np.ndarray) -> np.ndarray:
    """(models, models) shares of images on which two models predict the same class; 1 on the diagonal."""
    agreement = np.eye(len(predictions))
    for i, row in enumerate(predictions):  # a row at a time: memory of one prediction array
        agreement[i] = (predictions == row).mean(axis=1)
    return agreement


def labelled_only(predictions: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The predictions of the images that have a label, and their labels."""
    known = targets >= 0
    return predictions[:, known], targets[known]


def accuracies_of(predictions: np.ndarray, targets: np.ndarray) -> np.ndarray | None:
    """Share of the labelled images that each model gets right (0..1); None without labels."""
    predictions, targets = labelled_only(predictions, targets)
    return (predictions == targets).mean(axis=1) if len(targets) else None


def gde(source: ArrayLike, target: ArrayLike, source_accuracies: ArrayLike) -> AgreementEstimate:
    """Generalisation disagreement equality: a model is as accurate as it agrees with another run of its kind.

    accuracy_i = mean over j != i of agreement_ij on the target. Holds for independent runs of one training procedure
    whose ensemble is calibrated by class (Jiang et al. 2022, arXiv 2106.13799). The source is not used.
    """
    _, on_target, accuracies = _checked(source, target, source_accuracies, fewest=2)
    agreement = pairwise_agreement(on_target)
    # Less 1: a model's agreement with itself is no evidence.
    return AgreementEstimate(100 * (agreement.sum(axis=1) - 1) / (len(accuracies) - 1))


def aline_s(source: ArrayLike, target: ArrayLike, source_accuracies: ArrayLike) -> AgreementEstimate:
    """Agreement-on-the-line, simple: the line that agreement follows, applied to the source accuracy.

    Over pairs, probit(agreement on target) = slope * probit(agreement on source) + intercept; where models lie on a
    line in accuracy they lie on the same line in agreement (Baek et al. 2022, arXiv 2206.13089).
    """
    on_source, on_target, accuracies = _checked(source, target, source_accuracies)
    line = _agreement_line(on_source, on_target)
    positions = _probit(accuracies, on_source.shape[1])
    return AgreementEstimate(from_axis(line.intercept + line.slope * positions, "probit"), line)


def aline_d(source: ArrayLike, target: ArrayLike, source_accuracies: ArrayLike) -> AgreementEstimate:
    """Agreement-on-the-line, by solving for all models at once, which uses each pair's own agreement.

    Least squares over pairs for the probit accuracies w on the target, with a the slope of the agreement line:
    (w_i + w_j) / 2 = probit(target agreement_ij) + a ((probit acc_i + probit acc_j) / 2 - probit(source agreement_ij))
    (Baek et al. 2022).
    """
    on_source, on_target, accuracies = _checked(source, target, source_accuracies)
    x, y = pair_agreements(on_source), pair_agreements(on_target)
    line = _agreement_line(on_source, on_target)
    positions = _probit(accuracies, on_source.shape[1])
    # Row r of `halves` takes the mean over the two models of pair r.
    first, second = np.triu_indices(len(accuracies), k=1)
    halves = np.zeros((len(first), len(accuracies)))
    halves[np.arange(len(first)), first] = halves[np.arange(len(first)), second] = 0.5
    wanted = to_axis(y, "probit") + line.slope * (halves @ positions - to_axis(x, "probit"))
    # From three models on there are as many pairs as unknowns; with two the system would be underdetermined.
    solved = np.linalg.lstsq(halves, wanted, rcond=None)[0]
    return AgreementEstimate(from_axis(solved, "probit"), line)


def accuracy_line(source_accuracies: ArrayLike, target_accuracies: ArrayLike, n_source: int, n_target: int) -> LineFit:
    """The line through the models' true accuracies (0..1) on probit axes: what the agreement line stands in for.

    0 and 1 have no probit: they are moved inside by half an image of their set.
    """
    x, y = np.asarray(source_accuracies, dtype=np.float64), np.asarray(target_accuracies, dtype=np.float64)
    return _line(x, y, n_source, n_target, "accuracy")


def _agreement_line(on_source: np.ndarray, on_target: np.ndarray) -> LineFit:
    shares = _pair_shares(on_source), _pair_shares(on_target)
    line = _line(*shares, on_source.shape[1], on_target.shape[1], "agreement")
    if line.r2 is None or line.r2 < STRAIGHT:
        r2 = "undefined" if line.r2 is None else f"{line.r2:.3f}"
        message = f"agreement line: R2 is {r2}, below {STRAIGHT}; its estimates are not to be relied on"
        warnings.warn(message, LabelFreeNote, stacklevel=3)
    return line


def _line(x: np.ndarray, y: np.ndarray, n_source: int, n_target: int, what: str) -> LineFit:
    """A line through shares of n images on probit axes."""
    if len(np.unique(x)) < 2:
        raise LabelFreeError(
            f"the {what} line needs models that differ on the source set, got {100 * x[0]:g} % {what} for all"
        )
    return fit_line(_inside(x, n_source), _inside(y, n_target), axis="probit")


def pair_agreements(predictions: np.ndarray) -> np.ndarray:
    """Agreement in percent of every pair of models, strictly between 0 and 100."""
    return _inside(_pair_shares(predictions), predictions.shape[1])


def _pair_shares(predictions: np.ndarray) -> np.ndarray:
    return pairwise_agreement(predictions)[np.triu_indices(len(predictions), k=1)]


def _probit(shares: np.ndarray, n: int) -> np.ndarray:
    return to_axis(_inside(shares, n), "probit")


def _inside(shares: np.ndarray, n: int) -> np.ndarray:
    """Shares of n images as percent, 0 and 1 moved inside by half an image."""
    return 100 * np.clip(shares, 0.5 / n, 1 - 0.5 / n)


def _checked(
    source: ArrayLike, target: ArrayLike, source_accuracies: ArrayLike, fewest: int = FEWEST_MODELS
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    on_source, on_target = np.asarray(source), np.asarray(target)
    accuracies = np.asarray(source_accuracies, dtype=np.float64)
    if on_source.ndim != 2 or on_target.ndim != 2 or not on_source.size or not on_target.size:
        raise LabelFreeError(
            f"expected predictions of shape (models, images), got {on_source.shape} and {on_target.shape}"
        )
    if not len(on_source) == len(on_target) == len(accuracies):
        raise LabelFreeError(
            f"expected the same models throughout, got predictions of {len(on_source)} on the source, "
            f"{len(on_target)} on the target and {len(accuracies)} accuracies"
        )
    if len(accuracies) < fewest:
        raise LabelFreeError(f"expected at least {fewest} models to compare, got {len(accuracies)}; evaluate more")
    if not ((accuracies >= 0) & (accuracies <= 1)).all():
        raise LabelFreeError(f"expected source accuracies from 0 to 1, got up to {accuracies.max():g}")
    return on_source, on_target, accuracies
