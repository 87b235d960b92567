"""The arrays that a probe of explanations stores beside the logits, with one row per image and explained class.

Every image has the same number of rows, so that the arrays of all batches have the same width; in unused rows
`positive` is -1. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from testbed.explain.clusters import Clusters
from testbed.explain.manifest import Explained
from testbed.metrics.contrastive import normalised

if TYPE_CHECKING:
    from testbed.explain.deletion import Answer

NUMBERS = ("cauc", "cdrop", "cauc_per_area", "deletion_auc", "insertion_auc", "final_score")
Place = tuple[int, int]  # image of the batch, row of the image


@dataclass(frozen=True)
class Row:
    """One map of an image: the explained classes, and those they are contrasted with (None: map is not measured)."""

    positive: tuple[int, ...]
    contrast: tuple[int, ...] | None
    line: Explained | None = None


@dataclass(frozen=True)
class Shape:
    """The room for every image: its rows, and the explained classes and contrast classes of a row."""

    rows: int
    positive: int = 1
    contrast: int = 1

    @classmethod
    def of_lines(cls, lines: Mapping[str, Sequence[Explained]]) -> Shape:
        flat = [e for rows in lines.values() for e in rows]
        return cls(
            max(map(len, lines.values())),
            max(len(e.positive) for e in flat),
            max(1, *(len(e.contrast) for e in flat)),
        )


def numbers_of(asked: Sequence[Sequence[Row]], answers: Mapping[Place, Answer], shape: Shape) -> dict[str, np.ndarray]:
    """The arrays of all measured rows: classes, reasons of invalidity, metrics, and salient share in percent."""
    n = len(asked)
    positive = np.full((n, shape.rows, shape.positive), -1, dtype=np.int64)
    contrast = np.full((n, shape.rows, shape.contrast), -1, dtype=np.int64)
    numbers = {name: np.full((n, shape.rows), np.nan) for name in (*NUMBERS, "salient_percent")}
    invalid = np.zeros((n, shape.rows), dtype=np.int8)
    for (i, j), answer in answers.items():
        row = asked[i][j]
        positive[i, j, : len(row.positive)] = row.positive
        contrast[i, j, : len(row.contrast or ())] = row.contrast or ()
        invalid[i, j] = answer.invalid
        numbers["salient_percent"][i, j] = 100 * answer.plan.count / answer.plan.n_pixels
        for name in NUMBERS:
            numbers[name][i, j] = getattr(answer, name)
    return {"positive": positive, "contrast": contrast, "invalid": invalid, **numbers}


def clusters_of(asked: Sequence[Sequence[Row]], clusters: Clusters, shape: Shape) -> np.ndarray:
    """The cluster of each row, numbered from 0 within its image; -1 where there is no row."""
    cluster_numbers = np.full((len(asked), shape.rows), -1, dtype=np.int64)
    for i, rows in enumerate(asked):
        for number, members in enumerate(clusters.partition([row.positive[0] for row in rows])):
            for j, row in enumerate(rows):
                if row.positive[0] in members:
                    cluster_numbers[i, j] = number
    return cluster_numbers


def curves_of(
    pictures: np.ndarray,
    maps: Mapping[Place, np.ndarray],
    answers: Mapping[Place, Answer],
    shape: Shape,
    points: int,
) -> dict[str, np.ndarray]:
    """The arrays for figures of single maps: the pictures that the model saw, the heatmaps and the curves."""
    room = (len(pictures), shape.rows, points)
    deleted = np.full(room, -1, dtype=np.int32)
    curves = {name: np.full(room, np.nan, dtype=np.float32) for name in ("positive", "contrast")}
    heatmaps = np.zeros((*room[:2], *pictures.shape[1:3]), dtype=np.float16)  # in [0, 1] by then, and only drawn
    for (i, j), answer in answers.items():
        heatmaps[i, j] = normalised(maps[i, j])
        asked_points = slice(0, len(answer.positive))  # none for an invalid map
        deleted[i, j, asked_points] = answer.plan.deleted[asked_points]
        for name, curve in curves.items():
            curve[i, j, asked_points] = getattr(answer, name)
    named_curves = {f"curve_{name}": curve for name, curve in curves.items()}
    return {"picture": pictures, "heatmap": heatmaps, "curve_deleted": deleted, **named_curves}
