"""Accuracy where a class of the dataset is a group of ImageNet classes: ObjectNet, videos, superclasses.

A group is a list of columns of the logits. Whether targets are group numbers or columns is said by each metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.metrics.accuracy import accuracy_topk, right_or_wrong
from testbed.metrics.estimate import ACCURACY, Estimate, clipped, share
from testbed.metrics.labels import COLUMNS, OWN
from testbed.metrics.softmax import COLUMNS_AT_ONCE, blocks, log_sum_exp

Groups = Sequence[Sequence[int]]
RULES = ("max", "mean_probability")


def merge(logits: np.ndarray, groups: Groups, rule: str = "max") -> np.ndarray:
    """One column per group: its highest logit, or the log of its mean probability up to a constant of the row.

    An empty group gets -inf and is never predicted.
    """
    if rule not in RULES:
        raise ValueError(f"merge: expected a rule among {', '.join(RULES)}, got {rule!r}")
    merged = np.full((len(logits), len(groups)), -np.inf, dtype=np.float32)
    members = [(place, list(columns)) for place, columns in enumerate(groups) if len(columns)]
    for rows, block in blocks(
        logits, COLUMNS_AT_ONCE
    ):  # block by block: columns of a stored file lie in all of its pages
        for place, columns in members:
            part = block[:, columns]
            if rule == "max":
                merged[rows, place] = part.max(axis=1)
            else:
                # The softmax denominator is the same for all groups of a picture, so it is left out.
                merged[rows, place] = log_sum_exp(part) - np.log(len(columns))
    return merged


def group_of_column(groups: Groups, columns: int) -> np.ndarray:
    """The group of each column; -1 for a column in no group. A column in two groups is an error."""
    group = np.full(columns, -1, dtype=np.int64)
    for place, members in enumerate(groups):
        if (group[list(members)] >= 0).any():
            raise ValueError(f"expected each class in one group, group {place} shares one with another")
        group[list(members)] = place
    return group


@dataclass(frozen=True)
class InGroup:
    """metrics_fn: top1, where the predicted column must belong to the target group. Targets are group numbers.

    Without `among_all` (ObjectNet) the prediction is among the columns of all groups. With it (ImageNet-9) it is among
    all columns, and one that belongs to no group is wrong.
    """

    groups: Groups
    among_all: bool = False
    targets_are = OWN

    def __call__(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
        known = targets >= 0
        if not known.any():
            return {}
        return {"top1": share(int((self._predicted(logits) == targets)[known].sum()), int(known.sum()))}

    def per_image(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        return {"top1": right_or_wrong(self._predicted(logits) == targets, targets)}

    def _predicted(self, logits: np.ndarray) -> np.ndarray:
        group = group_of_column(self.groups, logits.shape[1])
        if self.among_all:
            return group[logits.argmax(axis=1)]
        columns = np.flatnonzero(group >= 0)
        return group[columns[np.asarray(logits[:, columns]).argmax(axis=1)]]


@dataclass(frozen=True)
class Merged:
    """metrics_fn: accuracy among groups, each scored by its highest logit. Targets are columns.

    `weights` (name -> weight of each group) adds weighted means of the groups' accuracies, `uniform` the mean with
    equal weights. Groups without images do not count; the published uniform mean on YTBB counted five empty ones.
    """

    groups: Groups
    weights: Mapping[str, Sequence[float]] = field(default_factory=dict)
    uniform: bool = False
    targets_are = COLUMNS

    def __call__(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
        known = targets >= 0
        group = np.where(known, group_of_column(self.groups, logits.shape[1])[targets], -1)
        merged = merge(logits, self.groups)
        result = accuracy_topk(merged, group)
        if not result:
            return {}
        right = merged.argmax(axis=1) == group
        if self.uniform:
            result["top1_uniform_class_weight"] = weighted(right, group, np.ones(len(self.groups)))
        for name, weights in self.weights.items():
            result[name] = weighted(right, group, np.asarray(weights, dtype=np.float64))
        return result


@dataclass(frozen=True)
class Superclasses:
    """metrics_fn: accuracy among superclasses, scored by mean probability (LAION-C). Targets are superclass numbers."""

    groups: Groups
    targets_are = OWN

    def __call__(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
        return accuracy_topk(merge(logits, self.groups, "mean_probability"), targets)

    def per_image(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
        predicted = merge(logits, self.groups, "mean_probability").argmax(axis=1)
        return {"top1": right_or_wrong(predicted == targets, targets)}


def weighted(right: np.ndarray, group: np.ndarray, weights: np.ndarray) -> Estimate:
    """The weighted mean of the groups' accuracies, over groups with images; the interval is normal."""
    total, value, variance = 0.0, 0.0, 0.0
    for g in range(len(weights)):
        own = right[group == g]
        if len(own) and weights[g] > 0:
            total += weights[g]
            share_right = float(own.mean())
            value += weights[g] * share_right
            variance += weights[g] ** 2 * share_right * (1 - share_right) / len(own)
    n = int((group >= 0).sum())
    if total == 0:
        return Estimate(float("nan"), n=0, kind=ACCURACY)
    value, half = 100 * value / total, 1.959964 * 100 * np.sqrt(variance) / total
    return clipped(value, value - half, value + half, n, ACCURACY)
