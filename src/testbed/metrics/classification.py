"""The metrics of a plain classification setting: accuracy, then the quality of the probabilities."""

from __future__ import annotations

import numpy as np

from testbed.metrics.accuracy import full_accuracy, rank_within, topk_of
from testbed.metrics.calibration import brier_of, ece_of, nll_of, scores
from testbed.metrics.estimate import Estimate
from testbed.metrics.labels import COLUMNS, targets_are


@targets_are(COLUMNS)
def classification(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn: top1, top5, nll (nats), brier (0 to 2) and ece (percent), from logits without a temperature."""
    n = int((targets >= 0).sum())
    if n == 0:
        return {}
    rank = np.empty(n, dtype=np.int64)

    def look(rows: slice, part: np.ndarray, label: np.ndarray) -> None:
        rank[rows] = rank_within(part, label)

    per_image = scores(logits, targets, look=look)
    return topk_of(rank, logits.shape[1]) | {
        "nll": nll_of(per_image),
        "brier": brier_of(per_image),
        "ece": ece_of(per_image),
    }


@targets_are(COLUMNS)
def subset_classification(
    logits: np.ndarray, targets: np.ndarray, extras: dict[str, np.ndarray] | None = None
) -> dict[str, Estimate]:
    """metrics_fn: the same metrics among the classes of a subset, and top1_full1000 among all classes of the model.

    Papers differ in which of the two they call the accuracy on ImageNet-A or -R.
    """
    result = classification(logits, targets)
    # The order is that of the tables: top1, top5, top1_full1000, then the probabilities.
    accuracies = {name: value for name, value in result.items() if name in ("top1", "top5")}
    return accuracies | full_accuracy(targets, extras) | result
