"""What looks wrong: with the images before they are run, with a result after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from testbed.data.audit import Findings, look_over
from testbed.data.samples import Samples
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.metrics.estimate import Estimate
from testbed.metrics.labels import COLUMNS

_LEAST_IMAGES = 50
_LEAST_CLASSES = 10
_MANY_CLASSES = 100  # from here on three times chance is still nothing
_HARD_TAGS = {"corruption", "adversarial", "shift", "ood"}  # where a working model may fail altogether


def look_over_setting(
    registry: Registry, name: str, samples: Samples, rows: Sequence[int] | np.ndarray | None = None
) -> Findings:
    """Names and classes of a setting's images, or counts of those in `rows` alone; no file is opened."""
    return look_over(samples, expected_classes(registry, name), rows)


def expected_classes(registry: Registry, name: str) -> Sequence[int] | None:
    """The classes that must each have images, as column numbers. An empty list: any classes may be missing. None: all
    classes of the dataset must be there.

    A setting without a declared size promises nothing. A setting that others read their logits from
    (imagenet-a.full1000) has the classes that these ask for.
    """
    setting = registry.runnable(name)
    if setting.size is None:
        return ()
    if setting.class_sublist is not None:
        return setting.class_sublist if _labels_are_columns(setting) else ()
    children = [s.class_sublist for s in registry.eval_settings.entries.values() if s.logits_from == name]
    listed = [c for c in children if c is not None]
    if listed and len(listed) == len(children):
        return sorted({label for sublist in listed for label in sublist})
    return None


def _labels_are_columns(setting: EvalSetting) -> bool:
    return setting.targets_are == COLUMNS


def near_chance(setting: EvalSetting, labels: np.ndarray, columns: int, metrics: Mapping[str, Estimate | float]) -> str:
    """A warning where a model does no better than guessing on pictures that it should know, else nothing.

    Nearly always classes are then in another order than the labels count them. Said only of plain settings: not of
    perturbed, attacked or corrupted pictures, of a list of classes, or of a set that has less than half of the
    model's classes, as ImageNet-A, which was chosen for models to fail on.
    """
    plain = (
        _labels_are_columns(setting)
        and setting.perturbation_fn_cpu is None
        and setting.perturbation_fn_gpu is None
        and setting.adversarial_attack is None
        and setting.class_sublist is None
        and not _HARD_TAGS & set(setting.tags)
    )
    top1 = metrics.get("top1")
    if not plain or not isinstance(top1, Estimate) or top1.ci_low is None:
        return ""
    present = len(np.unique(labels[labels >= 0]))
    if (top1.n or 0) < _LEAST_IMAGES or columns < _LEAST_CLASSES or present < columns / 2:
        return ""
    chance = 100 / columns
    if top1.ci_low > chance and not (columns >= _MANY_CLASSES and top1.value * columns < 300):
        return ""
    return (
        f"top1 is {top1.value:.2g} %, guessing among {columns} classes gives {chance:.2g} %: "
        "the classes are probably in another order than the labels, or the weights are not loaded"
    )
