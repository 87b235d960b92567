"""Scores of one set that need more than logits: penultimate features, or the logits of a rotation head."""

from __future__ import annotations

import warnings

import numpy as np

from testbed.store.outputs import Outputs
from testbed.studies.labelfree.logits_scores import log_of
from testbed.studies.labelfree.outputs import (
    FEATURES,
    ROTATION,
    LabelFreeError,
    LabelFreeNote,
    Source,
    moments,
    recorded,
)

RIDGE = 1e-6  # added to the diagonal of singular covariances, as in the published code


def rotation(outputs: Outputs, source: Source) -> float:
    """Share of the four turned copies of a picture whose rotation the head gets wrong (Deng et al. 2021, 2106.05961).

    autoeval_baselines regresses on the share it gets right, which gives the same line with the other sign.
    """
    return float((recorded(outputs, ROTATION).argmax(axis=2) != np.arange(4)).mean())


def fid(outputs: Outputs, source: Source) -> float:
    """Frechet distance of the features to those of the source (Deng and Zheng 2021, arXiv 2007.02915).

    |m1 - m2|^2 + tr(S1 + S2 - 2 (S1 S2)^(1/2)) with covariances over n - 1. The trace of the root is the sum of the
    roots of the eigenvalues of S1^(1/2) S2 S1^(1/2), which are real and not negative, unlike those of a computed S1 S2.
    """
    features = recorded(outputs, FEATURES)
    values, vectors = source.feature_axes
    if features.shape[1] != len(values):
        raise LabelFreeError(f"fid: expected {len(values)} features as on the source set, got {features.shape[1]}")
    # A single image has no covariance at all: `moments` refuses it.
    if 1 < len(features) <= len(values):
        return _distance_of_few(features, source)
    mean, covariance = moments(features)
    if _singular(values) or _singular(np.linalg.eigvalsh(covariance)):
        message = f"fid: singular covariance of features, {RIDGE:g} added to the diagonals"
        warnings.warn(message, LabelFreeNote, stacklevel=2)
        # Both: a ridge on one alone would put a distance between sets with the same dead features.
        values, covariance = values + RIDGE, covariance + RIDGE * np.eye(len(values))
    # In the source's own axes S1 is diagonal; turning the axes leaves eigenvalues as they are.
    root = vectors * np.sqrt(values)
    shared = np.sqrt(np.maximum(np.linalg.eigvalsh(root.T @ covariance @ root), 0)).sum()
    off = source.feature_moments[0] - mean
    return float(off @ off + values.sum() + np.trace(covariance) - 2 * shared)


def _distance_of_few(features: np.ndarray, source: Source) -> float:
    """The same for no more images than features, where S2 is singular by itself."""
    # With X the centred images, X'X and the small XX' share the eigenvalues that are not 0, so no ridge is needed.
    warnings.warn("fid: no more images than features; their covariance is singular", LabelFreeNote, stacklevel=3)
    values, vectors = source.feature_axes
    mean = features.mean(axis=0, dtype=np.float64)
    centred = (features - mean) / np.sqrt(len(features) - 1)
    turned = (centred @ vectors) * np.sqrt(np.maximum(values, 0))
    shared = np.sqrt(np.maximum(np.linalg.eigvalsh(turned @ turned.T), 0)).sum()
    off = source.feature_moments[0] - mean
    return float(off @ off + values.sum() + (centred**2).sum() - 2 * shared)


def dispersion(outputs: Outputs, source: Source) -> float:
    """log(sum_k share_k |mean_k - mean|^2 / (K - 1)) over predicted classes k (Xie et al. 2023, arXiv 2303.15488).

    How far apart the features of the predicted classes lie. Published with counts for shares, which adds log n and
    makes sets of different size incomparable.
    """
    features = np.asarray(recorded(outputs, FEATURES), dtype=np.float64)
    # Sums over classes as one product with a matrix of memberships: quicker than a loop over a thousand classes.
    members = np.zeros((outputs.columns, len(outputs)))
    members[outputs.predictions, np.arange(len(outputs))] = 1
    counts = members.sum(axis=1)
    means = (members @ features) / np.maximum(counts, 1)[:, None]
    apart = ((means - features.mean(axis=0)) ** 2).sum(axis=1)
    return log_of(float((counts * apart).sum() / len(outputs) / (outputs.columns - 1)), "dispersion")


def _singular(values: np.ndarray) -> bool:
    """Whether the smallest of these eigenvalues, in rising order, is zero but for rounding."""
    return bool(values[0] <= len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0))
