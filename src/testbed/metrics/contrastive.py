"""Contrastive faithfulness of a heatmap: CAUC and CDROP, the pixels they delete, and maps that cannot be measured.

Pixels are deleted in descending order of the heatmap. The contrastive score after each deletion is
s = P(c) (1 - P(C')), with c the explained classes and C' the contrast classes. No model is called here:
`plan_deletion` gives the numbers of deleted pixels at which the scores are needed, and `cauc` and `cdrop` take them.

There are two modes. "cwox" equals the published program (github.com/vaynexie/CWOX, Evaluation/evaluation/causal.py):
pixels strictly above min + delta (max - min) are salient, CAUC is a trapezoid sum over steps of `step` pixels divided
by ceil(n / step) + 1, and CDROP ends at the mean of the last `smooth_len` points. "paper" follows the program's README:
pixels of at least delta times the maximum are salient, CAUC = sum of s(1) ... s(n_delta) / n, and CDROP ends at
s(n_delta + 1) without smoothing. One thing differs from the program: pixels of equal value are deleted in row-major
order, so that results are reproducible; the program's sort is not stable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from testbed.metrics.estimate import SHARE, UNDECLARED, Estimate, MetricKind, clipped
from testbed.metrics.softmax import log_softmax

MODES = ("cwox", "paper")
METRICS = ("CAUC", "CDROP")

# Why a map is left out of means. The place of the reason is stored with the map; 0 is a valid map.
INVALID = ("", "not finite", "negative", "empty", "constant", "too small")

# The better direction of each metric; other numbers have none.
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
    """How a heatmap is measured. A delta above 1 is a number of pixels instead of a share of the map's range.

    `max_points` bounds the forward passes of one map: CAUC is then computed from evenly spaced points of the same
    curve, and CDROP stays exact. With metrics=("CDROP",) only its 1 + smooth_len points are needed.
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
    """The map with negative values set to 0, divided by its maximum, in float64; zeros where that is not finite."""
    heatmap = np.asarray(heatmap, dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.nan_to_num(heatmap.clip(0) / heatmap.max(), nan=0.0, posinf=0.0, neginf=0.0)


def pixel_ranks(heatmap: np.ndarray) -> np.ndarray:
    """The place of each pixel in the order of deletion: 0 for the highest value; equal values in row-major order."""
    order = np.argsort(-heatmap.ravel(), kind="stable")
    ranks = np.empty(order.size, dtype=np.int32)
    ranks[order] = np.arange(order.size, dtype=np.int32)
    return ranks.reshape(heatmap.shape)


def salient_count(heatmap: np.ndarray, recipe: Recipe) -> float:
    """n_delta, the number of salient pixels. A delta above 1 is this number itself."""
    if recipe.mode == "paper":
        if recipe.delta > 1:
            return float(min(int(recipe.delta), heatmap.size))
        return float((heatmap >= recipe.delta * heatmap.max()).sum())
    if recipe.delta > 1:
        return float(recipe.delta)
    low, high = heatmap.min(), heatmap.max()
    return float((heatmap > low + (high - low) * recipe.delta).sum())


def invalid_code(heatmap: np.ndarray, recipe: Recipe) -> int:
    """0 for a map that can be measured, else the place of the reason in INVALID. `heatmap` is not normalised.

    The published program gives invalid maps a CAUC of 0, the best possible value; here they are left out of means.
    """
    heatmap = np.asarray(heatmap)
    if not np.isfinite(heatmap).all():
        return INVALID.index("not finite")
    low, high = heatmap.min(), heatmap.max()
    if high <= 0:
        return INVALID.index("negative" if low < 0 else "empty")
    if low == high:
        return INVALID.index("constant")
    least = recipe.step if recipe.mode == "cwox" else 0  # deleted in a single step, so there is no curve
    return INVALID.index("too small") if salient_count(normalised(heatmap), recipe) <= least else 0


# ---- which points of the curve are needed ----------------------------------------------------------------


@dataclass(frozen=True)
class DeletionPlan:
    """The numbers of deleted pixels at which the model is evaluated, fixed before any forward pass."""

    recipe: Recipe
    n_pixels: int
    count: float  # n_delta
    grid: np.ndarray  # places on the curve: steps in mode cwox, pixels in mode paper
    deleted: np.ndarray  # pixels deleted at each of them; the first is 0, the intact image

    @property
    def steps(self) -> int:
        """ceil(n_delta / step): the number of points that the published program evaluates."""
        return (int(self.count) - 1) // self.recipe.step + 1

    @property
    def length(self) -> int:
        """ceil(n / step) + 1: the divisor of CAUC in the published program."""
        return -(-self.n_pixels // self.recipe.step) + 1


def plan_deletion(heatmap: np.ndarray, recipe: Recipe) -> DeletionPlan:
    """The points of a normalised heatmap's deletion curve that `recipe` needs."""
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
            # CDROP's points come in addition; the last of them is also the end of the grid.
            evenly = np.linspace(0, len(grid) - 1, recipe.max_points - max(len(tail) - 1, 0))
            grid = grid[np.unique(evenly.round().astype(np.int64))]
    else:
        grid = grid[:1]
    grid = np.union1d(grid, np.array(sorted(tail), dtype=np.int64)).astype(np.int64)
    scale = recipe.step if recipe.mode == "cwox" else 1
    return DeletionPlan(recipe, heatmap.size, count, grid, np.minimum(grid * scale, heatmap.size))


def _tail(plan: DeletionPlan) -> range:
    """The last points of the curve, whose mean is the end of CDROP; with less than smooth_len points, the last one."""
    stop, smooth = plan.steps, plan.recipe.smooth_len
    first = stop - smooth if stop >= smooth else stop - 1
    return range(max(first, 0), max(min(stop, plan.length), 0))


# ---- numbers ---------------------------------------------------------------------------------------------


def contrastive_score(positive: np.ndarray, contrast: np.ndarray) -> np.ndarray:
    """s = P(c) (1 - P(C')). Without contrast classes P(C') is 0, and s is the score of plain deletion."""
    return positive * (1 - contrast)


def cauc(plan: DeletionPlan, scores: np.ndarray) -> float:
    """The contrastive area under the deletion curve; lower is better. `scores` are those at `plan.deleted`."""
    scores = np.asarray(scores, dtype=np.float64)
    if plan.recipe.mode == "paper":
        # With a step of 1 this is the plain sum; between wider steps the curve is interpolated linearly.
        return float(np.interp(np.arange(int(plan.count)), plan.grid, scores).sum() / plan.n_pixels)
    return _trapezoid(scores, plan.grid) / plan.length


def cdrop(plan: DeletionPlan, scores: np.ndarray) -> float:
    """The drop of the score over the salient pixels, divided by a logarithm of their area; higher is better."""
    scores = np.asarray(scores, dtype=np.float64)
    tau = plan.recipe.tau_threshold * plan.n_pixels
    drop = scores[0] - final_score(plan, scores)
    return float(drop / np.log2(1 + max(plan.count, tau) / tau))


def final_score(plan: DeletionPlan, scores: np.ndarray) -> float:
    """The score at the end of CDROP; NaN if the map has no salient pixel or the curve ends earlier."""
    wanted = [int(plan.count)] if plan.recipe.mode == "paper" else list(_tail(plan))
    last = np.asarray(scores, dtype=np.float64)[np.isin(plan.grid, wanted)]
    return float(last.mean()) if len(last) else float("nan")


def cauc_per_area(plan: DeletionPlan, scores: np.ndarray) -> float:
    """CAUC n / n_delta: roughly the mean score while the salient pixels are deleted.

    CAUC itself falls with the number of salient pixels, whichever they are, which favours small maps and noise.
    """
    return cauc(plan, scores) * plan.n_pixels / plan.count if plan.count else float("nan")


def whole_curve(n_pixels: int, points: int) -> np.ndarray:
    """Numbers of changed pixels, from 0 to all, at which deletion and insertion over the whole image are sampled."""
    return np.linspace(0, n_pixels, points).round().astype(np.int64)


def whole_auc(changed: np.ndarray, probabilities: np.ndarray) -> float:
    """The mean of P(c) along a curve over the whole image: deletion AUC (lower is better) or insertion AUC (higher)."""
    return _trapezoid(probabilities, changed) / float(changed[-1])


def _trapezoid(values: np.ndarray, places: np.ndarray) -> float:
    values = np.asarray(values, dtype=np.float64)
    return float(((values[1:] + values[:-1]) / 2 * np.diff(places)).sum())


# ---- which classes are explained -------------------------------------------------------------------------


def likely_classes(logits: np.ndarray, mass: float = 0.95, most: int = 5) -> list[np.ndarray]:
    """For each row the most probable classes, as many as reach `mass`, at most `most`; the best first."""
    order = np.argsort(-logits, axis=1, kind="stable")[:, :most]
    sums = np.exp(np.take_along_axis(log_softmax(logits)[0], order, axis=1)).cumsum(axis=1)
    counts = (sums < mass).sum(axis=1) + 1
    return [row[:count] for row, count in zip(order, counts, strict=True)]


# ---- an evaluation's rows as metrics ---------------------------------------------------------------------


def explanation_metrics(extras: Mapping[str, np.ndarray]) -> dict[str, Estimate]:
    """Means over all valid maps, one per (image, class), with intervals that are clustered by image.

    The n of a metric is the number of its valid maps; `n_valid` and `n_invalid` count maps, and `salient_percent` is
    the mean salient area.
    """
    # Images with fewer explained classes than others are padded with -1.
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
    """The mean with a 95 % interval from cluster-robust standard errors: values of one group may be correlated."""
    mean = float(values.mean())
    _, places = np.unique(groups, return_inverse=True)
    sums = np.bincount(places, weights=values - mean)
    k = len(sums)
    if k < 2:
        return Estimate(mean, n=len(values), kind=kind)
    half = 1.959963984540054 * float(np.sqrt(k / (k - 1) * (sums**2).sum())) / len(values)
    return clipped(mean, mean - half, mean + half, len(values), kind)
