from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from testbed import ArrayDataset, EvalSetting, Model, StandardNormalization, StandardTransform
from testbed.entries.functions import KNOWN_ARGUMENTS, argument_names, call_by_name
from testbed.errors import EntryError

DATA = ArrayDataset(path="somewhere")


def model(**changes):
    return Model(**{"name": "m", "transform": None, "classifier_loader": object, "eval_batch_size": 8, **changes})


def setting(**changes):
    return EvalSetting(**{"name": "s", "dataset": DATA, **changes})


def refusal(make, *arguments, **given):
    with pytest.raises(EntryError) as error:
        make(*arguments, **given)
    return str(error.value)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": ""}, "model: name must be a non-empty string, got ''"),
        ({"name": None}, "model: name must be a non-empty string, got None"),
        ({"name": " m"}, "model ' m': a name has no outer spaces and none of * ? [ ]"),
        ({"name": "m*"}, "model 'm*': a name has no outer spaces and none of * ? [ ]"),
        ({"transform": 224}, "model 'm': transform must be callable or None, got 224"),
        (
            {"classifier_loader": None},
            "model 'm': classifier_loader must be a function that returns the classifier, got NoneType",
        ),
        ({"eval_batch_size": 0}, "model 'm': eval_batch_size must be at least 1, got 0"),
        ({"eval_batch_size": 2.5}, "model 'm': eval_batch_size must be at least 1, got 2.5"),
        ({"eval_batch_size": True}, "model 'm': eval_batch_size must be at least 1, got True"),
        ({"adversarial_batch_size": -3}, "model 'm': adversarial_batch_size must be at least 1, got -3"),
        (
            {"normalization": (0.5, 0.5)},
            "model 'm': normalization must be a StandardNormalization, a function or None, got (0.5, 0.5)",
        ),
        ({"classify": "argmax"}, "model 'm': classify must be a function, got 'argmax'"),
        (
            {"classify": lambda images, model, flips: 0},
            "model 'm': classify takes 'flips', which is not passed to it; it may take "
            + ", ".join(KNOWN_ARGUMENTS["classify"]),
        ),
        ({"classify": lambda images: 0}, "model 'm': classify must take images and model, it takes ['images']"),
        ({"classify": lambda model, *images: 0}, "model 'm': classify must take images and model, it takes ['model']"),
        ({"tags": "cnn"}, "model 'm': tags must be a list of words, got the string 'cnn'"),
    ],
)
def test_wrong_model_is_refused_when_made(wrong, message):
    assert refusal(model, **wrong) == message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "a\tb"}, "eval setting 'a\\tb': expected printable text in a name, got the character U+0009"),
        ({"dataset": None}, "eval setting 's': needs a dataset, or another setting as logits_from or images_from"),
        (
            {"dataset": "val"},
            "eval setting 's': dataset must be a StandardDataset, ArrayDataset or ManifestDataset, got str",
        ),
        ({"size": 0}, "eval setting 's': size must be at least 1, got 0"),
        ({"version": 0}, "eval setting 's': version must be at least 1, got 0"),
        ({"transform": 3}, "eval setting 's': transform must be callable, got 3"),
        ({"class_sublist": []}, "eval setting 's': class_sublist must be a non-empty list of indices from 0 on"),
        ({"class_sublist": [3, -1]}, "eval setting 's': class_sublist must be a non-empty list of indices from 0 on"),
        ({"class_sublist": [1, 2, 1]}, "eval setting 's': class_sublist names a class twice"),
        (
            {"idx_subsample_list": np.array([], dtype=int)},
            "eval setting 's': idx_subsample_list must be a non-empty list of indices from 0 on",
        ),
        (
            {"perturbation_fn_cpu": lambda image, severity: image},
            "eval setting 's': perturbation_fn_cpu takes 'severity', which is not passed to it; it may take "
            + ", ".join(KNOWN_ARGUMENTS["perturbation_fn_cpu"]),
        ),
        (
            {"perturbation_fn_gpu": lambda image: image},
            "eval setting 's': perturbation_fn_gpu takes 'image', which is not passed to it; it may take "
            + ", ".join(KNOWN_ARGUMENTS["perturbation_fn_gpu"]),
        ),
        (
            {"metrics_fn": lambda predictions, targets: {}},
            "eval setting 's': metrics_fn takes 'predictions', which is not passed to it; it may take "
            + ", ".join(KNOWN_ARGUMENTS["metrics_fn"]),
        ),
        (
            {"probe": lambda images, layer: {}},
            "eval setting 's': probe takes 'layer', which is not passed to it; it may take "
            + ", ".join(KNOWN_ARGUMENTS["probe"]),
        ),
        ({"metrics_fn": {"top1": 1}}, "eval setting 's': metrics_fn must be a function, got {'top1': 1}"),
        (
            {"dataset": None, "logits_from": "val", "perturbation_fn_cpu": lambda image: image},
            "eval setting 's': with logits_from it reads stored logits and cannot perturb images",
        ),
        ({"logits_from": "s"}, "eval setting 's': cannot be derived from itself"),
        ({"tags": "corruption"}, "eval setting 's': tags must be a list of words, got the string 'corruption'"),
    ],
)
def test_wrong_eval_setting_is_refused_when_made(wrong, message):
    assert refusal(setting, **wrong) == message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (([0.5] * 2, [0.5] * 3), "expected three means and three stds, got (0.5, 0.5) and (0.5, 0.5, 0.5)"),
        (([0.5] * 3, [0.5, 0, 0.5]), "std must be above 0, got (0.5, 0.0, 0.5)"),
        (([0.5] * 3, [0.5] * 3, "rgb"), "input_space must be RGB or BGR, got 'rgb'"),
    ],
)
def test_wrong_normalization_is_refused_when_made(wrong, message):
    assert refusal(StandardNormalization, *wrong) == f"StandardNormalization: {message}"


# ---- arguments by name ----------------------------------------------------------------------------------


class Method:
    def __call__(self, images, rng):
        return images

    def bound(self, images, targets=None):
        return images


def with_severity(image, rng, severity):
    return (image, severity)


@pytest.mark.parametrize(
    ("kind", "function", "taken"),
    [
        ("perturbation_fn_cpu", lambda image: 0, {"image"}),
        ("perturbation_fn_cpu", lambda image, rng: 0, {"image", "rng"}),
        ("perturbation_fn_cpu", lambda image, *, rng: 0, {"image", "rng"}),
        ("perturbation_fn_cpu", lambda image, severity=3, rng=None: 0, {"image", "rng"}),
        ("perturbation_fn_cpu", partial(with_severity, severity=3), {"image", "rng"}),
        ("perturbation_fn_cpu", lambda **everything: 0, set(KNOWN_ARGUMENTS["perturbation_fn_cpu"])),
        ("perturbation_fn_cpu", lambda image, *more: 0, {"image"}),
        ("perturbation_fn_gpu", Method(), {"images", "rng"}),
        ("perturbation_fn_gpu", Method().bound, {"images", "targets"}),
        ("metrics_fn", lambda logits, **rest: 0, set(KNOWN_ARGUMENTS["metrics_fn"])),
        ("metrics_fn", lambda: 0, set()),
        ("classify", lambda images, model, class_sublist: 0, {"images", "model", "class_sublist"}),
    ],
)
def test_arguments_are_known_by_name(kind, function, taken):
    assert argument_names(function, kind, "owner") == taken


def test_call_passes_only_what_is_taken():
    function = partial(with_severity, severity=3)
    names = argument_names(function, "perturbation_fn_cpu", "owner")
    assert call_by_name(function, names, image="picture", rng="random", other="not passed") == ("picture", 3)
    assert call_by_name(lambda **all: all, frozenset({"a"}), a=1, b=2) == {"a": 1}


def test_function_without_signature_is_told_to_be_wrapped():
    message = refusal(argument_names, max, "metrics_fn", "owner")
    assert message == "owner: metrics_fn has no readable signature; wrap it in a function"


# ---- what entries become --------------------------------------------------------------------------------


def test_lists_become_plain_tuples():
    made = setting(class_sublist=np.array([3, 1]), idx_subsample_list=[2, 2], tags=["a", "b"])
    assert made.class_sublist == (3, 1) and all(type(c) is int for c in made.class_sublist)
    assert made.idx_subsample_list == (2, 2)  # with replacement
    assert made.tags == ("a", "b")
    assert StandardNormalization([0, 0, 0], [1, 1, 1]) == StandardNormalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@pytest.mark.parametrize(
    ("own", "attack", "expected"),
    [(None, None, 64), (None, {"eps": 1}, 8), (3, {"eps": 1}, 3), (3, None, 64)],
)
def test_attacks_run_on_smaller_batches(own, attack, expected):
    made = model(eval_batch_size=64, adversarial_batch_size=own)
    assert made.batch_size_for(setting(adversarial_attack=attack)) == expected


def test_attack_batch_is_never_empty():
    assert model(eval_batch_size=4).batch_size_for(setting(adversarial_attack={"eps": 1})) == 1


def test_derived_setting_inherits_images_and_noise():
    def noisy(image, rng):
        return image

    parent = setting(name="val-noisy", perturbation_fn_cpu=noisy, transform=StandardTransform())
    child = EvalSetting(name="val-noisy-animals", logits_from="val-noisy", class_sublist=[1, 2], size=7)
    direct = child.over(parent)
    assert (direct.dataset, direct.perturbation_fn_cpu, direct.transform) == (DATA, noisy, StandardTransform())
    assert (direct.name, direct.class_sublist, direct.size) == ("val-noisy-animals", (1, 2), 7)
    assert direct.logits_from is None
    assert direct.noise_key == child.noise_key == parent.noise_key == "val-noisy"
    grandchild = EvalSetting(name="cats", logits_from="val-noisy-animals").over(direct)
    assert grandchild.noise_key == "val-noisy"
    assert grandchild.arguments["perturbation_fn_cpu"] == {"image", "rng"}


# ---- words that registry files were written with ----------------------------------------------------------


def test_the_older_word_means_whose_logits_or_with_a_probe_whose_images():
    assert EvalSetting(name="a", derived_from="val").logits_from == "val"
    probing = EvalSetting(name="b", derived_from="val", probe=lambda images: {})
    assert (probing.logits_from, probing.images_from) == (None, "val")
    assert refusal(EvalSetting, name="c", derived_from="val", logits_from="other").startswith(
        "eval setting 'c': derived_from and logits_from say the same thing"
    )


def test_public_addresses_stand_wherever_their_modules_live():
    import importlib
    import subprocess
    import sys

    for address, name in (
        ("testbed.weights", "with_weights"),
        ("testbed.zero_shot", "zero_shot"),
        ("testbed.classify", "smoothed"),
        ("testbed.perturb.corruptions", "corruption"),
        ("testbed.metrics.classification", "classification"),
    ):
        assert callable(getattr(importlib.import_module(address), name))
    code = "import sys, testbed.weights, testbed.classify; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"logits_from": "a", "images_from": "b"}, "give logits_from or images_from, not both"),
        (
            {"logits_from": "a", "probe": lambda images: {}},
            "a probe looks at the model, so it needs images_from instead of logits_from",
        ),
    ],
)
def test_whose_logits_and_whose_images_are_two_things(wrong, message):
    assert refusal(EvalSetting, name="s", **wrong) == f"eval setting 's': {message}"
