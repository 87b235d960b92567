"""Settings that look wrong are warned of, before the run by their folders and after it by their accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from testbed import EvalSetting, StandardDataset
from testbed.engine.checks import expected_classes, look_over_setting, near_chance
from testbed.entries.registry import load_registry
from testbed.metrics.class_groups import InGroup
from testbed.metrics.classification import classification
from testbed.metrics.estimate import share
from testbed.perturb.colour import greyscale

ALL = np.arange(1000)


def setting(**what):
    what = {"metrics_fn": classification, **what}
    return EvalSetting(name="x", dataset=StandardDataset(name="x"), **what)


@pytest.mark.parametrize(
    ("hits", "n", "columns", "alarmed"),
    [
        (50, 50_000, 1000, True),  # exactly chance
        (0, 50_000, 1000, True),
        (149, 50_000, 1000, True),  # surely above chance, and still nothing
        (150, 50_000, 1000, False),
        (12_000, 50_000, 1000, False),
        (1, 50, 1000, True),
        (5, 50, 1000, False),
        (0, 49, 1000, False),  # too few to tell
        (1_000, 10_000, 10, True),
        (1_200, 10_000, 10, False),  # with few classes a weak model comes near chance
        (900, 10_000, 10, True),
        (10, 90, 9, False),
    ],
)
def test_accuracy_near_chance_raises_an_alarm(hits, n, columns, alarmed):
    told = near_chance(setting(), np.arange(columns), columns, {"top1": share(hits, n)})
    assert bool(told) == alarmed
    if alarmed:
        assert f"guessing among {columns} classes gives {100 / columns:g} %" in told


@pytest.mark.parametrize(
    "what",
    [
        {"perturbation_fn_cpu": greyscale},
        {"perturbation_fn_gpu": lambda images: images},
        {"adversarial_attack": {"name": "pgd"}},
        {"class_sublist": (1, 2, 3)},
        {"tags": ["corruption"]},
        {"tags": ["adversarial"]},
        {"metrics_fn": InGroup([[0], [1]])},
    ],
    ids=lambda what: next(iter(what)),
)
def test_settings_where_a_good_model_may_fail_raise_none(what):
    assert near_chance(setting(), ALL, 1000, {"top1": share(5, 5000)})
    assert near_chance(setting(**what), ALL, 1000, {"top1": share(5, 5000)}) == ""


def test_sets_of_a_few_of_the_classes_raise_none():
    # ResNet-50 has no image of ImageNet-A right among all 1000 classes: it was chosen so.
    assert near_chance(setting(), ALL[:200], 1000, {"top1": share(0, 7500)}) == ""
    assert near_chance(setting(), ALL[::2], 1000, {"top1": share(0, 500)})
    assert near_chance(setting(), ALL, 1000, {"shape_bias": share(0, 500)}) == ""


def test_expected_classes_are_those_a_setting_promises():
    registry = load_registry(parts=["eval_settings"])
    assert expected_classes(registry, "val") is None
    assert expected_classes(registry, "imagenet-c.fog.1_in-memory") is None
    assert expected_classes(registry, "imagenet-samples") == ()  # tells no size
    assert expected_classes(registry, "objectnet-1.0") == ()  # its folders have numbers of their own
    subset = registry.eval_setting("imagenet-a").class_sublist
    assert len(subset) == 200
    assert expected_classes(registry, "imagenet-a") == subset
    assert expected_classes(registry, "imagenet-a.full1000") == sorted(subset)


def test_images_of_a_setting_are_counted_and_all_classes_of_its_data_expected():
    registry = load_registry(parts=["eval_settings"])
    samples = registry.eval_setting("digits").dataset.open([])
    found = look_over_setting(registry, "rows:0-5@digits", samples, range(5))
    assert (found.images, sum(found.per_class.values()), found.problems) == (5, 5, ())
    assert len(look_over_setting(registry, "digits", samples).per_class) == 10
