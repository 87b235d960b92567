"""Softmax of logits in float64, computed in blocks of rows, so that the whole set is never copied to float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

# Logits converted to float64 at a time: 256 kB. They stay in the processor's cache, and in memory that the process
# keeps: larger arrays are given back to the system and asked for again at every block, which costs more than it saves.
_ELEMENTS_AT_ONCE = 32_000
COLUMNS_AT_ONCE = 1_000_000  # for those who take a few columns of a block at a time, in many small steps


def row_blocks(n: int, columns: int, elements: int | None = None) -> Iterator[slice]:
    """Rows 0 to n in blocks of bounded size."""
    rows = max(1, (elements or _ELEMENTS_AT_ONCE) // max(columns, 1))
    for start in range(0, n, rows):
        yield slice(start, min(start + rows, n))


def blocks(logits: np.ndarray, elements: int | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """(rows, logits of these rows), block by block; a memory-mapped file is read in the same steps."""
    for rows in row_blocks(len(logits), logits.shape[1], elements):
        yield rows, logits[rows]


def exponentials(rows: np.ndarray, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With z = logits / temperature: (max z of each row, z - max z, exp(z - max z)), all in float64."""
    shifted = rows.astype(np.float64)
    if temperature != 1:
        shifted /= temperature
    highest = shifted.max(axis=1)
    shifted -= highest[:, None]
    return highest, shifted, np.exp(shifted)


def log_softmax(rows: np.ndarray, temperature: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """(log-probabilities, log-sum-exp) of logits / temperature, without splitting into blocks."""
    highest, log_p, powers = exponentials(rows, temperature)
    log_total = np.log(powers.sum(axis=1))
    log_p -= log_total[:, None]
    return log_p, highest + log_total


def log_sum_exp(logits: np.ndarray) -> np.ndarray:
    """log(sum(exp(logits))) of each row: the negative energy."""
    total = np.empty(len(logits))
    for rows, part in blocks(logits):
        highest, _, powers = exponentials(part)
        total[rows] = highest + np.log(powers.sum(axis=1))
    return total


def confidence(logits: np.ndarray) -> np.ndarray:
    """The largest probability of each row."""
    largest = np.empty(len(logits))
    for rows, part in blocks(logits):
        # The largest term is exp(0) = 1.
        largest[rows] = 1 / exponentials(part)[2].sum(axis=1)
    return largest


@dataclass(frozen=True, eq=False)
class Softmax:
    """The softmax of a set's logits at one temperature. Entropies are summed in float64, so that 1e-9 is resolved."""

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


def mean_of_models(logits: Sequence[np.ndarray], mean: str = "probabilities") -> np.ndarray:
    """What several models say of the same rows, as logits in float32.

    The mean of their probabilities, of which the logarithm is given, or the mean of their logits. The first is what
    deep ensembles average (Lakshminarayanan et al. 2017), the second is a geometric mean of probabilities.
    """
    rows, columns = logits[0].shape
    result = np.empty((rows, columns), dtype=np.float32)
    for part in row_blocks(rows, columns):
        if mean == "logits":
            result[part] = np.mean([one[part].astype(np.float64) for one in logits], axis=0)
        else:
            log_p = np.stack([log_softmax(one[part])[0] for one in logits])
            result[part] = np.logaddexp.reduce(log_p, axis=0) - np.log(len(logits))
    return result
