"""Outputs: what one model says about the rows of one setting. `predict` makes them, the store keeps them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from testbed.data.rows import Rows
from testbed.metrics.softmax import Softmax, softmax

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits of the readable images, with their rows and whatever was recorded beside them.

    What several readers need (predictions, softmax) is computed on first use and goes with the object. Logits of a
    stored evaluation are mapped into memory, not read.
    """

    rows: Rows
    logits: np.ndarray  # (rows, columns)
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)  # by name; one entry per row each
    model: str = ""
    n_bad: int = 0  # images that could not be read, and are not among the rows
    facts: Mapping[str, Any] = field(default_factory=dict)  # how they were made: device, weights, batch size, ...

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def ids(self) -> np.ndarray:
        return self.rows.ids

    @property
    def targets(self) -> np.ndarray:
        return self.rows.targets

    @property
    def columns(self) -> int:
        return int(self.logits.shape[1])

    def take(self, which: np.ndarray) -> Outputs:
        """Those of some rows, by position or by mask, in memory."""
        extras = {name: array[which] for name, array in self.extras.items()}
        return Outputs(self.rows.take(which), self.logits[which], extras, self.model, self.n_bad, self.facts)

    def with_logits(self, logits: np.ndarray) -> Outputs:
        """The same rows with other logits."""
        return Outputs(self.rows, logits, self.extras, self.model, self.n_bad, self.facts)

    @cached_property
    def predictions(self) -> np.ndarray:
        return self.logits.argmax(axis=1)

    @cached_property
    def correct(self) -> np.ndarray:
        """Whether the column of the highest logit is the target; False without a label."""
        return np.asarray(self.predictions == self.targets)

    @cached_property
    def accuracy(self) -> float | None:
        """Share of the labelled images that are right, from 0 to 1; None without labels."""
        labelled = self.targets >= 0
        return float(self.correct[labelled].mean()) if labelled.any() else None

    def softmax(self, temperature: float = 1.0) -> Softmax:
        """Probabilities, confidence and entropy at one temperature, kept for the next reader."""
        return self.once(("softmax", temperature), lambda: softmax(self.logits, temperature))

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """compute(), kept under `key` for whoever needs the same again."""
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[Hashable, Any]:
        return {}


def joined(parts: Sequence[Outputs]) -> Outputs:
    """The outputs of one model over consecutive batches as one."""
    rows = [part.rows for part in parts]
    together = (np.concatenate([getattr(r, name) for r in rows]) for name in ("ids", "targets", "indices", "numbers"))
    extras = {name: np.concatenate([part.extras[name] for part in parts]) for name in parts[0].extras}
    last = parts[-1]
    return Outputs(
        Rows(*together), np.concatenate([part.logits for part in parts]), extras, last.model, last.n_bad, last.facts
    )
