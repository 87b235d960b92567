"""Shared by the files of ImageNet settings: the validation set, class lists, the 10 % subset, and `add`."""

from __future__ import annotations

from functools import cache
from typing import Any

from testbed import EvalSetting, StandardDataset, registry
from testbed.metrics.classification import classification

PUBLISHED = "imagenet-testbed"  # tag of the settings that carry a name of the ImageNet Testbed (Taori et al. 2020)
VAL_SIZE = 50_000
SEVERITIES = range(1, 6)

VAL = StandardDataset(
    name="val",
    also=("imagenet/val", "ILSVRC2012/val", "ILSVRC2012_img_val"),
    labels="imagenet",
    source="register at image-net.org, ILSVRC2012 validation images: ILSVRC2012_img_val.tar as it is, or wnid folders",
    order_matters=True,
)


@cache
def class_list(name: str) -> tuple[int, ...]:
    return tuple(registry.metadata(__file__, "imagenet_subsets.json")[name])


@cache
def ten_percent() -> tuple[int, ...]:
    """The 10 % subset of the ImageNet Testbed: five images per class, drawn with replacement, 4799 distinct ones."""
    return tuple(registry.metadata(__file__, "imagenet_10percent.json"))


def add(name: str, *tags: str, **what: Any) -> None:
    """Add a setting. Unless it names another metrics_fn, it reports accuracy, NLL, Brier score and ECE."""
    what = {"metrics_fn": classification, **what}
    registry.add_eval_setting(EvalSetting(name=name, tags=("imagenet", *tags), **what))


def add_with_tenth(name: str, *tags: str, **what: Any) -> None:
    """Add a setting on all validation images, and its child on a tenth of them, which reads the same logits.

    In the ImageNet Testbed the child was a run of its own. Here noise is seeded per image, so the logits are the same
    for perturbed images too.
    """
    add(name, *tags, size=VAL_SIZE, **what)
    # Of the parent's version: where a tenth is run alone it has the parent's noise.
    version = what.get("version", 1)
    child = f"{name}_10percent"
    add(
        child,
        *tags,
        "10percent",
        logits_from=name,
        parent_eval_setting=name,
        idx_subsample_list=ten_percent(),
        size=5_000,
        version=version,
    )
