"""From some images to all: what a change seen on a few hundred images would do to the metrics of the whole set.

Stored result and trial use the same images, so each tried image says what became of a decision. Every other image is
filled in by a tried one with the same stored outcome, drawn with random weights (a Bayesian bootstrap of a finite
population: Lo 1988, "A Bayesian bootstrap for a finite population"). Many such fillings give a value and its standard
error. A filled-in set consists of decisions that were made, so no value is impossible, and there is no error left where
all images were tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.entries.eval_setting import EvalSetting
from testbed.metrics.estimate import COUNT, Estimate
from testbed.store.measuring import measure
from testbed.store.outputs import Outputs

_DRAWS = 100
_TIMES = 8  # a filled-in set has at most this many times the tried images; counts are scaled
_ROUNDING = 2  # images: what is lost by filling in whole ones
# The weight, in images, of tried images with other stored outcomes. Without it a change that no tried image of an
# outcome shows would be taken to be impossible. With 1/2 the intervals hold in simulations, from 64 images on.
_OTHERS = 0.5


@dataclass(frozen=True)
class Expected:
    """The values of some metrics expected on the whole set: one row per draw, one column per metric."""

    draws: np.ndarray
    lowest: np.ndarray  # of each metric's range
    highest: np.ndarray
    unseen: float = 0.0  # share of the images with stored outcomes of which none was tried

    @property
    def span(self) -> np.ndarray:
        return self.highest - self.lowest

    @property
    def value(self) -> np.ndarray:
        return np.clip(np.nanmean(self.draws, axis=0), self.lowest, self.highest)

    @property
    def standard_error(self) -> np.ndarray:
        # What the change does to outcomes that were not tried is not known: they may become anything.
        unknown = self.unseen * self.span / 2 if self.unseen else 0.0
        return np.asarray(np.nanstd(self.draws, axis=0) + unknown)


def exactly(values: np.ndarray) -> Expected:
    """Values that were measured on all images."""
    anything = np.full(len(values), math.inf)
    return Expected(values[None], -anything, anything)


class Whole:
    """The stored outputs of all images, from which the tried ones are extrapolated."""

    def __init__(self, setting: EvalSetting, stored: Outputs, metrics: Sequence[str]) -> None:
        self.setting, self.stored, self.metrics = setting, stored, list(metrics)
        self._now = measure(setting, None, stored)
        self._group, self._outcome = _outcomes(setting, stored)

    def expected(self, tried: np.ndarray, after: Outputs) -> Expected:
        """What the metrics of all images would be, from the outputs `after` the change of the rows `tried`."""
        before = self.stored.take(tried)
        if len(tried) == len(self.stored):
            return self._within(self._values(after)[None])
        if before.logits.shape == after.logits.shape and np.array_equal(before.logits, after.logits):
            return self._within(self._values(self.stored)[None])  # a change without an effect
        size = min(len(self.stored), _TIMES * len(tried))
        scale = np.array([len(self.stored) / size if self._is_count(name) else 1.0 for name in self.metrics])
        rng = np.random.default_rng(0)
        stored = self._values(self.stored)
        # Most metrics are told by the outcomes. Filling in changes others by itself, such as the bias in one category:
        # from these the stored decisions of the same rows are taken off.
        filled = scale * self._values(before.take(self._filled(tried, size, rng, others=0.0)))
        told = np.abs(filled - stored) <= _ROUNDING / size * self._within(stored[None]).span
        draws = []
        for _ in range(_DRAWS):
            rows = self._filled(tried, size, rng)
            values = scale * self._values(after.take(rows))
            if not told.all():
                values = np.where(told, values, stored + values - scale * self._values(before.take(rows)))
            draws.append(values)
        return self._within(np.stack(draws), self._unseen(tried))

    def _unseen(self, tried: np.ndarray) -> float:
        kinds = np.stack([self._group, self._outcome], axis=1)
        seen = {tuple(kind) for kind in kinds[tried].tolist()}
        return float(np.mean([tuple(kind) not in seen for kind in kinds.tolist()]))

    def _filled(self, tried: np.ndarray, size: int, rng: np.random.Generator, others: float = _OTHERS) -> np.ndarray:
        """Places in `tried`: each once, and then those that stand for images which were not tried."""
        group, outcome = self._group[tried], self._outcome[tried]
        share = size / len(self.stored)
        rows = [np.arange(len(tried))]
        for g, o in np.unique(np.stack([self._group, self._outcome]), axis=1).T:
            same = (group == g) & (outcome == o)
            there = int(((self._group == g) & (self._outcome == o)).sum())
            missing = round(share * there) - int(same.sum())
            if missing <= 0:
                continue
            weights = same.astype(float)
            unlike = (group == g) & ~same
            weights[unlike] = others / max(unlike.sum(), 1)
            if not weights.any():
                continue  # nothing of the group was tried; `unseen` tells how much that is
            donors = np.flatnonzero(weights)
            # Gamma variables, divided by their sum, are Dirichlet distributed. Those of tiny weights may all be 0.
            drawn = rng.standard_gamma(weights[donors]) + 1e-300
            rows.append(donors[rng.choice(len(donors), missing, p=drawn / drawn.sum())])
        return np.concatenate(rows)

    def _values(self, outputs: Outputs) -> np.ndarray:
        measured = measure(self.setting, None, outputs)
        return np.array([measured[name].value if name in measured else math.nan for name in self.metrics])

    def _is_count(self, name: str) -> bool:
        return name in self._now and self._now[name].kind.unit == COUNT.unit

    def _within(self, draws: np.ndarray, unseen: float = 0.0) -> Expected:
        ranges = np.array([_range(self._now[n], self._is_count(n)) if n in self._now else _ANY for n in self.metrics])
        lowest, highest = ranges.T
        return Expected(np.clip(draws, lowest, highest), lowest, highest, unseen)


_ANY = (-math.inf, math.inf)


def _range(estimate: Estimate, count: bool) -> tuple[float, float]:
    kind = estimate.kind
    highest = estimate.n if count and kind.highest is None else kind.highest
    return (
        -math.inf if kind.lowest is None else kind.lowest,
        math.inf if highest is None else float(highest),
    )


def _outcomes(setting: EvalSetting, stored: Outputs) -> tuple[np.ndarray, np.ndarray]:
    """(group, outcome) of each image: within a group an image may stand for another.

    A metric that decides in its own way has a method `outcomes`; for others an image is right or wrong.
    """
    if hasattr(setting.metrics_fn, "outcomes"):
        group, outcome = setting.metrics_fn.outcomes(stored.logits, list(stored.ids))
        return np.asarray(group), np.asarray(outcome)
    return np.zeros(len(stored), dtype=np.int64), stored.correct.astype(np.int64)
