"""What looks wrong: with the images before they are run, with a result after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from testbed.data.audit import Findings, look_over, some_of
from testbed.data.samples import Samples
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.metrics.estimate import Estimate
from testbed.metrics.labels import COLUMNS
from testbed.options import RunOptions

_LEAST_IMAGES = 50
_LEAST_CLASSES = 10
_MANY_CLASSES = 100  # from here on three times chance is still nothing
_LEAST_PER_CLASS = 4  # images, for a look at other orders of the classes
_CLEARLY = 3  # times chance: what another order of the classes must reach to be told
_HARD_TAGS = {"corruption", "adversarial", "shift", "ood"}  # where a working model may fail altogether


def look_over_setting(
    registry: Registry, name: str, samples: Samples, rows: Sequence[int] | np.ndarray | None = None
) -> Findings:
    """Names and classes of a setting's images, or counts of those in `rows` alone; no file is opened."""
    setting = registry.runnable(name)
    part = setting.idx_subsample_list is not None
    if part and rows is None:
        rows = setting.rows(samples).indices
    findings = look_over(samples, expected_classes(registry, name), rows, part)
    ids = samples.ids if rows is None else [samples.ids[i] for i in rows]
    absent = [] if part else absent_categories(setting.metrics_fn, ids)
    return replace(findings, problems=(*findings.problems, *absent), unusable=unusable_names(setting.metrics_fn, ids))


def unusable_names(metrics_fn: object, image_paths: Sequence[str]) -> str:
    """Why a metric that reads the names of pictures cannot be computed from these; empty where it can.

    Such a metric has a method `misnamed`, and `names` to say what it expects. It is asked before the first forward
    pass: an error of the metric comes only at the end of the run.
    """
    misnamed = metrics_fn.misnamed(image_paths) if hasattr(metrics_fn, "misnamed") else []
    if not misnamed:
        return ""
    expected = getattr(metrics_fn, "names", "other names")
    return f"expected {expected}, got {len(misnamed)} of {len(image_paths)} others: {some_of(misnamed)}"


def absent_categories(metrics_fn: object, image_paths: Sequence[str]) -> list[str]:
    """A warning that names the categories of the metric that have no picture."""
    absent = metrics_fn.absent(image_paths) if hasattr(metrics_fn, "absent") else []
    return [f"no picture of {some_of(absent)}"] if absent else []


def expected_classes(registry: Registry, name: str) -> Sequence[int] | None:
    """The classes that must each have images, as column numbers. An empty list: any classes may be missing. None: all
    classes of the dataset must be there.

    A setting without a declared size promises nothing. A setting has only the classes of one that reads its logits and
    takes all of its images (imagenet-a, of imagenet-a.full1000); one that takes some of them says nothing about the
    others.
    """
    setting = registry.runnable(name)
    if setting.size is None:
        return ()
    if setting.class_sublist is not None:
        return setting.class_sublist if _labels_are_columns(setting) else ()
    for child in registry.eval_settings.entries.values():
        if child.logits_from == name and child.class_sublist is not None and child.size == setting.size:
            return sorted(child.class_sublist)
    return None


def _labels_are_columns(setting: EvalSetting) -> bool:
    return setting.targets_are == COLUMNS


def near_chance(
    setting: EvalSetting,
    labels: np.ndarray,
    columns: int,
    metrics: Mapping[str, Estimate | float],
    predictions: np.ndarray | None = None,
) -> str:
    """A warning where a model does no better than guessing on pictures that it should know, else nothing.

    Said only of plain settings: not of perturbed, attacked or corrupted pictures, of a list of classes, or of a set
    that has less than half of the model's classes, as ImageNet-A, which was chosen for models to fail on. Where there
    are `predictions`, they tell whether the classes are in another order than the labels count them.
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
    share = None if predictions is None else _right_in_another_order(labels, predictions, columns)
    return f"top1 is {top1.value:.2g} %, guessing among {columns} classes gives {chance:.2g} %: " + (
        "the classes are probably in another order than the labels, or the weights are not loaded"
        if share is None
        else f"the classes are in another order than the labels, {share:.0f} % are right in the best other order"
        if share > _CLEARLY * chance
        else "no other order of the classes does better, so the weights are not loaded, or the pictures are unlike "
        "those that the model was trained on"
    )


def _right_in_another_order(labels: np.ndarray, predictions: np.ndarray, columns: int) -> float | None:
    """Percent right once classes are renumbered one to one as fits best; None for too few images to tell.

    The order is chosen on one half of each class and judged on the other: what fits by accident does not count.
    """
    from scipy.optimize import linear_sum_assignment

    labelled = (labels >= 0) & (labels < columns)
    labels, predictions = labels[labelled], predictions[labelled]
    if len(labels) < _LEAST_PER_CLASS * len(np.unique(labels)):
        return None
    by_class = np.argsort(labels, kind="stable")
    chosen_on, judged_on = by_class[::2], by_class[1::2]
    counts = np.zeros((columns, columns), dtype=np.int64)
    np.add.at(counts, (predictions[chosen_on], labels[chosen_on]), 1)
    _, renumbered = linear_sum_assignment(counts, maximize=True)
    return 100 * float((renumbered[predictions[judged_on]] == labels[judged_on]).mean())


def refused_options(model: Model, options: RunOptions) -> str:
    """Why a model cannot be run with these options; empty where it can."""
    if options.checkpoint is not None and not model.own_weights:
        return "--checkpoint needs a network to load the file into; this model has the weights that its name says"
    asked = {"--compile": options.compile, "--record": options.record, "--amp": options.amp}
    flags = [flag for flag, given in asked.items() if given]
    return f"{', '.join(flags)}: {model.opaque}" if model.opaque and flags else ""


# ---- attacks that do not happen --------------------------------------------------------------------------


def doubtful_attack(model: Model, setting: EvalSetting) -> str:
    """A warning where a setting declares an attack and the testbed does not carry it out, else nothing."""
    if not setting.adversarial_attack:
        return ""
    if "adversarial_attack" in model.classify_arguments:
        return (
            "the model's classify takes adversarial_attack, so the setting's own attack is switched off for it: if the "
            "function ignores the argument, images are clean"
        )
    if setting.perturbation_fn_gpu is None and setting.perturbation_fn_cpu is None:
        return "adversarial_attack is declared without a perturbation function that carries it out: images are clean"
    return ""


def counterparts(registry: Registry, name: str) -> list[str]:
    """For an attacked setting those with the same images as they are; for a clean one the attacked ones."""
    setting = registry.runnable(name)
    attacked = bool(setting.adversarial_attack)
    if not attacked and _perturbs(setting):
        return []
    return [
        other.name
        for other in registry.eval_settings.entries.values()
        if other.dataset == setting.dataset
        and bool(other.adversarial_attack) != attacked
        and (attacked is False or not _perturbs(other))
        and (other.choice, other.transform, other.resize) == (setting.choice, setting.transform, setting.resize)
    ]


def _perturbs(setting: EvalSetting) -> bool:
    return setting.perturbation_fn_cpu is not None or setting.perturbation_fn_gpu is not None


def attack_without_effect(metrics: Mapping[str, Estimate | float], stored: Mapping[str, float]) -> str:
    """A warning where top1 is the same with and without an attack. `stored`: top1 on each counterpart."""
    top1 = metrics.get("top1")
    value = top1.value if isinstance(top1, Estimate) else top1
    same = [name for name, other in stored.items() if value == other]
    if not same or not value:  # nothing is left to attack in a model that is always wrong
        return ""
    return f"top1 is the same as on {some_of(same)}, with and without an attack: it probably did not happen"
