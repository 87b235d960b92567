"""Which of a dataset's images an evaluation takes, and how they are labelled there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.data.samples import UNKNOWN, Samples
from testbed.errors import DataError


@dataclass(frozen=True)
class Selection:
    """Rows of the evaluation: dataset index and target of each."""

    indices: np.ndarray
    targets: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)


def select(
    samples: Samples,
    class_sublist: Sequence[int] | None = None,
    idx_subsample_list: Sequence[int] | None = None,
    limit: int | None = None,
    columns_are_classes: bool = True,
) -> Selection:
    """First the listed indices, then the classes asked for, then an even sample of `limit` images.

    With a class_sublist, images of other classes are left out and target t becomes its place in the
    list, since column j of the logits is class_sublist[j]. Only a dataset with labels of its own and a
    metric that knows what they mean (not columns_are_classes) keeps them as they are.
    """
    indices = np.arange(len(samples))
    if idx_subsample_list is not None:
        indices = np.asarray(idx_subsample_list, dtype=np.int64)
        if indices.max() >= len(samples):
            raise DataError(f"idx_subsample_list names image {indices.max()}, but there are only {len(samples)}")
    targets = samples.targets[indices]
    if class_sublist is not None and (samples.label_space == "imagenet" or columns_are_classes):
        indices, targets = restrict_to_classes(indices, targets, class_sublist)
    if limit is not None and limit < len(indices):
        chosen = even_sample(targets, limit)
        indices, targets = indices[chosen], targets[chosen]
    return Selection(indices, targets)


def restrict_to_classes(
    rows: np.ndarray, targets: np.ndarray, class_sublist: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose target is in the list, and their targets as places in it."""
    place = np.full(max(max(class_sublist), int(targets.max(initial=0))) + 1, UNKNOWN, dtype=np.int64)
    place[list(class_sublist)] = np.arange(len(class_sublist))
    mapped = np.where(targets >= 0, place[targets], UNKNOWN)
    keep = mapped != UNKNOWN
    if not keep.any():
        raise DataError("class_sublist leaves no image: none of the dataset's labels is in it")
    return rows[keep], mapped[keep]


def even_sample(targets: np.ndarray, limit: int) -> np.ndarray:
    """`limit` rows, as many of each class as can be, spread over the class; in row order."""
    order = np.argsort(targets, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(targets[order])) + 1)
    quota = np.zeros(len(groups), dtype=np.int64)
    sizes = np.array([len(g) for g in groups])
    left = limit
    while left > 0:
        open_groups = np.flatnonzero(quota < sizes)
        share = max(left // len(open_groups), 1)
        for g in open_groups[:left] if share == 1 else open_groups:
            add = min(share, sizes[g] - quota[g], left)
            quota[g] += add
            left -= add
    chosen = [g[np.linspace(0, len(g) - 1, q).round().astype(int)] for g, q in zip(groups, quota, strict=True) if q]
    return np.sort(np.concatenate(chosen))
