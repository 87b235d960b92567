"""Scores of one set from its logits alone. Regressed on accuracy afterwards, so scale and sign do not matter.

z are the logits (n, K), p their softmax, H the entropy in nats.
"""

from __future__ import annotations

import warnings

import numpy as np

from testbed.metrics.softmax import log_sum_exp
from testbed.store.outputs import Outputs
from testbed.studies.labelfree.outputs import LabelFreeNote, Source, single_precision_negative_entropy

MANO_POWER = 4
MANO_LIMIT = 5.0  # mean cross-entropy to the uniform distribution above which MaNo trusts the softmax
_TINY = 1e-12  # below it a probability or a spread is rounding


def confscore(outputs: Outputs, source: Source) -> float:
    """Mean largest probability (Hendrycks and Gimpel 2017, arXiv 1610.02136)."""
    return float(outputs.softmax().confidence.mean())


def entropy(outputs: Outputs, source: Source) -> float:
    """Mean H(p) (Guillory et al. 2021, arXiv 2107.03315)."""
    return float(outputs.softmax().entropy.mean())


def atc(outputs: Outputs, source: Source) -> float:
    """Share of images with -H(p) below t, where P_source(-H < t) is the source error (Garg et al. 2022, 2201.04234)."""
    return float((outputs.softmax().negative_entropy < source.threshold("negative_entropy")).mean())


def atc_compat(outputs: Outputs, source: Source) -> float:
    """ATC as autoeval_baselines computes it: t at the accuracy quantile of the source, not at the error's.

    Such a t lies next to 0: the share counts predictions that are not numerically one-hot. Kept to compare with
    numbers made that way.
    """
    return float((single_precision_negative_entropy(outputs.softmax()) < source.compat_threshold).mean())


def nuclear_norm(outputs: Outputs, source: Source) -> float:
    """Sum of the singular values of p over sqrt(min(n, K) n), from 0 to 1 (Deng et al. 2023, arXiv 2302.01094).

    Large where predictions are sure and spread over the classes.
    """
    p = outputs.softmax().probabilities
    n, classes = p.shape
    p = p.astype(np.float64)
    # The singular values squared are the eigenvalues of the smaller Gram matrix: no decomposition of n x K.
    squares = np.linalg.eigvalsh(p.T @ p if n >= classes else p @ p.T)
    return float(np.sqrt(np.maximum(squares, 0)).sum() / np.sqrt(min(n, classes) * n))


def mutual_information(outputs: Outputs, source: Source) -> float:
    """H(mean p) - mean H(p): how much a prediction tells (among the measures of Deng et al. 2023, arXiv 2302.01094)."""
    softmax = outputs.softmax()
    mean = softmax.probabilities.mean(axis=0, dtype=np.float64)
    return float(-(mean * np.log(np.maximum(mean, _TINY))).sum() - softmax.entropy.mean())


def mano(outputs: Outputs, source: Source) -> float:
    """(sum q^4 / (n K))^(1/4) of normalised logits q (Xie et al. 2024, arXiv 2405.18979).

    With phi the mean cross-entropy of p to the uniform distribution: q = p where phi > 5, else 1 + z + z^2 / 2
    divided by its row sum. Phi is that of the source, so that all sets of a model are normalised alike, and the logits
    are those of the model in eval mode; the authors' code takes one batch of the set, in training mode. It also
    subtracts the row minimum of 1 + z + z^2 / 2 before dividing, which is not done here.
    """
    phi = source.outputs.once("phi", lambda: _cross_entropy_to_uniform(source.outputs))
    if phi > MANO_LIMIT:
        q = outputs.softmax().probabilities
    else:
        z = np.asarray(outputs.logits, dtype=np.float32)
        q = 1 + z + z * z / 2
        q /= q.sum(axis=1, keepdims=True)
    # Squared twice: numpy's general power is many times slower.
    squares = np.square(q)
    return float(np.mean(np.square(squares), dtype=np.float64) ** (1 / MANO_POWER))


def _cross_entropy_to_uniform(outputs: Outputs) -> float:
    return float((_log_sum_exp(outputs) - outputs.logits.mean(axis=1, dtype=np.float64)).mean())


def _log_sum_exp(outputs: Outputs) -> np.ndarray:
    return outputs.once("log_sum_exp", lambda: log_sum_exp(outputs.logits))


def energy(outputs: Outputs, source: Source) -> float:
    """MDE: log(log mean exp E - mean E), with E_i = -log sum exp z_i (Peng et al. 2024, arXiv 2401.12689).

    Published as log(-mean log softmax(E)), the softmax running over the images: that is the same with log n added
    inside, which would make sets of different size incomparable. Left out here.
    """
    energies = -_log_sum_exp(outputs)
    peak = energies.max()  # taken out of the exponential, which would overflow
    return log_of(float(peak + np.log(np.exp(energies - peak).mean()) - energies.mean()), "energy")


def log_of(value: float, method: str) -> float:
    """log(value), or a note and the log of a tiny number where there is nothing to take the logarithm of."""
    if value < _TINY:
        warnings.warn(
            f"{method}: all images of the set give the same; its score is a floor", LabelFreeNote, stacklevel=3
        )
    return float(np.log(max(value, _TINY)))
