"""`under:WHAT@SETTING`: what it stands for, which pictures a model is shown, what is computed of a whole group."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import stored_results
import tiny
from stored_results import completed, stored_outputs
from testbed.commands import database
from testbed.entries.registry import Registry, default_folder, load_registry
from testbed.errors import EntryError, UnknownName
from testbed.metrics.estimate import ACCURACY, Estimate
from testbed.perturb.corruptions import CORRUPTIONS, corruption


@pytest.fixture(scope="module")
def registry():
    entries = Registry()
    entries.load_folder(tiny.REGISTRY)
    return entries


@pytest.fixture(scope="module")
def everything():
    return load_registry()


# ---- what it stands for ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "count", "first", "last"),
    [
        ("fog.3", 1, "fog.3", "fog.3"),
        ("fog", 5, "fog.1", "fog.5"),
        ("imagenet-c", 19 * 5, "gaussian_noise.1", "saturate.5"),
        ("imagenet-c-bar", 10 * 5, "blue_noise_sample.1", "sparkles.5"),
        ("*_noise.2", 7, "gaussian_noise.2", "plasma_noise.2"),  # four of ImageNet-C, three of -C-bar
        ("pgd", 4, "pgd.l2.eps0.1", "pgd.linf.eps2"),
        ("digits.rotate.*", 3, "digits.rotate.1", "digits.rotate.3"),
    ],
)
def test_word_stands_for_corruptions_or_for_what_registered_settings_do(everything, what, count, first, last):
    names = everything.expand_eval_settings([f"under:{what}@folder:a/b@c"])
    assert len(names) == count
    assert (names[0], names[-1]) == (f"under:{first}@folder:a/b@c", f"under:{last}@folder:a/b@c")
    for name in names:
        assert everything.eval_setting(name).parent_eval_setting == "folder:a/b@c"


def test_setting_keeps_everything_but_the_change(everything):
    base, foggy = everything.eval_setting("cifar10-test"), everything.eval_setting("under:fog.3@cifar10-test")
    assert (foggy.dataset, foggy.size, foggy.metrics_fn) == (base.dataset, base.size, base.metrics_fn)
    assert foggy.perturbation_fn_cpu == corruption("fog", 3)
    assert set(foggy.tags) == {*base.tags, "corruption"}
    registered = everything.eval_setting("pgd.linf.eps2")
    attacked = everything.eval_setting("under:pgd.linf.eps2@cifar10-test")
    assert attacked.perturbation_fn_gpu is registered.perturbation_fn_gpu
    assert attacked.adversarial_attack == registered.adversarial_attack
    assert (attacked.version, registered.version) == (2, 2)
    assert {*attacked.tags} - {*base.tags} == {"adversarial"}


def test_constants_are_those_of_the_pictures_as_for_registered_settings(everything):
    """Fog of severity 3, from the published programs for 32, 64 and 224 pixels: (amount, decay)."""
    fog = everything.eval_setting("under:fog.3@folder:x").perturbation_fn_cpu
    for side, expected in ((32, (0.75, 2.5)), (64, (1, 2.5)), (224, (2.5, 1.7)), (384, (2.5, 1.7))):
        assert tuple(fog.constants_for(side)[1].values()) == expected
    assert fog == everything.eval_setting("imagenet-samples.fog.3").perturbation_fn_cpu


def test_attack_may_follow_a_corruption_and_not_the_other_way_round(registry):
    both = registry.eval_setting("under:tiny.attack@tiny.motion_blur")
    assert both.perturbation_fn_cpu is not None and both.perturbation_fn_gpu is not None
    for name in ("under:fog.3@tiny.motion_blur", "under:fog.3@tiny.attack", "under:tiny.noise@under:fog.3@tiny"):
        with pytest.raises(EntryError, match="are perturbed already, expected a setting of plain ones"):
            registry.eval_setting(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("under:foggy@tiny", r"no corruption, attack or shift 'foggy'; did you mean fog"),
        ("under:fog.6@tiny", r"no corruption, attack or shift 'fog\.6'; did you mean fog\.5"),
        ("under:qqqq@tiny", r"'qqqq'; expected one such as fog or fog\.3, imagenet-c"),
        ("under:tiny@tiny", "'tiny' does nothing to its pictures"),
        ("under:fog.3", r"expected under:WHAT@SETTING such as under:fog\.3@folder:PATH"),
        ("under:@tiny", r"expected under:WHAT@SETTING"),
        ("under:fog.3@tinny", "no eval setting, group or tag 'tinny'; did you mean tiny"),
    ],
)
def test_what_cannot_be_understood_is_refused_in_one_line(registry, name, message):
    with pytest.raises((EntryError, UnknownName), match=message):
        registry.expand_eval_settings([name])


def test_corruption_after_a_plus_is_answered_with_the_right_spelling(registry, tmp_path):
    folder = tmp_path / "pictures"
    with pytest.raises(EntryError, match=rf"expected 'under:imagenet-c@folder:{folder}'"):
        registry.expand_eval_settings([f"folder:{folder}+imagenet-c"])
    real = tmp_path / "pictures+imagenet-c"
    real.mkdir()
    assert registry.expand_eval_settings([f"folder:{real}"]) == [f"folder:{real}"]
    assert registry.expand_eval_settings([f"folder:{folder}+more"]) == [f"folder:{folder}+more"]


# ---- what a model is shown -------------------------------------------------------------------------------


def logits(store, setting):
    return np.array(stored_outputs(store, completed(store, "tiny_a", setting)).logits)


def test_strings_perturb_the_pictures_and_some_rows_have_the_noise_of_all(tmp_path):
    names = [
        *("tiny", "tiny.motion_blur", "tiny.attack", "under:motion_blur.3@tiny", "under:tiny.attack@tiny"),
        *(
            "under:gaussian_noise.5@tiny",
            "under:gaussian_noise.5@rows:10-20@tiny",
            "rows:10-20@under:gaussian_noise.5@tiny",
        ),
    ]
    report, store = tiny.run(tmp_path, ["tiny_a"], names)
    assert not report.failed
    plain, blurred, attacked, *by_string, noisy, first, second = (logits(store, name) for name in names)
    for registered, string in zip((blurred, attacked), by_string, strict=True):
        assert not np.allclose(string, plain)
        assert registered.shape == string.shape
    np.testing.assert_array_equal(by_string[1], attacked)  # without random numbers
    for some in (first, second):
        np.testing.assert_allclose(some, noisy[10:20], rtol=1e-5, atol=1e-5)


# ---- groups ----------------------------------------------------------------------------------------------


def printed(store, *words):
    done = CliRunner().invoke(database.main, ["--db", str(store.folder / "results.db"), *words])
    return done.output


def test_group_of_a_string_has_mean_and_mce(store):
    """A model with AlexNet's own errors has mCE and every CE 100, by definition (Hendrycks and Dietterich 2019)."""
    errors = json.loads((default_folder() / "metadata" / "alexnet_imagenet_c_error.json").read_text())
    over = "folder:{my} pictures"  # braces are part of a path here, not of a pattern
    shown = []
    for kind in CORRUPTIONS:
        for severity, error in enumerate(errors.get(kind, [0.5] * 5), start=1):
            shown.append(100 * (1 - error))
            value = Estimate(shown[-1], kind=ACCURACY)
            stored_results.add(store, "m", f"under:{kind}.{severity}@{over}", metrics={"top1": value})
    told = json.loads(printed(store, "--format", "json", "--print-group", "m", f"under:imagenet-c@{over}"))
    numbers = {row["metric"]: row["value"] for row in told}
    assert numbers["mean_top1"] == pytest.approx(np.mean(shown))
    assert numbers["mce"] == pytest.approx(100)
    assert len(errors) == 15 and all(numbers[f"ce.{kind}"] == pytest.approx(100) for kind in errors)
    text = printed(store, "--print-group", "m", f"under:fog@{over}")
    assert f"m on under:fog@{over}: 5 of 5 settings" in text
    assert [line.split()[0] for line in text.splitlines() if "100.00" in line] == ["ce.fog"]
    assert "AlexNet's errors on ImageNet: on other pictures they only rank models" in text


def test_group_of_other_strings_has_a_mean(store):
    for name, value in (("under:digits.rotate.1@folder:x", 80.0), ("under:digits.rotate.2@folder:x", 60.0)):
        stored_results.add(store, "m", name, metrics={"top1": Estimate(value, kind=ACCURACY)})
    text = printed(store, "--print-group", "m", "under:digits.rotate.*@folder:x")
    assert "2 of 3 settings" in text
    assert "70.0" in next(line for line in text.splitlines() if line.startswith("mean_top1"))
    assert "no group 'no-such'" in printed(store, "--print-group", "m", "no-such")


def test_image_level_intervals_know_that_the_settings_share_pictures(store, everything):
    from testbed.studies.groups import stored_group

    targets = np.arange(40) % 5
    logits_of = np.eye(5, dtype=np.float32)[np.where(np.arange(40) < 30, targets, (targets + 1) % 5)]
    name = "under:fog.1@folder:x"
    metrics = {"top1": Estimate(75.0, 60.0, 88.0, 40, ACCURACY)}
    stored_results.add(store, "m", name, logits=logits_of, targets=targets, metrics=metrics)
    images = stored_group(store, everything, "m", [name]).per_image(name, "top1")
    assert images is not None and images.values.mean() == 75.0
