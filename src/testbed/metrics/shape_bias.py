"""Shape bias: how often decisions on cue-conflict stimuli name the shape, not the texture (Geirhos et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.metrics.categories16 import (
    AGGREGATIONS,
    NAMES,
    aggregations_for,
    decide,
    decisions,
    is_cue_conflict,
    other_aggregations,
    picture,
    places,
    share_or_none,
    texture,
    without_picture,
)
from testbed.metrics.estimate import COUNT, SHARE, Estimate, clipped, share
from testbed.metrics.labels import OWN
from testbed.stats.intervals import clopper_pearson


@dataclass(frozen=True)
class CueCounts:
    """Numbers of decisions for the shape, the texture or neither, on stimuli whose two categories differ."""

    shape: int
    texture: int
    neither: int

    @property
    def stimuli(self) -> int:
        return self.shape + self.texture + self.neither

    @property
    def bias(self) -> Estimate:
        """shape / (shape + texture) in percent; NaN without any such decision.

        A higher bias is more like people, which does not make it better: the metric has no direction.
        """
        decided = self.shape + self.texture
        return share(self.shape, decided, SHARE) if decided else Estimate(float("nan"), n=0, kind=SHARE)


def cue_counts(decisions: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> CueCounts:
    """Count decisions. Stimuli with equal shape and texture are left out, and a missing answer counts as neither."""
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
    """The shape bias in percent, pooled over all stimuli as published. It is not the mean of the categories' biases."""
    return cue_counts(decisions, shapes, textures).bias


def bias_by_category(decisions: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> dict[str, Estimate]:
    """The shape bias on the stimuli of each shape category; n is the number of decisions for shape or texture."""
    return {
        name: cue_counts(decisions[rows], shapes[rows], textures[rows]).bias
        for i, name in enumerate(NAMES)
        if (rows := shapes == i).any()
    }


@dataclass(frozen=True)
class CueConflict:
    """metrics_fn for cue-conflict stimuli: all metrics for the mean aggregation, the main ones for sum and max."""

    conditions: tuple[str, ...] = ()  # as in Accuracy16; empty: all trials count
    targets_are = OWN
    published = 1280  # stimuli
    names = "stimuli named SHAPE7-TEXTURE1.png in a folder SHAPE, both among the 16 categories"

    def misnamed(self, image_paths: Sequence[str]) -> list[str]:
        """The paths that tell no shape or no texture, or two shapes."""
        return [path for path in image_paths if not is_cue_conflict(path)]

    def absent(self, image_paths: Sequence[str]) -> list[str]:
        """The shapes without a stimulus."""
        return without_picture(image_paths)

    def __call__(self, logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        shapes, textures = cues(image_paths)
        by_aggregation = decisions(logits, aggregations_for(logits))
        result = cue_metrics(by_aggregation[AGGREGATIONS[0]], shapes, textures)
        return result | other_aggregations(lambda d: count_metrics(cue_counts(d, shapes, textures)), by_aggregation)

    def decided(
        self, logits: np.ndarray, image_paths: Sequence[str], aggregation: str = AGGREGATIONS[0]
    ) -> dict[str, Estimate]:
        """The pooled bias and its counts, with one aggregation."""
        return count_metrics(cue_counts(decide(logits, aggregation), *cues(image_paths)))

    def outcomes(self, logits: np.ndarray, image_paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(whether the cues differ, decision for the shape 2, the texture 1 or neither 0) of each stimulus."""
        shapes, textures = cues(image_paths)
        decided = decide(logits)
        return shapes != textures, np.where(decided == shapes, 2, np.where(decided == textures, 1, 0))


def cues(image_paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Shape and texture category of each stimulus, from its path."""
    pictures = [picture(str(path)) for path in image_paths]
    return places(p.category for p in pictures), places(texture(p.id) for p in pictures)


def cue_metrics(decisions: np.ndarray, shapes: np.ndarray, textures: np.ndarray) -> dict[str, Estimate]:
    """All metrics of cue-conflict decisions, of a model or of a person."""
    result = count_metrics(cue_counts(decisions, shapes, textures))
    agreeing = shapes == textures
    result["non_conflict_accuracy"] = share_or_none(decisions[agreeing] == shapes[agreeing])
    result["accuracy16"] = share_or_none(decisions == shapes)
    by_category = bias_by_category(decisions, shapes, textures)
    return result | {f"shape_bias.{name}": bias for name, bias in by_category.items()}


def count_metrics(counts: CueCounts) -> dict[str, Estimate]:
    """The pooled bias, and the numbers of decisions for the shape, the texture and neither."""
    return {
        "shape_bias": counts.bias,
        "shape_correct": _count(counts.shape, counts.stimuli),
        "texture_correct": _count(counts.texture, counts.stimuli),
        "neither": _count(counts.neither, counts.stimuli),
    }


def _count(hits: int, n: int) -> Estimate:
    """A count with the interval of its share, scaled to counts."""
    if n == 0:
        return Estimate(float(hits), n=0, kind=COUNT)
    low, high = clopper_pearson(hits, n)
    return clipped(float(hits), n * low, n * high, n, COUNT)
