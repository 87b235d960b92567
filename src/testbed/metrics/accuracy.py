"""Accuracy in percent: top-k, by class, and among a subset of the classes or among all of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from testbed.metrics.estimate import ACCURACY, Estimate, mean_estimate, share
from testbed.metrics.labels import COLUMNS, targets_are

# Name of the extra array of a derived setting with a class_sublist: the prediction among all columns of the parent, as
# a place in the sublist, or the sublist's length for a class outside it.
FULL_PREDICTION = "prediction_among_all"


@targets_are(COLUMNS)
def accuracy_topk(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """top1 and, with more than five classes, top5. Images without a label are left out.

    Of equal logits the one with the lower class index ranks higher, as in argmax.
    """
    known = targets >= 0
    n = int(known.sum())
    if n == 0:
        return {}
    rank = target_rank(logits[known] if n < len(targets) else logits, targets[known])
    return topk_of(rank, logits.shape[1])


def topk_of(rank: np.ndarray, columns: int) -> dict[str, Estimate]:
    """top1 and, with more than five classes, top5, from the rank of each image's target."""
    result = {"top1": share(int((rank < 1).sum()), len(rank))}
    if columns > 5:
        result["top5"] = share(int((rank < 5).sum()), len(rank))
    return result


def right_or_wrong(right: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """top1 of each image: 100 or 0; NaN for an image without a label, which does not count.

    A metrics_fn whose top1 is another share of images, or that has other means over images, says so in a function
    `per_image(logits, targets)`, as attribute or method: {name of the number: value of each image}. Intervals of means
    and differences over settings use it, since settings often share images.
    """
    return np.where(targets >= 0, 100.0 * right, np.nan)


def target_rank(logits: np.ndarray, targets: np.ndarray, rows_at_once: int = 4096) -> np.ndarray:
    """The number of classes that rank before the target: 0 if the target is the prediction."""
    rank = np.empty(len(targets), dtype=np.int64)
    for start in range(0, len(targets), rows_at_once):  # bounded memory for a memory-mapped file
        rows = slice(start, start + rows_at_once)
        rank[rows] = rank_within(np.asarray(logits[rows]), targets[rows, None])
    return rank


def rank_within(part: np.ndarray, target: np.ndarray) -> np.ndarray:
    """target_rank of a block of rows; `target` is a column."""
    own = np.take_along_axis(part, target, axis=1)
    # Written as a negation, since comparisons with NaN are false: a row with NaN is then never right.
    before = ~((part < own) | ((part == own) & (np.arange(part.shape[1]) >= target)))
    rank: np.ndarray = before.sum(axis=1)
    return rank


def full_accuracy(targets: np.ndarray, extras: Mapping[str, np.ndarray] | None) -> dict[str, Estimate]:
    """top1_full1000, the accuracy of predictions among all classes; empty if these are not in `extras`."""
    if not extras or FULL_PREDICTION not in extras or not (targets >= 0).any():
        return {}
    known = targets >= 0
    return {"top1_full1000": share(int((extras[FULL_PREDICTION][known] == targets[known]).sum()), int(known.sum()))}


def per_class_accuracy(logits: np.ndarray, targets: np.ndarray) -> dict[int, Estimate]:
    """top1 of every class that has images."""
    hits, n = _by_class(logits, targets)
    return {int(c): share(int(hits[c]), int(n[c])) for c in np.flatnonzero(n)}


@targets_are(COLUMNS)
def class_accuracy(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn: top1 averaged over classes, over the worst tenth of them, and of the worst one.

    The interval of the mean treats classes as a random sample. The interval of the worst class is that of its own
    images; it does not account for the selection, although a minimum over many classes is low partly by chance.
    """
    hits, n = _by_class(logits, targets)
    classes = np.flatnonzero(n)
    if not len(classes):
        return {}
    accuracy = 100.0 * hits[classes] / n[classes]
    order = np.argsort(accuracy, kind="stable")
    tenth = order[: max(len(order) // 10, 1)]
    worst = classes[order[0]]
    total = int(n.sum())
    return {
        "top1_mean_per_class": mean_estimate(accuracy, ACCURACY, total),
        # The mean of one class has the interval of its images.
        "top1_worst_tenth": mean_estimate(accuracy[tenth], ACCURACY, int(n[classes[tenth]].sum()))
        if len(tenth) > 1
        else share(int(hits[worst]), int(n[worst])),
        "top1_worst_class": share(int(hits[worst]), int(n[worst])),
    }


def _by_class(logits: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(correct images, images) of every class."""
    known = targets >= 0
    right = np.asarray(logits.argmax(axis=1) == targets)[known]
    labels = targets[known]
    return np.bincount(labels, right), np.bincount(labels)
