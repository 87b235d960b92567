"""The probe of explanation settings: it explains the likely classes of each image and measures every heatmap.

A `ContrastiveProbe` is plain data, recorded with the results; making one imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.errors import DataError, EntryError
from testbed.explain.clusters import Clusters, clusters_for
from testbed.explain.explainers import checked_options, kind_of, make_explainer
from testbed.explain.manifest import read_explanations, read_heatmap
from testbed.explain.rows import Place, Row, Shape, clusters_of, curves_of, numbers_of
from testbed.metrics.contrastive import Recipe, likely_classes

if TYPE_CHECKING:
    import torch

CONTRASTS = ("likely", "cluster")
_CPU_BATCH = 8  # larger ones do not fit the processor's cache: EfficientNet-Lite0 takes 56 ms an image at 8, 96 at 64


@dataclass(frozen=True)
class ContrastiveProbe:
    """Which heatmaps of which classes are measured, and how. Without an explainer the maps are the manifest's files."""

    explainer: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    recipe: Recipe = field(default=Recipe(max_points=32))
    manifest: str = ""  # a CSV that lists the classes to explain; without it they are the likely ones
    contrast: str = "likely"  # against the other likely classes; "cluster": those in the same confusion cluster only
    clusters: str = ""  # JSON file, or folder of MODEL.json; otherwise $TESTBED_CLUSTERS
    mass: float = 0.95
    most: int = 5
    substrate: str = "zero"
    whole_points: int = 11  # of deletion and insertion over the whole image; 0 leaves them out
    curves: bool = False  # also keep curves, heatmaps and pictures, for plotting/deletion_curve.py
    batch_size: int = 0  # forward passes at once; 0 takes the model's own, on a CPU at most 8

    def __post_init__(self) -> None:
        if self.explainer:
            object.__setattr__(self, "options", tuple(checked_options(self.explainer, dict(self.options)).items()))
        elif not self.manifest:
            raise EntryError("a probe of explanations needs an explainer, or a manifest that names heatmaps")
        if self.contrast not in CONTRASTS:
            raise EntryError(f"expected contrast {' or '.join(CONTRASTS)}, got {self.contrast!r}")
        if self.most < 1 or not 0 < self.mass <= 1:
            raise EntryError(f"expected most >= 1 and mass from 0 to 1, got {self.most} and {self.mass}")
        if self.whole_points == 1 or self.whole_points < 0:
            raise EntryError(f"expected whole_points of at least 2, or 0, got {self.whole_points}")

    def __call__(
        self, images: torch.Tensor, model: Any, logits: torch.Tensor, image_paths: Sequence[str], rng: Any
    ) -> dict[str, np.ndarray]:
        """The arrays of a batch, with one row per image and explained class (see rows.py)."""
        from testbed.explain.deletion import Question, faithfulness
        from testbed.explain.substrates import substrate

        usual = model.entry.eval_batch_size if images.is_cuda else min(model.entry.eval_batch_size, _CPU_BATCH)
        batch_size = self.batch_size or usual
        clusters = clusters_for(model.entry.name, self.clusters) if self._clustered else None
        asked = self._asked(logits, image_paths, clusters)
        available = {"rng": rng, "clusters": clusters, "batch_size": batch_size}
        maps = self._maps(images, model, asked, available)
        places = [(i, j) for i, rows in enumerate(asked) for j, row in enumerate(rows) if row.contrast is not None]
        questions = [Question(i, maps[i, j], asked[i][j].positive, asked[i][j].contrast or ()) for i, j in places]
        answers_by_recipe = faithfulness(
            model,
            images,
            questions,
            [self.recipe],
            substrate=substrate(self.substrate, images, model),
            whole_points=self.whole_points,
            batch_size=batch_size,
            intact=logits,
        )
        answers = {place: answer for place, (answer,) in zip(places, answers_by_recipe, strict=True)}
        arrays = numbers_of(asked, answers, self._shape)
        if self._clustered:
            arrays["cluster"] = clusters_of(asked, clusters or Clusters(), self._shape)
        if self.curves:  # room for the longest curve, as the arrays of all batches must have the same width
            points = self.recipe.max_points or -(-images.shape[2] * images.shape[3] // self.recipe.step) + 2
            arrays |= curves_of(_as_bytes(images), maps, answers, self._shape, points)
        return arrays

    @property
    def _clustered(self) -> bool:
        """Whether the contrast or the explainer uses confusion clusters."""
        return self.contrast == "cluster" or bool(self.explainer and "clusters" in kind_of(self.explainer).needs)

    @property
    def _shape(self) -> Shape:
        if self.manifest:
            return Shape.of_lines(read_explanations(self.manifest))
        return Shape(self.most, contrast=max(self.most - 1, 1))

    def _asked(self, logits: torch.Tensor, image_paths: Sequence[str], clusters: Clusters | None) -> list[list[Row]]:
        """The rows of each image: one for each of its lines in the manifest, or for each likely class."""
        if self.manifest:
            lines = read_explanations(self.manifest)
            return [[Row(e.positive, e.contrast, e) for e in lines[name]] for name in image_paths]
        lists = [[int(c) for c in row] for row in likely_classes(logits.double().cpu().numpy(), self.mass, self.most)]
        if self.contrast == "likely":
            return [[Row((c,), tuple(o for o in row if o != c)) for c in row] for row in lists]
        if clusters is None:
            raise DataError("contrast=cluster: expected clusters=FILE.json or TESTBED_CLUSTERS, got neither")
        rows = []
        for row in lists:  # a class whose cluster has no other likely class has no contrast and is not measured
            mates = {c: tuple(o for o in part if o != c) for part in clusters.partition(row) for c in part}
            rows.append([Row((c,), mates[c] or None) for c in row])
        return rows

    def _maps(
        self, images: torch.Tensor, model: Any, asked: list[list[Row]], available: Mapping[str, Any]
    ) -> dict[Place, np.ndarray]:
        """The heatmaps of all rows, from the explainer or from the manifest's files."""
        places = [(i, j) for i, rows in enumerate(asked) for j in range(len(rows))]
        if not self.explainer:
            size = (int(images.shape[2]), int(images.shape[3]))
            return {(i, j): _from_file(asked[i][j], size) for i, j in places}
        from testbed.explain.scores import Score

        score = Score([[row.positive for row in rows] for rows in asked], images.device)
        explain = make_explainer(self.explainer, available=available, **dict(self.options))
        maps = explain(model, images, score).detach().cpu().numpy()
        return {(i, j): maps[i, j].astype(np.float64) for i, j in places}


def _from_file(row: Row, size: tuple[int, int]) -> np.ndarray:
    """The heatmap of a manifest's line, resized to the size of the model's input."""
    if row.line is None or row.line.heatmap is None:
        raise DataError(f"the manifest names no heatmap for class {row.positive[0]}: name one, or an explainer")
    heatmap = read_heatmap(row.line.heatmap, row.positive)
    if heatmap.shape == size:
        return heatmap
    import torch

    large = torch.nn.functional.interpolate(
        torch.from_numpy(heatmap)[None, None], size=size, mode="bilinear", align_corners=False
    )
    return large[0, 0].numpy()


def _as_bytes(images: torch.Tensor) -> np.ndarray:
    """Images (B, 3, H, W) in [0, 1] as uint8 pixels (B, H, W, 3)."""
    return (images * 255).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy()
