"""CAUC and CDROP of one heatmap of one picture: the interface of the published program over our code.

    metric = CausalMetric(model=model, metric=["CAUC", "CDROP"], step=16, batch_size=8, delta=0.5, tau_thres=0.05,
                          smooth_len=3)
    result, count = metric.single_run(img, Explanation(target=[[486], [889]], saliency=heatmap), visual_evaluation)

Values and count are those of the published program, also for degenerate maps (CAUC 0, CDROP NaN). Departures: pixels of
equal value are deleted in row-major order, a wrong metric name or map size is refused, pictures that are not RGB are
converted, and the figure names classes. docs/briefs/explanations.md goes through its README line by line.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np
import torch

from testbed.data.images import read_rgb
from testbed.data.labels import imagenet_names
from testbed.errors import EntryError, near_names
from testbed.explain.deletion import Answer, Question, faithfulness
from testbed.explain.substrates import IMAGENET_MEAN
from testbed.metrics.contrastive import INVALID, METRICS, Recipe

_IMAGENET_STD = (0.229, 0.224, 0.225)
_FIGURE_SIZE = (11.0, 6.4)  # inches


@dataclass(frozen=True)
class Explanation:
    """A heatmap (H, W), with target = [explained classes, contrast classes].

    class_names: the names of the model's classes for figures, in their order or by class number. Without them a model
    with 1000 classes has those of ImageNet.
    """

    target: Sequence[Sequence[int]]
    saliency: torch.Tensor | np.ndarray
    class_names: Sequence[str] | Mapping[int, str] | None = None

    def __post_init__(self) -> None:
        expected = "expected target=[explained classes, contrast classes], such as [[486], [889]]"
        try:
            explained, contrast = ([index(c) for c in classes] for classes in self.target)
        except (TypeError, ValueError) as error:
            raise EntryError(f"{expected}, got {self.target!r}") from error
        if not explained or min(explained + contrast) < 0:
            raise EntryError(f"{expected}, got {self.target!r}")

    def names(self, n_classes: int) -> dict[int, str]:
        """The names of the classes of a model with so many, as far as they are known."""
        if isinstance(self.class_names, Mapping):
            return dict(self.class_names)
        given = self.class_names
        if given is None:
            given = imagenet_names() if n_classes == len(imagenet_names()) else ()
        return dict(enumerate(given))


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
        tau_threshold: float | None = None,
    ) -> None:
        names = tuple(dict.fromkeys([metric] if isinstance(metric, str) else metric))
        unknown = [name for name in names if name not in METRICS]
        if unknown:
            meant = near_names(unknown[0], METRICS)
            raise EntryError(f"expected metric among {', '.join(METRICS)}, got {unknown[0]!r}{meant}")
        if batch_size < 1:
            raise EntryError(f"CausalMetric: expected batch_size of at least 1, got {batch_size}")
        # The published README calls it tau_threshold in its list of parameters, and tau_thres in its code.
        tau = tau_thres if tau_threshold is None else tau_threshold
        self.model = model
        self.substrate_fn = substrate_fn
        self.batch_size = batch_size
        try:
            self.recipe = Recipe(step, delta, tau, smooth_len, mode, max_points, names)
        except ValueError as error:
            raise EntryError(f"CausalMetric: {error}") from error

    def single_run(
        self,
        img: torch.Tensor,
        explanation: Explanation,
        visual: Callable[[torch.Tensor, Explanation, Answer], Any] | None = None,
    ) -> tuple[dict[str, torch.Tensor], float]:
        """The metrics as 0-dimensional tensors by name, and the number of salient pixels.

        `visual(img, explanation, answer)` is called with the result, such as `visual_evaluation` to draw it. Its
        explanation has the names of the classes, as far as they are known.
        """
        if not isinstance(img, torch.Tensor) or img.ndim != 4 or len(img) != 1:
            got = f"shape {tuple(img.shape)}" if hasattr(img, "shape") else repr(img)
            raise EntryError(f"expected one image as a tensor (1, 3, H, W), such as read_tensor gives, got {got}")
        if hasattr(self.model, "eval"):
            self.model.eval()
        # A figure needs the whole curve, even if the metrics (CDROP alone) do not.
        recipe = self.recipe if visual is None else replace(self.recipe, metrics=METRICS)
        heatmap = torch.as_tensor(explanation.saliency).detach().cpu().numpy()
        positive, contrast = (tuple(int(c) for c in classes) for classes in explanation.target)
        with torch.no_grad():
            intact = self.model(img)
        ((answer,),) = faithfulness(
            self.model,
            img,
            [Question(0, heatmap, positive, contrast)],
            [recipe],
            substrate=self.substrate_fn(img),
            batch_size=self.batch_size,
            intact=intact,
            skip_invalid=False,
            normalise=False,  # callers of the published program normalise their heatmaps themselves
        )
        # A map that is negative throughout still has an order, from its own minimum on, if it is not normalised.
        if answer.invalid and answer.plan.count <= self.recipe.step:
            warnings.warn(
                f"the heatmap is {INVALID[answer.invalid]}, so CAUC and CDROP say nothing about it; a CAUC of 0 is the "
                "published program's answer to such maps",
                stacklevel=2,
            )
        if visual is not None:
            visual(img, replace(explanation, class_names=explanation.names(intact.shape[1])), answer)
        values = {"CAUC": answer.cauc, "CDROP": answer.cdrop}
        # The published program returns a delta above 1, a number of pixels, as it was given, fractions included.
        count = self.recipe.delta if self.recipe.delta > 1 and self.recipe.mode == "cwox" else answer.plan.count
        return {name: torch.tensor(values[name], dtype=img.dtype) for name in self.recipe.metrics}, count


def visual_evaluation(img: torch.Tensor, explanation: Explanation, answer: Answer) -> Any:
    """Draw picture, overlay and curves of a single run into a new pyplot figure, and return it.

    Its size is that of rcParams["figure.figsize"] where that was changed; larger figures have larger letters.
    """
    from matplotlib import pyplot, rcParams, rcParamsDefault

    from testbed.explain.drawing import DeletionCurve, draw, words_for

    pixels = img[0].detach().cpu().numpy().transpose(1, 2, 0).astype(np.float64)
    low, high = pixels.min(), pixels.max()
    saliency = torch.as_tensor(explanation.saliency).detach().cpu().numpy()
    names = explanation.names(0)
    curve = DeletionCurve(
        picture=(pixels - low) / max(high - low, 1e-12),  # the model's normalisation is not known here
        heatmap=saliency,
        deleted=answer.plan.deleted,
        positive=answer.positive,
        contrast=answer.contrast,
        n_salient=answer.plan.count,
        cauc=answer.cauc,
        cdrop=answer.cdrop,
        positive_name=words_for(explanation.target[0], names),
        contrast_name=words_for(explanation.target[1], names),
    )
    asked = tuple(rcParams["figure.figsize"])
    size = _FIGURE_SIZE if asked == tuple(rcParamsDefault["figure.figsize"]) else asked
    # A notebook shrinks a large figure to the width of its page, and the letters with it.
    larger = max(1.0, size[0] / _FIGURE_SIZE[0])
    with pyplot.rc_context({name: rcParams[name] * larger for name in ("font.size", "lines.linewidth")}):
        figure = pyplot.figure(figsize=size, layout="constrained")
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
