"""Heatmaps that explain a model, and measures of how faithful they are. Importing this package imports no torch.

An explainer is a function (model, images, score) -> maps, with images (B, 3, H, W), a `Score` with J groups of classes
per image, and maps (B, J, H, W). See docs/explanations.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.explain.deletion import Answer, Question, faithfulness
    from testbed.explain.explainers import make_explainer
    from testbed.explain.scores import Score
    from testbed.explain.single import CausalMetric, Explanation, read_tensor, visual_evaluation

__all__ = [
    "Answer",
    "CausalMetric",
    "Explanation",
    "Question",
    "Score",
    "faithfulness",
    "make_explainer",
    "read_tensor",
    "visual_evaluation",
]

# Name -> module. Names are imported on first use, since most of these modules import torch.
_HOMES = {
    **dict.fromkeys(("CausalMetric", "Explanation", "read_tensor", "visual_evaluation"), "single"),
    **dict.fromkeys(("Answer", "Question", "faithfulness"), "deletion"),
    "Score": "scores",
    "make_explainer": "explainers",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"testbed.explain.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'testbed.explain' has no attribute {name!r}")
