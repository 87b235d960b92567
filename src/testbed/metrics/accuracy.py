"""Top-k accuracy in percent."""

from __future__ import annotations

import numpy as np

from testbed.metrics.estimate import Estimate, share


def accuracy_topk(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """top1 and, where there are more than five classes, top5. Images without a label are left out.

    Among equal logits the class with the lower index counts as the higher, as argmax decides.
    """
    known = targets >= 0
    n = int(known.sum())
    if n == 0:
        return {}
    rank = target_rank(logits[known] if n < len(targets) else logits, targets[known])
    result = {"top1": share(int((rank < 1).sum()), n)}
    if logits.shape[1] > 5:
        result["top5"] = share(int((rank < 5).sum()), n)
    return result


def target_rank(logits: np.ndarray, targets: np.ndarray, rows_at_once: int = 4096) -> np.ndarray:
    """How many classes stand before the target; 0 where the target is the prediction."""
    rank = np.empty(len(targets), dtype=np.int64)
    columns = np.arange(logits.shape[1])
    for start in range(0, len(targets), rows_at_once):  # bounded memory for a memory-mapped file
        part = np.asarray(logits[start : start + rows_at_once])
        target = targets[start : start + rows_at_once, None]
        own = np.take_along_axis(part, target, axis=1)
        before = (part > own) | ((part == own) & (columns < target))
        rank[start : start + rows_at_once] = before.sum(axis=1)
    return rank


# The columns of the logits are the classes the targets count: the engine checks their number.
accuracy_topk.columns_are_classes = True  # type: ignore[attr-defined]
