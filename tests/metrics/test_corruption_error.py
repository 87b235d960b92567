"""mCE against the published constants and figures."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from shared_data import shared_data
from testbed.metrics.aggregates import GAP, POINTS, CorruptionSummary, Difference, Mean, UnknownClasses
from testbed.metrics.corruption_error import ALEXNET_CLEAN_ERROR, mce_weights, mean_corruption_error
from testbed.metrics.estimate import ACCURACY, Estimate, share

ALEXNET = json.loads(
    (Path(__file__).parents[2] / "registry" / "metadata" / "alexnet_imagenet_c_error.json").read_text()
)
ITSELF = {name: [Estimate(100 - 100 * e) for e in errors] for name, errors in ALEXNET.items()}


class Stored:
    """An aggregate's view of results that are not in any database."""

    def __init__(self, members, estimates=(), logits=()):
        self.members, self._estimates, self._logits = members, dict(estimates), dict(logits)

    def per_image(self, setting, metric):
        return None

    def estimate(self, setting, metric):
        return self._estimates.get((setting, metric))

    def logits(self, setting):
        return self._logits.get(setting)


def summary_of(accuracies, clean=None, baseline=ALEXNET):
    """What the aggregate says of accuracies by corruption, with their severities in order."""
    stored = {(f"c.{c}.{s}", "top1"): e for c, members in accuracies.items() for s, e in enumerate(members, 1)}
    if clean is not None:
        stored["clean", "top1"] = clean
    severities = len(next(iter(accuracies.values())))
    summary = CorruptionSummary("c.{corruption}.{severity}", "clean", tuple(accuracies), baseline, "x", "", severities)
    return summary(Stored([], stored))


@pytest.mark.parametrize(
    ("corruption", "mean"),
    # The constants of hendrycks/robustness, ImageNet-C/test.py.
    [("gaussian_noise", 0.886428), ("fog", 0.819324), ("brightness", 0.564592), ("jpeg_compression", 0.606500)],
)
def test_severities_average_to_the_published_constants(corruption, mean):
    assert np.mean(ALEXNET[corruption]) == pytest.approx(mean, abs=1e-6)


def test_alexnet_has_mce_100():
    found = summary_of(ITSELF, Estimate(100 - 100 * ALEXNET_CLEAN_ERROR))
    assert found["mce"].value == pytest.approx(100)
    assert found["relative_mce"].value == pytest.approx(100)


def test_published_accuracies_of_resnet50_give_nearly_its_published_mce():
    """README of hendrycks/robustness: 76.7. The ImageNet Testbed resized the 224-pixel images again, so not quite."""
    with shared_data("testbed", "robustness_top1s.csv").open(newline="") as file:
        row = next(r for r in csv.DictReader(file) if r["model"] == "resnet50")
    accuracies = {c: [Estimate(float(row[f"imagenet-c.{c}.{s}_on-disk"])) for s in range(1, 6)] for c in ALEXNET}
    assert summary_of(accuracies)["mce"].value == pytest.approx(76.7, abs=2)


def test_relative_error_subtracts_the_clean_one_on_both_sides():
    members = {"fog": [Estimate(50, 45, 56)] * 5}
    found = summary_of(members, Estimate(70, 68, 73), {"fog": ALEXNET["fog"]})["relative_mce"]
    unit = 100 / (100 * np.mean(ALEXNET["fog"]) - 43.478)
    assert found.value == pytest.approx(unit * (50 - 30))
    # Severities move together, apart from the clean accuracy: fewer errors with 56 % right and 68 % right when clean.
    assert found.ci_low == pytest.approx(unit * (20 - np.hypot(6, 2)))
    assert found.ci_high == pytest.approx(unit * (20 + np.hypot(5, 3)))


def test_arrays_of_many_models_give_what_estimates_of_each_give():
    """One of them lacks an accuracy, another an interval."""
    rng = np.random.default_rng(0)
    value = {c: rng.uniform(10, 90, size=(3, 5)) for c in ALEXNET}  # models, severities
    value["fog"][1, 2] = np.nan
    ends = {c: np.stack([v, v - 1, v + 2]) for c, v in value.items()}
    ends["fog"][1:, 2, 0] = np.nan
    together = mean_corruption_error(ends, {c: 100 * sum(errors) for c, errors in ALEXNET.items()})
    assert together.shape == (3, 3)
    alone = {c: [Estimate(v, v - 1, v + 2) for v in of_model[0]] for c, of_model in value.items()}
    expected = summary_of(alone)["mce"]
    assert together[:, 0] == pytest.approx([expected.value, expected.ci_low, expected.ci_high])
    assert np.isnan(together[:, 1]).all()
    assert np.isfinite(together[0, 2])
    assert np.isnan(together[1:, 2]).all()


def test_without_intervals_of_the_severities_there_is_none_of_the_mce():
    mce = summary_of(ITSELF)["mce"]
    assert (mce.ci_low, mce.ci_high) == (None, None)


def test_severities_must_be_those_of_the_baseline():
    with pytest.raises(ValueError, match="corruption 'fog': expected baseline errors of 1 severities"):
        mce_weights({"fog": ["fog.1"]}, ALEXNET)


def test_summary_gives_mce_only_where_nothing_is_missing():
    pattern = "c.{corruption}.{severity}"
    stored = {
        (pattern.format(corruption=c, severity=s + 1), "top1"): e for c, es in ITSELF.items() for s, e in enumerate(es)
    }
    stored["clean", "top1"] = Estimate(100 - 100 * ALEXNET_CLEAN_ERROR)
    summary = CorruptionSummary(pattern, "clean", tuple(ALEXNET), ALEXNET)
    whole = summary(Stored([], stored))
    assert whole["mce"].value == pytest.approx(100)
    assert whole["relative_mce"].value == pytest.approx(100)
    assert whole["mean_top1"].value == pytest.approx(100 - 78.8993, abs=1e-3)
    del stored["c.fog.3", "top1"]
    partial = summary(Stored([], stored))
    assert "mce" not in partial
    assert "ce.fog" not in partial
    assert partial["ce.snow"].value == pytest.approx(100)


def test_mean_is_over_what_is_stored():
    stored = Stored(["a", "b", "c"], {("a", "top1"): share(1, 2), ("c", "top1"): share(2, 2)})
    assert Mean()(stored)["mean_top1"].value == 75
    assert Mean()(Stored(["a"])) == {}


def test_difference_of_two_settings():
    stored = Stored(["a", "b"], {("a", "top1"): Estimate(80, 77, 83), ("b", "top1"): Estimate(60, 56, 64)})
    assert Difference("gap", "a", "b")(stored)["gap"] == Estimate(20, 15, 25, kind=POINTS)
    assert Difference("gap", "a", "c")(stored) == {}


def test_unknown_classes_are_held_against_their_own_known_pictures():
    rng = np.random.default_rng(0)
    logits = {"known": 5 * rng.normal(size=(40, 4)), "near": rng.normal(size=(30, 4)), "far": np.zeros((20, 4))}
    aggregate = UnknownClasses(
        {"near": "known", "far": "known", "absent": "known"}, {"far": ["far"], "near": ["absent"]}
    )
    found = aggregate(Stored(["near", "far", "absent"], logits=logits))
    assert found["far.msp.auroc"].value == 100
    assert found["near.energy.auroc"].value > 60
    assert not any(name.startswith("absent") for name in found)


def test_a_difference_lies_between_100_points_down_and_up():
    stored = Stored(["a", "b"], {("a", "top1"): Estimate(99, 90, 100), ("b", "top1"): Estimate(1, 0, 30)})
    for names, low, high in ((("a", "b"), 98 - np.hypot(9, 29), 98 + np.hypot(1, 1)), (("b", "a"), -99.5, -70)):
        found = Difference("gap", *names)(stored)["gap"]
        assert -100 <= found.ci_low <= found.value <= found.ci_high <= 100
        if names == ("a", "b"):
            assert (found.ci_low, found.ci_high) == pytest.approx((low, high))
    assert (POINTS.lowest, POINTS.highest, GAP.lowest, GAP.highest) == (-100, 100, -100, 100)


def test_a_single_setting_keeps_its_interval_and_asks_for_no_images():
    stored = Stored(["a"], {("a", "top1"): Estimate(80, 77, 84)})
    stored.per_image = None  # calling it would fail
    assert Mean()(stored)["mean_top1"] == Estimate(80, 77, 84, kind=ACCURACY)
