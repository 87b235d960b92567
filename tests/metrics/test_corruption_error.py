"""mCE against the published constants and figures."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from shared_data import shared_data
from testbed.metrics.aggregates import POINTS, CorruptionSummary, Difference, Mean, UnknownClasses
from testbed.metrics.corruption_error import (
    ALEXNET_CLEAN_ERROR,
    corruption_errors,
    mean_corruption_error,
    mean_of,
    relative_corruption_errors,
)
from testbed.metrics.estimate import Estimate, share

ALEXNET = json.loads(
    (Path(__file__).parents[2] / "registry" / "metadata" / "alexnet_imagenet_c_error.json").read_text()
)
ITSELF = {name: [Estimate(100 - 100 * e) for e in errors] for name, errors in ALEXNET.items()}


class Stored:
    """An aggregate's view of results that are not in any database."""

    def __init__(self, members, estimates=(), logits=()):
        self.members, self._estimates, self._logits = members, dict(estimates), dict(logits)

    def estimate(self, setting, metric):
        return self._estimates.get((setting, metric))

    def logits(self, setting):
        return self._logits.get(setting)


@pytest.mark.parametrize(
    ("corruption", "mean"),
    # The constants of hendrycks/robustness, ImageNet-C/test.py.
    [("gaussian_noise", 0.886428), ("fog", 0.819324), ("brightness", 0.564592), ("jpeg_compression", 0.606500)],
)
def test_severities_average_to_the_published_constants(corruption, mean):
    assert np.mean(ALEXNET[corruption]) == pytest.approx(mean, abs=1e-6)


def test_alexnet_has_mce_100():
    assert mean_of(corruption_errors(ITSELF, ALEXNET)).value == pytest.approx(100)
    clean = Estimate(100 - 100 * ALEXNET_CLEAN_ERROR)
    assert mean_of(relative_corruption_errors(ITSELF, clean, ALEXNET)).value == pytest.approx(100)


def test_published_accuracies_of_resnet50_give_nearly_its_published_mce():
    """README of hendrycks/robustness: 76.7. The ImageNet Testbed resized the 224-pixel images again, so not quite."""
    with shared_data("testbed", "robustness_top1s.csv").open(newline="") as file:
        row = next(r for r in csv.DictReader(file) if r["model"] == "resnet50")
    accuracies = {c: [Estimate(float(row[f"imagenet-c.{c}.{s}_on-disk"])) for s in range(1, 6)] for c in ALEXNET}
    assert mean_of(corruption_errors(accuracies, ALEXNET)).value == pytest.approx(76.7, abs=2)


def test_relative_error_subtracts_the_clean_one_on_both_sides():
    members = {"fog": [Estimate(50, 45, 55)] * 5}
    found = relative_corruption_errors(members, Estimate(70, 68, 72), ALEXNET)["fog"]
    expected = 100 * (50 - 30) / (100 * np.mean(ALEXNET["fog"]) - 43.478)
    assert found.value == pytest.approx(expected)
    assert found.ci_low < found.value < found.ci_high


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
    expected = mean_of(corruption_errors(alone, ALEXNET))
    assert together[:, 0] == pytest.approx([expected.value, expected.ci_low, expected.ci_high])
    assert np.isnan(together[:, 1]).all()
    assert np.isfinite(together[0, 2])
    assert np.isnan(together[1:, 2]).all()


def test_without_intervals_of_the_severities_there_is_none_of_the_mce():
    mce = mean_of(corruption_errors(ITSELF, ALEXNET))
    assert (mce.ci_low, mce.ci_high) == (None, None)


def test_severities_must_be_those_of_the_baseline():
    with pytest.raises(ValueError, match="corruption 'fog': expected baseline errors of 1 severities"):
        corruption_errors({"fog": [Estimate(50)]}, ALEXNET)


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
