"""Settings that look wrong are warned of, before the run by their folders and after it by their accuracy."""

from __future__ import annotations

import numpy as np
import pytest

from shared_data import shared_data
from testbed import EvalSetting, StandardDataset
from testbed.engine.checks import expected_classes, look_over_setting, near_chance
from testbed.engine.plan import make_plan
from testbed.entries.registry import load_registry
from testbed.errors import DataError
from testbed.metrics.categories16 import NAMES
from testbed.metrics.class_groups import InGroup
from testbed.metrics.classification import classification
from testbed.metrics.estimate import share
from testbed.options import RunOptions
from testbed.perturb.colour import greyscale
from testbed.store.opening import open_store
from testbed.studies.people.cue_conflict import CueConflictEvaluator

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


def test_classes_in_another_order_are_told_from_pictures_that_say_nothing():
    labels = np.repeat(np.arange(10), 20)
    rng, nothing = np.random.default_rng(0), {"top1": share(15, 200)}
    mistaken = (labels + 1) % 10
    assert "in another order than the labels, 100 % are right" in near_chance(setting(), labels, 10, nothing, mistaken)
    for guessed in (rng.integers(0, 10, 200), np.full(200, 6)):  # noise that hides the picture; one class for all
        told = near_chance(setting(), labels, 10, nothing, guessed)
        assert "no other order of the classes does better" in told
        assert "unlike those that the model was trained on" in told
    # Two images of a class cannot tell.
    assert "probably in another order" in near_chance(
        setting(), labels[::10], 10, {"top1": share(5, 60)}, mistaken[::10]
    )


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


# ---- parts of a set, and sets that others are taken from ---------------------------------------------------


def test_classes_of_a_set_are_not_those_of_a_setting_that_takes_some_of_its_images():
    registry = load_registry(parts=["eval_settings"])
    for name in ("imagenetv2-matched-frequency-format-val", "digits"):
        assert any(s.logits_from == name and s.class_sublist for s in registry.eval_settings.entries.values())
        assert expected_classes(registry, name) is None


def test_audit_of_imagenetv2_finds_nothing_missing_where_all_1000_classes_are(image_folder):
    registry = load_registry(parts=["eval_settings"])
    samples = StandardDataset(path=image_folder([f"{label}/0.png" for label in range(1000)])).open([])
    assert look_over_setting(registry, "imagenetv2-matched-frequency-format-val", samples).problems == ()
    some = StandardDataset(path=image_folder([f"{label}/0.png" for label in (*range(880), 999)], "some")).open([])
    (problem,) = look_over_setting(registry, "imagenetv2-matched-frequency-format-val", some).problems
    assert problem.startswith("119 of 1000 classes have no image: ")


def test_classes_that_rows_leave_out_are_counted_in_these_rows_and_no_fault_of_the_data():
    registry = load_registry(parts=["eval_settings"])
    samples = registry.eval_setting("imagenet-samples").dataset.open([shared_data("imagenet-samples").parent])
    assert look_over_setting(registry, "imagenet-samples", samples).notes == ()
    found = look_over_setting(registry, "rows:0-150@imagenet-samples", samples)
    assert found.problems == ()
    # One photograph of each even class: 150 rows are 150 of the 1000 classes.
    assert [note.split(":")[0] for note in found.notes] == ["850 of 1000 classes have no image"]


# ---- names that a metric reads -----------------------------------------------------------------------------


def stimuli(image_folder, names):
    return StandardDataset(path=image_folder(names), labels="sorted").open([])


def test_published_cue_conflict_stimuli_have_the_names_that_are_expected():
    registry = load_registry(parts=["eval_settings"])
    samples = registry.eval_setting("cue-conflict").dataset.open([shared_data("cue-conflict").parent])
    found = look_over_setting(registry, "cue-conflict", samples)
    assert (found.images, found.problems, found.unusable) == (1280, (), "")


@pytest.mark.parametrize(
    "wrong",
    [
        "aeroplane/airplane1-bicycle2.png",  # no category
        "cat/kitten.png",
        "cat/cat7-unicorn1.png",
        "cat/cat7_elephant1.png",
        "dog/cat7-elephant1.png",  # two shapes: the folder's and the name's
    ],
)
def test_misnamed_cue_conflict_stimulus_is_told_before_any_forward_pass(image_folder, wrong):
    registry = load_registry(parts=["eval_settings"])
    good = [f"{name}/{name}1-{name}2.png" for name in NAMES if name != "oven"]
    found = look_over_setting(registry, "cue-conflict", stimuli(image_folder, [*good, wrong]))
    assert found.problems == ("no picture of oven",)
    assert found.unusable == (
        "expected stimuli named SHAPE7-TEXTURE1.png in a folder SHAPE, both among the 16 categories, "
        f"got 1 of 16 others: {wrong}"
    )


def test_misnamed_stimuli_are_refused_by_the_plan_and_by_the_call_for_one_model(image_folder, tmp_path):
    folder = image_folder([f"{name}/{i}.png" for name in ("cat", "dog") for i in range(3)], root="data/cue-conflict")

    def never(images):
        raise AssertionError("a picture was shown to the model")

    with pytest.raises(DataError, match=r"got 6 of 6 others: cat/0.png, cat/1.png, cat/2.png, dog/0.png and 2 more"):
        CueConflictEvaluator(never, StandardProcessor(), folder).evaluate(verbose=False)
    registry = load_registry()
    store = open_store(str(tmp_path / "results.db"), create=True)
    plan = make_plan(registry, store, ["resnet50"], ["cue-conflict"], RunOptions(data_roots=(str(folder.parent),)))
    (pair,) = plan.pairs
    assert pair.action == "fail"
    assert pair.error.startswith("'cue-conflict': expected stimuli named SHAPE7-TEXTURE1.png in a folder SHAPE")


class StandardProcessor:
    """Mean, std and size as a Hugging Face image processor tells them."""

    def __init__(self):
        self.image_mean, self.image_std = [0.5] * 3, [0.5] * 3
        self.size = {"height": 224, "width": 224}
