"""Accuracy for pictures that may have several labels, or none."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.estimate import Estimate, share
from testbed.metrics.labels import COLUMNS, OWN

_VAL_NUMBER = re.compile(r"ILSVRC2012_val_0*(\d+)[._]")
_CLASS_NUMBERS = re.compile(r"\d+(\+\d+)*")


def multilabel_accuracy(logits: np.ndarray, labels: Sequence[Collection[int]]) -> dict[str, Estimate]:
    """top1, where any of a picture's labels is right. Pictures without labels are left out."""
    if len(labels) != len(logits):
        raise ValueError(f"multilabel_accuracy: expected labels of {len(logits)} pictures, got {len(labels)}")
    predicted = logits.argmax(axis=1)
    right = [int(p) in own for p, own in zip(predicted, labels, strict=True) if len(own)]
    return {"top1": share(sum(right), len(right))} if right else {}


@dataclass(frozen=True)
class ValidationLabels:
    """metrics_fn: top1 with other labels of ImageNet's validation pictures, listed in the order of file numbers.

    `labels` is a function, so that the list of 50,000 is read only when it is needed.
    """

    labels: Callable[[], Sequence[Collection[int]]]

    def __call__(self, logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        listed = self.labels()
        return multilabel_accuracy(logits, [listed[validation_number(path) - 1] for path in image_paths])


@dataclass(frozen=True)
class SeveralLabels:
    """metrics_fn: accuracy_topk, where any label of a picture is right.

    `labels()` maps the path of each picture with several labels to all of them; other pictures have only their target.
    """

    labels: Callable[[], Mapping[str, Sequence[int]]]
    targets_are = COLUMNS

    def __call__(self, logits: np.ndarray, targets: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        several, best = self.labels(), targets.copy()
        for row, path in enumerate(image_paths):
            if path in several:
                # A picture is right at rank k if its best label is, so the best label takes the place of the target.
                best[row] = _highest(logits[row], sorted(several[path]), targets[row], path)
        return accuracy_topk(logits, best)


def _highest(logits: np.ndarray, labels: Sequence[int], target: int, path: str) -> int:
    """The label with the highest logit; of equal logits the lower label."""
    if target not in labels:
        raise ValueError(f"expected {target} among the labels of {path}, got {labels}: the list has changed")
    if labels[-1] >= len(logits):
        raise ValueError(f"expected labels below {len(logits)}, the number of classes, got {labels[-1]} of {path}")
    return labels[int(logits[labels].argmax())]


@dataclass(frozen=True)
class AnyOf:
    """metrics_fn: top1, where any column of the target's group is right (ImageNet-D, PUG). Targets are group numbers.

    The prediction is among all columns, and a column may belong to several groups.
    """

    groups: Sequence[Collection[int]]
    targets_are = OWN

    def __call__(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
        return multilabel_accuracy(logits, [self.groups[t] if t >= 0 else () for t in targets])


def folder_labels(logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
    """metrics_fn: top1, where a picture's labels are in the name of its folder, joined by +, as in 409+530/17.jpg."""
    folders = [str(path).split("/")[-2] if "/" in str(path) else "" for path in image_paths]
    wrong = next((folder for folder in folders if not _CLASS_NUMBERS.fullmatch(folder)), None)
    if wrong is not None:
        raise ValueError(f"expected folders named after class numbers such as 409+530, got {wrong!r}")
    labels = {folder: tuple(int(word) for word in folder.split("+")) for folder in set(folders)}
    return multilabel_accuracy(logits, [labels[folder] for folder in folders])


def validation_number(path: str) -> int:
    """The number, 1 to 50,000, in a name like n01440764/ILSVRC2012_val_00000293.JPEG or ..._00000293_n01440764.JPEG."""
    number = _VAL_NUMBER.search(str(path).rpartition("/")[2])
    if number is None:
        raise ValueError(f"expected a picture named like ILSVRC2012_val_00000293.JPEG, got {path}")
    return int(number[1])
