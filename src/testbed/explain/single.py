"""CAUC and CDROP of one heatmap of one picture: the interface of the published program over our code.

    metric = CausalMetric(model=model, metric=["CAUC", "CDROP"], step=16, batch_size=8, delta=0.5, tau_thres=0.05,
                          smooth_len=3)
    result, count = metric.single_run(img, Explanation(target=[[486], [889]], saliency=heatmap), visual_evaluation)

Values and count are those of the published program, also for degenerate maps (CAUC 0, CDROP NaN). Departures: pixels of
equal value are deleted in row-major order, a wrong metric name or map size is refused, and pictures that are not RGB
are converted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from testbed.data.images import read_rgb
from testbed.errors import EntryError
from testbed.explain.deletion import Answer, Question, faithfulness
from testbed.explain.substrates import IMAGENET_MEAN
from testbed.metrics.contrastive import METRICS, Recipe

_IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Explanation:
    """A heatmap (H, W), with target = [explained classes, contrast classes]."""

    target: Sequence[Sequence[int]]
    saliency: torch.Tensor | np.ndarray

    def __post_init__(self) -> None:
        if len(self.target) != 2:
            raise EntryError(f"expected target=[explained classes, contrast classes], got {len(self.target)} lists")


class CausalMetric:
    """CAUC and CDROP of single heatmaps, for a model that takes normalised images (1, 3, H, W)."""

    def __init__(
        self,
        model: torch.nn.Module,
        metric: str | Sequence[str],
        step: int,
        substrate_fn: Callable[[torch.Tensor], torch.Tensor] = torch.zeros_like,
        batch_size: int = 1,
        delta: float = 0.5,
        tau_thres: float = 0.05,
        *,
        smooth_len: int = 3,
        mode: str = "cwox",
        max_points: int | None = None,
    ) -> None:
        names = tuple(dict.fromkeys([metric] if isinstance(metric, str) else metric))
        unknown = [name for name in names if name not in METRICS]
        if unknown:
            raise EntryError(f"expected metric among {', '.join(METRICS)}, got {unknown[0]!r}")
        self.model = model
        self.substrate_fn = substrate_fn
        self.batch_size = batch_size
        try:
            self.recipe = Recipe(step, delta, tau_thres, smooth_len, mode, max_points, names)
        except ValueError as error:
            raise EntryError(f"CausalMetric: {error}") from error

    def single_run(
        self,
        img: torch.Tensor,
        explanation: Explanation,
        visual: Callable[[torch.Tensor, Explanation, Answer], Any] | None = None,
    ) -> tuple[dict[str, torch.Tensor], float]:
        """The metrics as 0-dimensional tensors by name, and the number of salient pixels.

        `visual(img, explanation, answer)` is called with the result, such as `visual_evaluation` to draw it.
        """
        if hasattr(self.model, "eval"):
            self.model.eval()
        # A figure needs the whole curve, even if the metrics (CDROP alone) do not.
        recipe = self.recipe if visual is None else replace(self.recipe, metrics=METRICS)
        heatmap = torch.as_tensor(explanation.saliency).detach().cpu().numpy()
        positive, contrast = (tuple(int(c) for c in classes) for classes in explanation.target)
        ((answer,),) = faithfulness(
            self.model,
            img,
            [Question(0, heatmap, positive, contrast)],
            [recipe],
            substrate=self.substrate_fn(img),
            batch_size=self.batch_size,
            skip_invalid=False,
            normalise=False,  # callers of the published program normalise their heatmaps themselves
        )
        if visual is not None:
            visual(img, explanation, answer)
        values = {"CAUC": answer.cauc, "CDROP": answer.cdrop}
        # The published program returns a delta above 1, a number of pixels, as it was given, fractions included.
        count = self.recipe.delta if self.recipe.delta > 1 and self.recipe.mode == "cwox" else answer.plan.count
        return {name: torch.tensor(values[name], dtype=img.dtype) for name in self.recipe.metrics}, count


def visual_evaluation(img: torch.Tensor, explanation: Explanation, answer: Answer) -> Any:
    """Draw picture, overlay and curves of a single run into a new pyplot figure, and return it."""
    from matplotlib import pyplot

    from testbed.explain.drawing import DeletionCurve, draw

    pixels = img[0].detach().cpu().numpy().transpose(1, 2, 0).astype(np.float64)
    low, high = pixels.min(), pixels.max()
    saliency = torch.as_tensor(explanation.saliency).detach().cpu().numpy()
    curve = DeletionCurve(
        picture=(pixels - low) / max(high - low, 1e-12),  # the model's normalisation is not known here
        heatmap=saliency,
        deleted=answer.plan.deleted,
        positive=answer.positive,
        contrast=answer.contrast,
        n_salient=answer.plan.count,
        cauc=answer.cauc,
        cdrop=answer.cdrop,
    )
    figure = pyplot.figure(figsize=(11, 6.4), layout="constrained")
    draw(figure, curve)
    return figure


def read_tensor(path: str | os.PathLike[str]) -> torch.Tensor:
    """A picture as the published program reads it: resized to 224 x 224, normalised by ImageNet's mean and std."""
    from PIL import Image

    # No crop: the aspect ratio is not kept. The published program fails on grey pictures, which come in RGB here.
    small = read_rgb(Path(path)).resize((224, 224), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1).float().div(255)[None]
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (IMAGENET_MEAN, _IMAGENET_STD))
    return (pixels - mean) / std
