"""Consistency of two observers: accuracy difference, observed and error consistency (Geirhos et al. 2020, 2021).

They are computed from the correctness of each trial, and averaged in the published order: over the conditions of a
set, then over people, then over sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from testbed.metrics.estimate import HIGHER, LOWER, Estimate, MetricKind

Pair = tuple[int, int]
_RESAMPLES = 1000
# Kinds of the three numbers, in their order. model-vs-human ranks models by likeness to people, hence the directions.
KINDS = (MetricKind("", LOWER, 0.0, 1.0), MetricKind("", HIGHER, 0.0, 1.0), MetricKind("", HIGHER, -1.0, 1.0))


def accuracy_difference(first: np.ndarray, second: np.ndarray) -> float:
    """The squared difference of the two accuracies; 0 for equal ones."""
    return float(_measures(_both(first, second), [(0, 1)])[0, 0, 0])


def observed_consistency(first: np.ndarray, second: np.ndarray) -> float:
    """The share of pictures on which both are right or both are wrong."""
    return float(_measures(_both(first, second), [(0, 1)])[0, 0, 1])


def error_consistency(first: np.ndarray, second: np.ndarray) -> float:
    """Cohen's kappa of right and wrong: 0 is the agreement of independent observers, 1 means the same errors."""
    return float(_measures(_both(first, second), [(0, 1)])[0, 0, 2])


def kappa(observed: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Error consistency from the observed consistency and the two accuracies.

    It is 1 for observers who always agree; kappa is 0 / 0 if both are also always right.
    """
    expected = first * second + (1 - first) * (1 - second)
    same = observed >= 1
    return np.where(same, 1.0, (observed - expected) / np.where(same, 1.0, 1 - expected))


@dataclass(frozen=True)
class Consistency:
    """The three numbers, each with its 95 % bootstrap interval over pictures."""

    accuracy_difference: Estimate
    observed: Estimate
    error: Estimate


def draws(
    conditions: Sequence[np.ndarray], pairs: Sequence[Pair], resamples: int = _RESAMPLES, seed: int = 0
) -> np.ndarray:
    """The three numbers of one set, (1 + resamples, 3): row 0 as observed, the other rows for resampled pictures.

    Each condition is a boolean array (observers, pictures): correct or not. Numbers are averaged over conditions, then
    over the pairs of observers. Arrays of equal sizes get the same resamples, so that two models can be compared
    resample by resample.
    """
    return draws_by_pair(conditions, pairs, resamples, seed).mean(axis=1)


def draws_by_pair(
    conditions: Sequence[np.ndarray], pairs: Sequence[Pair], resamples: int = _RESAMPLES, seed: int = 0
) -> np.ndarray:
    """As `draws`, but for each pair: (1 + resamples, pairs, 3)."""
    if not conditions or not pairs:
        raise ValueError(f"expected conditions and pairs of observers, got {len(conditions)} and {len(pairs)}")
    rng = np.random.default_rng(seed)
    total = np.zeros((1 + resamples, len(pairs), 3))
    for correct in conditions:
        n = correct.shape[1]
        weights = np.ones((1 + resamples, n), dtype=np.float32)
        # How often each picture is drawn: equivalent to resampled rows, and a matrix product does the rest.
        weights[1:] = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
        total += _measures(correct, pairs, weights)
    return total / len(conditions)


def averaged(sets: Sequence[np.ndarray], confidence: float = 0.95) -> Consistency:
    """The mean over sets, each given by its `draws`, with percentile intervals."""
    mean = np.mean(np.stack(sets), axis=0)
    tail = 100 * (1 - confidence) / 2

    def estimate(column: int) -> Estimate:
        values = mean[1:, column]
        if not len(values):
            return Estimate(float(mean[0, column]), kind=KINDS[column])
        low, high = np.percentile(values, [tail, 100 - tail])
        return Estimate(float(mean[0, column]), float(low), float(high), kind=KINDS[column])

    return Consistency(estimate(0), estimate(1), estimate(2))


def with_people(model: int, people: Sequence[int]) -> list[Pair]:
    """The pairs for a model's numbers: the model with each person."""
    return [(model, person) for person in people if person != model]


def among_people(people: Sequence[int]) -> list[Pair]:
    """The pairs for people's own numbers: every two of them."""
    return list(combinations(people, 2))


def _both(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    first, second = np.asarray(first), np.asarray(second)
    if first.dtype != np.bool_ or second.dtype != np.bool_ or first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            f"expected right or wrong (booleans) of two observers on the same pictures, got {first.dtype} "
            f"{first.shape} and {second.dtype} {second.shape}"
        )
    return np.stack([first, second])


def _measures(correct: np.ndarray, pairs: Sequence[Pair], weights: np.ndarray | None = None) -> np.ndarray:
    """The numbers (draws, pairs, 3) of one condition. `weights` (draws, pictures) is how often each picture counts."""
    if weights is None:
        weights = np.ones((1, correct.shape[1]), dtype=np.float32)
    n = weights.sum(axis=1, keepdims=True).astype(np.float64)
    right = correct.astype(np.float32)
    first_rows, second_rows = (list(side) for side in zip(*pairs, strict=True))
    accuracy = (weights @ right.T) / n
    observed = (weights @ (correct[first_rows] == correct[second_rows]).astype(np.float32).T) / n
    first, second = accuracy[:, first_rows], accuracy[:, second_rows]
    return np.stack([(first - second) ** 2, observed, kappa(observed, first, second)], axis=-1)
