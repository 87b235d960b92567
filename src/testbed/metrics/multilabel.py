"""Accuracy where a picture may have several right answers, or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.metrics.estimate import Estimate, share

_VAL_NUMBER = re.compile(r"ILSVRC2012_val_0*(\d+)\.")


def multilabel_accuracy(logits: np.ndarray, labels: Sequence[Collection[int]]) -> dict[str, Estimate]:
    """top1: the prediction is one of the picture's labels. Pictures with no label at all are left out."""
    if len(labels) != len(logits):
        raise ValueError(f"multilabel_accuracy: expected labels of {len(logits)} pictures, got {len(labels)}")
    predicted = logits.argmax(axis=1)
    right = [int(p) in found for p, found in zip(predicted, labels, strict=True) if len(found)]
    return {"top1": share(sum(right), len(right))} if right else {}


@dataclass(frozen=True)
class ValidationLabels:
    """metrics_fn: other labels of ImageNet's validation pictures, in the order of their file numbers.

    `labels` is a function, so that a long list is read only when something is measured.
    """

    labels: Callable[[], Sequence[Collection[int]]]

    def __call__(self, logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        listed = self.labels()
        return multilabel_accuracy(logits, [listed[validation_number(path) - 1] for path in image_paths])


@dataclass(frozen=True)
class AnyOf:
    """metrics_fn: the prediction among all columns is one of the target's (ImageNet-D, PUG). Targets count groups.

    A column may belong to several groups.
    """

    groups: Sequence[Collection[int]]

    def __call__(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
        return multilabel_accuracy(logits, [self.groups[t] if t >= 0 else () for t in targets])


def folder_labels(logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
    """metrics_fn: the labels of a picture are the name of its folder, joined by +, as in 409+530/17.jpg."""
    folders = [str(path).split("/")[-2] if "/" in str(path) else "" for path in image_paths]
    try:
        labels = {folder: tuple(int(word) for word in folder.split("+")) for folder in set(folders)}
    except ValueError:
        wrong = next(f for f in folders if not f.replace("+", "").isdecimal())
        raise ValueError(f"expected folders named after class numbers such as 409+530, got {wrong!r}") from None
    return multilabel_accuracy(logits, [labels[folder] for folder in folders])


def validation_number(path: str) -> int:
    """1 to 50,000, from a name such as n01440764/ILSVRC2012_val_00000293.JPEG."""
    found = _VAL_NUMBER.search(str(path).rpartition("/")[2])
    if found is None:
        raise ValueError(f"expected a picture named like ILSVRC2012_val_00000293.JPEG, got {path}")
    return int(found[1])
