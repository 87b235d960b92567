"""Classes of a dataset that stand for several of ImageNet's: ObjectNet's objects, animals in videos, superclasses.

A group is a list of columns of the logits. Targets count groups, or columns, as each class says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.estimate import ACCURACY, Estimate, clipped, share
from testbed.metrics.labels import COLUMNS, OWN
from testbed.metrics.softmax import log_sum_exp

Groups = Sequence[Sequence[int]]
RULES = ("max", "mean_probability")


def merge(logits: np.ndarray, groups: Groups, rule: str = "max") -> np.ndarray:
    """One column per group: the highest of its logits, or the log of its mean probability. No class, no chance."""
    if rule not in RULES:
        raise ValueError(f"merge: expected a rule among {', '.join(RULES)}, got {rule!r}")
    merged = np.full((len(logits), len(groups)), -np.inf, dtype=np.float32)
    for place, columns in enumerate(groups):
        if not len(columns):
            continue
        part = np.asarray(logits[:, list(columns)])
        if rule == "max":
            merged[:, place] = part.max(axis=1)
        else:
            # Probabilities of a picture share one denominator, so it can be left out.
            merged[:, place] = log_sum_exp(part) - np.log(len(columns))
    return merged


def group_of_column(groups: Groups, columns: int) -> np.ndarray:
    """The group each column belongs to; -1 for none. A column in two groups is refused."""
    group = np.full(columns, -1, dtype=np.int64)
    for place, members in enumerate(groups):
        if (group[list(members)] >= 0).any():
            raise ValueError(f"expected each class in one group, group {place} shares one with another")
        group[list(members)] = place
    return group


@dataclass(frozen=True)
class InGroup:
    """metrics_fn: the prediction among the columns is one of the target group's. Targets count groups.

    With `among_all` false (ObjectNet) only columns of some group can be predicted; with it true (ImageNet-9) every
    column can, and one that belongs to no group is wrong.
    """

    groups: Groups
    among_all: bool = False
    targets_are = OWN

    def __call__(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
        known = targets >= 0
        if not known.any():
            return {}
        group = group_of_column(self.groups, logits.shape[1])
        if self.among_all:
            predicted = group[logits.argmax(axis=1)]
        else:
            columns = np.flatnonzero(group >= 0)
            predicted = group[columns[np.asarray(logits[:, columns]).argmax(axis=1)]]
        return {"top1": share(int((predicted == targets)[known].sum()), int(known.sum()))}


@dataclass(frozen=True)
class Merged:
    """metrics_fn: accuracy among groups, by the highest logit of each. Targets count columns.

    `weights` adds accuracies with classes weighted: name -> weight of each group. Uniform weights are over groups
    that have images.
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
    """metrics_fn: accuracy among superclasses by their mean probability (LAION-C). Targets count superclasses."""

    groups: Groups
    targets_are = OWN

    def __call__(self, logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
        return accuracy_topk(merge(logits, self.groups, "mean_probability"), targets)


def weighted(right: np.ndarray, group: np.ndarray, weights: np.ndarray) -> Estimate:
    """Accuracy per group, averaged with weights over the groups that have images; normal interval."""
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
