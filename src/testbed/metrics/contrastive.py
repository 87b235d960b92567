"""Contrastive faithfulness of a heatmap: CAUC and CDROP, which pixels they delete, and which maps say nothing.

Pixels go in descending order of the heatmap; the contrastive score after each deletion is s = P(c) (1 - P(C')), with
c the explained classes and C' the contrast classes. A model is asked elsewhere: `plan_deletion` says at how many
deleted pixels, `cauc` and `cdrop` take the scores found there.

Two modes. "cwox" equals the published program (github.com/vaynexie/CWOX, Evaluation/evaluation/causal.py): salient is
what lies strictly above min + delta (max - min), CAUC is a trapezoid over steps of `step` pixels divided by
ceil(n / step) + 1, and CDROP ends at the mean of the last `smooth_len` points. "paper" is its README: salient is what
reaches delta times the maximum, CAUC = sum of s(1) ... s(n_delta) / n, CDROP ends at s(n_delta + 1), unsmoothed.
We depart from the program in one thing: equal pixels go in row-major order, always; its sort is not stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from testbed.metrics.estimate import SHARE, UNDECLARED, Estimate, MetricKind, clipped
from testbed.metrics.softmax import log_softmax

MODES = ("cwox", "paper")
METRICS = ("CAUC", "CDROP")

# Why a map is left out of means, by the number stored with it; 0 is a valid map.
INVALID = ("", "not finite", "negative", "empty", "constant", "too small")

# Which way is better; the other numbers have no direction.
BETTER = {
    "cauc": "lower",
    "cdrop": "higher",
    "cauc_per_area": "lower",
    "deletion_auc": "lower",
    "insertion_auc": "higher",
}
# Scores are probabilities, so areas lie between 0 and 1; a score may also rise, so CDROP starts at -1.
KINDS = {name: MetricKind("", better, -1.0 if name == "cdrop" else 0.0, 1.0) for name, better in BETTER.items()}
KINDS["salient_percent"] = SHARE
MAPS = MetricKind("maps", None, 0.0)


@dataclass(frozen=True)
class Recipe:
    """How a heatmap is measured. delta above 1 is a number of pixels instead of a share of the map's range.

    max_points bounds the forward passes of one map: CAUC is then the trapezoid over evenly chosen points of the same
    curve, CDROP stays exact. Where `metrics` is ("CDROP",), only its 1 + smooth_len points are asked for.
    """

    step: int = 16
    delta: float = 0.5
    tau_threshold: float = 0.05
    smooth_len: int = 3
    mode: str = "cwox"
    max_points: int | None = None
    metrics: tuple[str, ...] = METRICS

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"expected mode {' or '.join(MODES)}, got {self.mode!r}")
        for name in ("step", "smooth_len"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}")
        if not self.delta >= 0:
            raise ValueError(f"expected delta from 0 to 1, or a number of pixels, got {self.delta}")
        if not self.tau_threshold > 0:
            raise ValueError(f"expected tau_threshold above 0, got {self.tau_threshold}")
        if self.max_points is not None and self.max_points < self.smooth_len + 2:
            raise ValueError(f"expected max_points of at least smooth_len + 2, got {self.max_points}")
        unknown = [name for name in self.metrics if name not in METRICS]
        if unknown or not self.metrics:
            raise ValueError(f"expected metrics among {', '.join(METRICS)}, got {', '.join(unknown) or 'none'}")


# ---- heatmaps --------------------------------------------------------------------------------------------


def normalised(heatmap: np.ndarray) -> np.ndarray:
    """Negative values to 0, then divided by the maximum, in float64; all zero where that is not possible."""
    heatmap = np.asarray(heatmap, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(heatmap.clip(0) / heatmap.max(), nan=0.0, posinf=0.0, neginf=0.0)


def pixel_ranks(heatmap: np.ndarray) -> np.ndarray:
    """When each pixel is deleted: 0 for the highest value; among equals in row-major order."""
    order = np.argsort(-heatmap.ravel(), kind="stable")
    ranks = np.empty(order.size, dtype=np.int32)
    ranks[order] = np.arange(order.size, dtype=np.int32)
    return ranks.reshape(heatmap.shape)


def salient_count(heatmap: np.ndarray, recipe: Recipe) -> float:
    """n_delta: how many pixels are salient. A delta above 1 is that number itself."""
    if recipe.mode == "paper":
        if recipe.delta > 1:
            return float(min(int(recipe.delta), heatmap.size))
        return float((heatmap >= recipe.delta * heatmap.max()).sum())
    if recipe.delta > 1:
        return float(recipe.delta)
    low, high = heatmap.min(), heatmap.max()
    return float((heatmap > low + (high - low) * recipe.delta).sum())


def invalid_code(heatmap: np.ndarray, recipe: Recipe) -> int:
    """0 for a map that can be measured, else the place of the reason in INVALID. `heatmap` is not normalised yet.

    The published program gives such maps a CAUC of 0, which is the best there is.
    """
    heatmap = np.asarray(heatmap)
    if not np.isfinite(heatmap).all():
        return INVALID.index("not finite")
    low, high = heatmap.min(), heatmap.max()
    if high <= 0:
        return INVALID.index("negative" if low < 0 else "empty")
    if low == high:
        return INVALID.index("constant")
    least = recipe.step if recipe.mode == "cwox" else 0  # so few pixels go in one step: no curve comes of them
    return INVALID.index("too small") if salient_count(normalised(heatmap), recipe) <= least else 0


# ---- which points of the curve are needed ----------------------------------------------------------------


@dataclass(frozen=True)
class DeletionPlan:
    """At how many deleted pixels the model is asked, before any forward pass."""

    recipe: Recipe
    n_pixels: int
    count: float  # n_delta
    grid: np.ndarray  # places on the curve: steps in mode cwox, pixels in mode paper
    deleted: np.ndarray  # pixels deleted at each of them; the first is 0, the intact image

    @property
    def steps(self) -> int:
        """ceil(n_delta / step): how many points the published program asks for."""
        return (int(self.count) - 1) // self.recipe.step + 1

    @property
    def length(self) -> int:
        """What the published program divides CAUC by."""
        return -(-self.n_pixels // self.recipe.step) + 1


def plan_deletion(heatmap: np.ndarray, recipe: Recipe) -> DeletionPlan:
    """The points that `recipe` needs of a normalised heatmap's curve."""
    count = salient_count(heatmap, recipe)
    plan = DeletionPlan(recipe, heatmap.size, count, np.zeros(0, np.int64), np.zeros(0, np.int64))
    if recipe.mode == "paper":
        grid, tail = np.append(np.arange(0, int(count), recipe.step), int(count)), {int(count)}
    else:
        grid, tail = np.arange(min(max(plan.steps, 1), plan.length)), set(_tail(plan))
    if "CDROP" not in recipe.metrics:
        tail = set()
    if "CAUC" in recipe.metrics:
        if recipe.max_points is not None and len(grid) > recipe.max_points:
            evenly = np.linspace(0, len(grid) - 1, recipe.max_points - max(len(tail) - 1, 0))
            grid = grid[np.unique(evenly.round().astype(np.int64))]
    else:
        grid = grid[:1]
    grid = np.union1d(grid, np.array(sorted(tail), dtype=np.int64)).astype(np.int64)
    scale = recipe.step if recipe.mode == "cwox" else 1
    return DeletionPlan(recipe, heatmap.size, count, grid, np.minimum(grid * scale, heatmap.size))


def _tail(plan: DeletionPlan) -> range:
    """The last points kept, whose mean ends CDROP; what lies beyond the curve is not there."""
    stop, smooth = plan.steps, plan.recipe.smooth_len
    first = stop - smooth if stop >= smooth else stop - 1
    return range(max(first, 0), max(min(stop, plan.length), 0))


# ---- numbers ---------------------------------------------------------------------------------------------


def contrastive_score(positive: np.ndarray, contrast: np.ndarray) -> np.ndarray:
    """s = P(c) (1 - P(C')); without contrast classes P(C') is 0 and s is plain deletion."""
    return positive * (1 - contrast)


def cauc(plan: DeletionPlan, scores: np.ndarray) -> float:
    """Contrastive area under the deletion curve; lower is better. `scores` are those at `plan.deleted`."""
    scores = np.asarray(scores, dtype=np.float64)
    if plan.recipe.mode == "paper":
        # At step 1 this is the plain sum; between wider steps the curve is taken as straight.
        return float(np.interp(np.arange(int(plan.count)), plan.grid, scores).sum() / plan.n_pixels)
    return _trapezoid(scores, plan.grid) / plan.length


def cdrop(plan: DeletionPlan, scores: np.ndarray) -> float:
    """Drop of the score over the salient pixels, less for many of them; higher is better."""
    scores = np.asarray(scores, dtype=np.float64)
    tau = plan.recipe.tau_threshold * plan.n_pixels
    drop = scores[0] - final_score(plan, scores)
    return float(drop / np.log2(1 + max(plan.count, tau) / tau))


def final_score(plan: DeletionPlan, scores: np.ndarray) -> float:
    """The score that CDROP ends at; NaN where the map has no salient pixel or the curve ends before."""
    wanted = [int(plan.count)] if plan.recipe.mode == "paper" else list(_tail(plan))
    last = np.asarray(scores, dtype=np.float64)[np.isin(plan.grid, wanted)]
    return float(last.mean()) if len(last) else float("nan")


def cauc_per_area(plan: DeletionPlan, scores: np.ndarray) -> float:
    """CAUC n / n_delta: about the mean score while the salient pixels go.

    CAUC itself falls with the number of salient pixels, whatever they are, so that small maps and noise do well.
    """
    return cauc(plan, scores) * plan.n_pixels / plan.count if plan.count else float("nan")


def whole_curve(n_pixels: int, points: int) -> np.ndarray:
    """Numbers of pixels at which deletion and insertion over the whole image are sampled, from 0 to all."""
    return np.linspace(0, n_pixels, points).round().astype(np.int64)


def whole_auc(changed: np.ndarray, probabilities: np.ndarray) -> float:
    """Mean of P(c) along a curve over the whole image: deletion AUC (lower) or insertion AUC (higher is better)."""
    return _trapezoid(probabilities, changed) / float(changed[-1])


def _trapezoid(values: np.ndarray, places: np.ndarray) -> float:
    values = np.asarray(values, dtype=np.float64)
    return float(((values[1:] + values[:-1]) / 2 * np.diff(places)).sum())


# ---- which classes are explained -------------------------------------------------------------------------


def likely_classes(logits: np.ndarray, mass: float = 0.95, most: int = 5) -> list[np.ndarray]:
    """For each row the smallest set of classes that reaches `mass` of the probability, at most `most`, best first."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :most]
    sums = np.exp(np.take_along_axis(log_softmax(logits)[0], order, axis=1)).cumsum(axis=1)
    counts = (sums < mass).sum(axis=1) + 1
    return [row[:count] for row, count in zip(order, counts, strict=True)]


# ---- an evaluation's rows as metrics ---------------------------------------------------------------------


def explanation_metrics(extras: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Means over all valid (image, class) rows of a probe, with intervals that treat an image's rows as one.

    The n of a metric is its valid rows; `n_valid` and `n_invalid` count maps, and `salient_percent` is the mean area.
    """
    exists = np.asarray(extras["positive"])[:, :, 0] >= 0
    invalid = exists & (np.asarray(extras["invalid"]) != 0)
    valid = exists & ~invalid
    images = np.broadcast_to(np.arange(len(exists))[:, None], exists.shape)
    metrics = {}
    for name, kind in KINDS.items():
        if name in extras:
            values = np.asarray(extras[name], dtype=np.float64)
            chosen = valid & np.isfinite(values)
            if chosen.any():
                metrics[name] = clustered_mean(values[chosen], images[chosen], kind)
    total = int(exists.sum())
    metrics["n_valid"] = Estimate(float(valid.sum()), n=total, kind=MAPS)
    metrics["n_invalid"] = Estimate(float(invalid.sum()), n=total, kind=MAPS)
    return metrics


def clustered_mean(values: np.ndarray, groups: np.ndarray, kind: MetricKind = UNDECLARED) -> Estimate:
    """The mean with a 95 % interval whose standard error lets values of one group go together."""
    mean = float(values.mean())
    _, places = np.unique(groups, return_inverse=True)
    sums = np.bincount(places, weights=values - mean)
    k = len(sums)
    if k < 2:
        return Estimate(mean, n=len(values), kind=kind)
    half = 1.959963984540054 * float(np.sqrt(k / (k - 1) * (sums**2).sum())) / len(values)
    return clipped(mean, mean - half, mean + half, len(values), kind)
