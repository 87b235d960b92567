"""Softmax of logits in float64, in blocks of rows: a thousand classes need no second copy of the whole set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

_ELEMENTS_AT_ONCE = 4_000_000  # logits turned to float64 at a time


def row_blocks(n: int, columns: int) -> Iterator[slice]:
    """Rows 0 to n in blocks of bounded size."""
    rows = max(1, _ELEMENTS_AT_ONCE // max(columns, 1))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))


def blocks(logits: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """The logits in such blocks, each with its rows. A memory-mapped file is read block by block."""
    for rows in row_blocks(*logits.shape):
        yield rows, logits[rows]


def exponentials(rows: np.ndarray, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The highest of logits / temperature in each row, what the others are less it, and exp of that; all in float64."""
    shifted = rows.astype(np.float64)
    if temperature != 1:
        shifted /= temperature
    highest = shifted.max(axis=1)
    shifted -= highest[:, None]
    return highest, shifted, np.exp(shifted)


def log_softmax(rows: np.ndarray, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities and log-sum-exp of rows of logits / temperature, as one block."""
    highest, log_p, powers = exponentials(rows, temperature)
    log_total = np.log(powers.sum(axis=1))
    log_p -= log_total[:, None]
    return log_p, highest + log_total


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """(n,) log of the sum of exp(logits): the negative energy."""
    total = np.empty(len(logits))
    for rows, part in blocks(logits):
        highest, _, powers = exponentials(part)
        total[rows] = highest + np.log(powers.sum(axis=1))
    return total


def confidence(logits: np.ndarray) -> np.ndarray:
    """(n,) the largest probability of each row."""
    largest = np.empty(len(logits))
    for rows, part in blocks(logits):
        largest[rows] = 1 / exponentials(part)[2].sum(axis=1)
    return largest


@dataclass(frozen=True, eq=False)
class Softmax:
    """The softmax of a set's logits at one temperature. Sums in float64: entropies of 1e-9 are told apart."""

    probabilities: np.ndarray  # (n, K) float32
    confidence: np.ndarray  # (n,) the largest probability
    entropy: np.ndarray  # (n,) in nats

    @property
    def negative_entropy(self) -> np.ndarray:
        return -self.entropy


def softmax(logits: np.ndarray, temperature: float = 1.0) -> Softmax:
    """Probabilities, confidence and entropy of every row of logits / temperature."""
    n, columns = logits.shape
    result = Softmax(np.empty((n, columns), dtype=np.float32), np.empty(n), np.empty(n))
    for rows, part in blocks(logits):
        log_p, _ = log_softmax(part, temperature)
        p = np.exp(log_p)
        result.probabilities[rows] = p
        result.confidence[rows] = p.max(axis=1)
        result.entropy[rows] = -np.einsum("ij,ij->i", p, log_p)
    return result
