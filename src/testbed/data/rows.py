"""Rows: which images an evaluation takes, in which order, and the label of each.

A setting that is run and a setting that is read from stored logits both go through `chosen_rows`, so both take the
same images with the same labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.data.samples import UNKNOWN, Samples
from testbed.errors import DataError


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of an evaluation: id, label and place in the dataset of each image."""

    ids: np.ndarray  # str
    targets: np.ndarray  # int64; UNKNOWN where an image has no label
    indices: np.ndarray  # place in the dataset
    # The number of each row in the whole evaluation. A part of an evaluation keeps these numbers, so that its outputs
    # can be put in their place even if some images could not be read.
    numbers: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if len(self.numbers) != len(self.indices):
            object.__setattr__(self, "numbers", np.arange(len(self.indices)))

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, which: np.ndarray | slice) -> Rows:
        """Some of the rows, by position, mask or slice, with the numbers they have here."""
        return Rows(self.ids[which], self.targets[which], self.indices[which], self.numbers[which])

    @property
    def has_labels(self) -> bool:
        return bool((self.targets >= 0).any())


def all_rows(samples: Samples) -> Rows:
    """Every image of a dataset, in its order."""
    return Rows(np.asarray(samples.ids, dtype=np.str_), samples.targets, np.arange(len(samples)))


def rows_of(
    samples: Samples,
    class_sublist: Sequence[int] | None = None,
    idx_subsample_list: Sequence[int] | None = None,
    own_labels: bool = False,
    limit: int | None = None,
) -> Rows:
    """The rows of an evaluation of a dataset.

    Of all images those in `idx_subsample_list`, of these those of the classes in `class_sublist` (see `chosen_rows`),
    and of these a sample of at most `limit`, evenly over the classes.
    """
    if idx_subsample_list is not None and max(idx_subsample_list) >= len(samples):
        raise DataError(f"idx_subsample_list names image {max(idx_subsample_list)}, but there are only {len(samples)}")
    rows = chosen_rows(all_rows(samples), class_sublist, idx_subsample_list, own_labels)
    if limit is not None and limit < len(rows):
        rows = rows.take(even_sample(rows.targets, limit))
    return Rows(rows.ids, rows.targets, rows.indices)  # numbered anew: these are the rows of this evaluation


def chosen_rows(
    rows: Rows,
    class_sublist: Sequence[int] | None = None,
    idx_subsample_list: Sequence[int] | None = None,
    own_labels: bool = False,
) -> Rows:
    """The rows of the listed images, and of those the images of the listed classes.

    idx_subsample_list: indices of images in the dataset. One that occurs twice gives two rows; one that is not among
    `rows`, such as after a limited run, gives none.
    class_sublist: column j of the logits is class class_sublist[j]. Images of other classes are left out, and a label
    becomes its place in the list.
    own_labels: the labels have a numbering of their own and do not name columns; class_sublist then changes nothing.
    """
    if idx_subsample_list is not None:
        place = {int(index): position for position, index in enumerate(rows.indices)}
        rows = rows.take(np.array([place[i] for i in idx_subsample_list if i in place], dtype=np.int64))
    if class_sublist is None or own_labels:
        return rows
    places = places_in(class_sublist, rows.targets)
    kept = places != UNKNOWN
    if not kept.any():
        raise DataError("class_sublist leaves no image: none of the dataset's labels is in it")
    return Rows(rows.ids[kept], places[kept], rows.indices[kept], rows.numbers[kept])


def places_in(class_sublist: Sequence[int], targets: np.ndarray) -> np.ndarray:
    """The place of each label in the list; UNKNOWN for a label that is not in it."""
    # Looked up in the sorted list: a table with a place for every possible label could take all memory.
    classes = np.asarray(class_sublist, dtype=np.int64)
    order = np.argsort(classes, kind="stable")
    near = np.minimum(np.searchsorted(classes[order], targets), len(classes) - 1)
    return np.where(classes[order][near] == targets, order[near], UNKNOWN)


def even_sample(targets: np.ndarray, limit: int) -> np.ndarray:
    """Positions of `limit` rows, in row order: as equal numbers of each class as possible, at even distances in it."""
    order = np.argsort(targets, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(targets[order])) + 1)
    quota = np.zeros(len(groups), dtype=np.int64)
    sizes = np.array([len(g) for g in groups])
    left = limit
    while left > 0:  # a small class gives all it has; the others share what it could not give
        open_groups = np.flatnonzero(quota < sizes)
        share = max(left // len(open_groups), 1)
        for g in open_groups[:left] if share == 1 else open_groups:
            add = min(share, sizes[g] - quota[g], left)
            quota[g] += add
            left -= add
    chosen = [g[np.linspace(0, len(g) - 1, q).round().astype(int)] for g, q in zip(groups, quota, strict=True) if q]
    return np.sort(np.concatenate(chosen))
