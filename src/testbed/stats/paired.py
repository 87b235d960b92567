"""Compares two models on the same images, from the correctness of each image: McNemar's test, accuracy difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from testbed.stats.intervals import wilson


@dataclass(frozen=True)
class PairedCounts:
    """Numbers of images by which of the two models was right."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither


@dataclass(frozen=True)
class McNemar:
    """The discordant counts, and the probability of an at least as uneven split if both models were equally good."""

    only_first: int
    only_second: int
    p_value: float


@dataclass(frozen=True)
class Difference:
    """Accuracy of the first minus accuracy of the second model, in percentage points, with its interval."""

    value: float
    low: float
    high: float
    n: int


def paired_counts(first: np.ndarray, second: np.ndarray) -> PairedCounts:
    """Count images by which model was right, from two boolean arrays in the same order."""
    first, second = np.asarray(first), np.asarray(second)
    for name, correct in (("first", first), ("second", second)):
        if correct.dtype != np.bool_ or correct.ndim != 1 or not len(correct):
            raise ValueError(
                f"expected one boolean per image (right or wrong) for the {name} model, "
                f"got {correct.dtype} of shape {correct.shape}"
            )
    if len(first) != len(second):
        raise ValueError(f"expected both models on the same images, got {len(first)} and {len(second)}")
    both, union = int((first & second).sum()), int((first | second).sum())
    return PairedCounts(both, int(first.sum()) - both, int(second.sum()) - both, len(first) - union)


def mcnemar(first: np.ndarray, second: np.ndarray) -> McNemar:
    """McNemar's exact two-sided test that both models are right equally often."""
    from scipy.special import bdtr

    counts = paired_counts(first, second)
    fewer, discordant = min(counts.only_first, counts.only_second), counts.only_first + counts.only_second
    # Images on which both agree say nothing; equal models split the others like a fair coin.
    p_value = min(1.0, 2 * float(bdtr(fewer, discordant, 0.5)))
    return McNemar(counts.only_first, counts.only_second, p_value)


def difference(first: np.ndarray, second: np.ndarray, confidence: float = 0.95) -> Difference:
    """The accuracy difference with Newcombe's score interval for paired proportions (1998, method 10).

    It also works if the models agree on every image or are always right, where a bootstrap interval has no width.
    """
    counts = paired_counts(first, second)
    n = counts.n
    right_first, right_second = counts.both + counts.only_first, counts.both + counts.only_second
    low_first, high_first = wilson(right_first, n, confidence)
    low_second, high_second = wilson(right_second, n, confidence)
    share_first, share_second = right_first / n, right_second / n
    phi = _corrected_phi(counts)
    below = _combined(share_first - low_first, high_second - share_second, phi)
    above = _combined(high_first - share_first, share_second - low_second, phi)
    value = _points(counts)
    return Difference(value, value - 100 * below, value + 100 * above, n)


def bootstrap_difference(
    first: np.ndarray,
    second: np.ndarray,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """The accuracy difference with its percentile interval over resampled images.

    An image contributes +1, 0 or -1, so one multinomial draw of three counts replaces a resample of all images.
    """
    counts = paired_counts(first, second)
    n = counts.n
    shares = np.array([counts.only_first, counts.only_second, counts.both + counts.neither]) / n
    drawn = np.random.default_rng(seed).multinomial(n, shares, size=resamples)
    differences = 100 * (drawn[:, 0] - drawn[:, 1]) / n
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(differences, [tail, 100 - tail])
    return Difference(_points(counts), float(low), float(high), n)


def _points(counts: PairedCounts) -> float:
    """The accuracy difference in percentage points."""
    return 100 * (counts.only_first - counts.only_second) / counts.n


def _corrected_phi(counts: PairedCounts) -> float:
    """Phi correlation of the two models' correctness, with Newcombe's continuity correction if it is positive."""
    first, second = counts.both + counts.only_first, counts.both + counts.only_second
    product = first * (counts.n - first) * second * (counts.n - second)
    if product == 0:  # a model that is always right or always wrong; Newcombe sets phi to 0
        return 0.0
    excess = counts.both * counts.neither - counts.only_first * counts.only_second
    corrected = max(excess - counts.n / 2, 0.0) if excess > 0 else excess
    return float(corrected / np.sqrt(float(product)))


def _combined(first_side: float, second_side: float, phi: float) -> float:
    """One side of the interval of a difference, from one side of each proportion's interval and their correlation."""
    return float(np.sqrt(max(first_side**2 - 2 * phi * first_side * second_side + second_side**2, 0.0)))
