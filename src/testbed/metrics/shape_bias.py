"""Shape or texture? What a decision on a cue-conflict stimulus says about an observer (Geirhos et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.metrics.categories16 import (
    AGGREGATIONS,
    NAMES,
    decide,
    other_aggregations,
    picture,
    places,
    share_or_none,
    texture,
)
from testbed.metrics.estimate import COUNT, SHARE, Estimate, clipped, share
from testbed.metrics.labels import OWN
from testbed.stats.intervals import clopper_pearson


@dataclass(frozen=True)
class CueCounts:
    """Decisions on stimuli whose shape and texture differ, by which of the two they name. Both is impossible."""

    shape: int
    texture: int
    neither: int

    @property
    def stimuli(self) -> int:
        return self.shape + self.texture + self.neither

    @property
    def bias(self) -> Estimate:
        """Percent of shape among decisions for shape or texture; no number where there is no such decision.

        More shape is more like people, and not better by itself.
        """
        decided = self.shape + self.texture
        return share(self.shape, decided, SHARE) if decided else Estimate(float("nan"), n=0, kind=SHARE)


def cue_counts(decisions: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> CueCounts:
    """Stimuli whose shape and texture are of one category say nothing and are left out; a missing answer is neither."""
    decisions, shapes, textures = (np.asarray(a) for a in (decisions, shapes, textures))
    if not len(decisions) == len(shapes) == len(textures):
        raise ValueError(
            f"expected one shape and one texture per decision, got {len(decisions)} decisions, {len(shapes)} shapes "
            f"and {len(textures)} textures"
        )
    conflict = shapes != textures
    shape = int((conflict & (decisions == shapes)).sum())
    of_texture = int((conflict & (decisions == textures)).sum())
    return CueCounts(shape, of_texture, int(conflict.sum()) - shape - of_texture)


def shape_bias(decisions: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> Estimate:
    """The bias pooled over all stimuli, in percent. It is not the mean of the categories' biases."""
    return cue_counts(decisions, shapes, textures).bias


def bias_by_category(decisions: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> dict[str, Estimate]:
    """The bias on the stimuli of each shape category; n is the number of decisions for shape or texture."""
    return {
        name: cue_counts(decisions[rows], shapes[rows], textures[rows]).bias
        for i, name in enumerate(NAMES)
        if (rows := shapes == i).any()
    }


@dataclass(frozen=True)
class CueConflict:
    """metrics_fn of the cue-conflict stimuli: mean aggregation in full, sum and max from the same logits."""

    conditions: tuple[str, ...] = ()  # all trials count
    targets_are = OWN

    def __call__(self, logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        result = cue_metrics(decide(logits), *cues(image_paths))
        return result | other_aggregations(self.decided, logits, image_paths)

    def decided(
        self, logits: np.ndarray, image_paths: Sequence[str], aggregation: str = AGGREGATIONS[0]
    ) -> dict[str, Estimate]:
        """The pooled bias and its counts, with one way to decide."""
        return count_metrics(cue_counts(decide(logits, aggregation), *cues(image_paths)))


def cues(image_paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Shape and texture category of each stimulus, from its path."""
    pictures = [picture(str(path)) for path in image_paths]
    return places(p.category for p in pictures), places(texture(p.id) for p in pictures)


def cue_metrics(decisions: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> dict[str, Estimate]:
    """Everything that is measured on cue-conflict decisions, whoever made them."""
    result = count_metrics(cue_counts(decisions, shapes, textures))
    agreeing = shapes == textures
    result["non_conflict_accuracy"] = share_or_none(decisions[agreeing] == shapes[agreeing])
    result["accuracy16"] = share_or_none(decisions == shapes)
    by_category = bias_by_category(decisions, shapes, textures)
    return result | {f"shape_bias.{name}": bias for name, bias in by_category.items()}


def count_metrics(counts: CueCounts) -> dict[str, Estimate]:
    """The pooled bias, and how many stimuli were named by their shape, by their texture, by neither."""
    return {
        "shape_bias": counts.bias,
        "shape_correct": _count(counts.shape, counts.stimuli),
        "texture_correct": _count(counts.texture, counts.stimuli),
        "neither": _count(counts.neither, counts.stimuli),
    }


def _count(hits: int, n: int) -> Estimate:
    if n == 0:
        return Estimate(float(hits), n=0, kind=COUNT)
    low, high = clopper_pearson(hits, n)
    return clipped(float(hits), n * low, n * high, n, COUNT)
