"""A figure of one heatmap and its deletion curve. Imports neither torch nor matplotlib: the caller makes the figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.metrics.contrastive import contrastive_score, pixel_ranks

_POSITIVE, _CONTRAST, _SCORE, _LIMIT = "tab:blue", "tab:orange", "tab:red", "0.35"
_MOST_NAMES = 3


@dataclass(frozen=True)
class DeletionCurve:
    """The data of the figure. `positive` and `contrast` are probabilities with `deleted` pixels deleted."""

    picture: np.ndarray  # (H, W, 3) in [0, 1]
    heatmap: np.ndarray  # (H, W)
    deleted: np.ndarray
    positive: np.ndarray
    contrast: np.ndarray
    n_salient: float
    cauc: float
    cdrop: float
    positive_name: str
    contrast_name: str  # empty where the classes are held against no other


def words_for(classes: Iterable[int], names: Mapping[int, str]) -> str:
    """The names of some classes for a figure, such as "banjo + violin"; a class without a name is "class 7"."""
    words = [names.get(int(c), f"class {c}") for c in classes]
    if len(words) > _MOST_NAMES:  # a legend has no room for more
        words[_MOST_NAMES - 1 :] = [f"{len(words) - _MOST_NAMES + 1} more"]
    return " + ".join(words)


def draw(figure: Any, curve: DeletionCurve) -> None:
    """Draw the picture, the heatmap over it and the picture at the last point; below these, two curves.

    The curves are the probabilities of the explained and of the contrast classes, and the contrastive score; a line
    marks the last salient pixel.
    """
    above, below = figure.subfigures(2, 1, height_ratios=(1, 1))
    _draw_pictures(above.subplots(1, 3), curve)
    left, right = below.subplots(1, 2)
    share = 100 * curve.deleted / curve.heatmap.size
    limit = 100 * curve.n_salient / curve.heatmap.size
    left.plot(share, curve.positive, color=_POSITIVE, label=f"P({curve.positive_name})")
    if curve.contrast_name:
        left.plot(share, curve.contrast, color=_CONTRAST, label=f"P({curve.contrast_name})")
    left.set(title="Probabilities", ylabel="probability")
    score = contrastive_score(curve.positive, curve.contrast)
    written = f"P({curve.positive_name})" + (f" (1 - P({curve.contrast_name}))" if curve.contrast_name else "")
    right.plot(share, score, color=_SCORE, label=f"s = {written}")
    right.fill_between(share, 0, score, color=_SCORE, alpha=0.15, linewidth=0)
    right.set(title=f"Contrastive score: CAUC {curve.cauc:.5f}, CDROP {curve.cdrop:.4f}", ylabel="score")
    for ax in (left, right):
        ax.axvline(limit, color=_LIMIT, linestyle=(0, (4, 3)), linewidth=1, label=f"salient: {limit:.2f} % of pixels")
        ax.set_xlabel("pixels deleted (%)")
        ax.set_xlim(0, max(limit * 1.05, 1e-6))
        ax.set_ylim(0, max(float(np.max([curve.positive.max(), curve.contrast.max()])) * 1.08, 1e-6))
        ax.grid(color="0.92")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small")


def _draw_pictures(axes: Any, curve: DeletionCurve) -> None:
    last = int(curve.deleted.max(initial=0))
    deleted = pixel_ranks(curve.heatmap) < last
    remaining = np.where(deleted[:, :, None], 0.5, curve.picture)
    axes[0].imshow(curve.picture)
    axes[0].set_title("Picture")
    axes[1].imshow(curve.picture.mean(axis=2), cmap="gray", vmin=0, vmax=1)
    axes[1].imshow(curve.heatmap, cmap="jet", alpha=0.5)
    axes[1].set_title(f"Heatmap of {curve.positive_name}")
    axes[2].imshow(remaining)
    axes[2].set_title(f"After {last:,} pixels")
    for ax in axes:
        ax.set_axis_off()
