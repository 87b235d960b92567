"""The stored results of a model on a group, and the images that its settings share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import stored_results
from testbed import EvalSetting
from testbed.data.arrays import ArrayDataset
from testbed.entries.registry import Registry
from testbed.errors import UnknownName
from testbed.metrics.aggregates import Difference, Mean
from testbed.metrics.class_groups import InGroup, Superclasses
from testbed.metrics.estimate import ACCURACY, SHARE, Estimate, mean_estimate, share
from testbed.metrics.shortcuts import CARTON, carton
from testbed.stats.combined import combined_interval
from testbed.studies.groups import stored_group

N = 400
SETTINGS = ("toy", "toy.noise", "toy.blur")


def add_setting(registry, name, **more):
    registry.eval_settings.add(EvalSetting(name=name, dataset=ArrayDataset(make=lambda: None), **more), "here")


def logits_of(right, targets):
    logits = np.zeros((len(right), 5), dtype=np.float32)
    logits[np.arange(len(right)), np.where(right, targets, (targets + 1) % 5)] = 1
    return logits


@pytest.fixture
def registry():
    entries = Registry()
    for name in (*SETTINGS, "absent"):
        add_setting(entries, name)
    return entries


@pytest.fixture
def right(store):
    """Right or wrong on each image of three settings, which show the same images to one model."""
    rng = np.random.default_rng(0)
    targets, luck = rng.integers(0, 5, N), rng.random(N)
    found = {}
    for name, edge in zip(SETTINGS, (0.8, 0.6, 0.5), strict=True):
        found[name] = 0.7 * luck + 0.3 * rng.random(N) < edge
        metrics = {"top1": share(int(found[name].sum()), N), "other": Estimate(7.0, 6.0, 8.0, N, ACCURACY)}
        stored_results.add(store, "m", name, logits=logits_of(found[name], targets), targets=targets, metrics=metrics)
    return found


@pytest.fixture
def group(store, registry, right):
    return stored_group(store, registry, "m", (*SETTINGS, "absent"))


def test_numbers_logits_and_what_is_missing(group, right):
    assert group.missing == ["absent"]
    assert list(group.metrics("toy")) == ["top1", "other"]
    assert group.metrics("absent") == {}
    assert group.estimate("toy", "top1").value == 100 * right["toy"].mean()
    assert group.estimate("toy", "nothing") is None
    assert group.logits("toy").shape == (N, 5)
    assert len(group.samples("toy").ids) == N
    assert group.logits("absent") is None and group.samples("absent") is None


def test_the_same_group_of_another_model(group, store):
    stored_results.add(store, "other", "toy")
    assert group.of("other").estimate("toy", "top1").value == 50
    assert group.of("other").members == group.members
    assert group.of("nobody") is None


def test_a_model_without_results_is_named_with_near_ones(store, registry, right):
    stored_results.add(store, "resnet50", "toy")
    with pytest.raises(UnknownName, match=r"no model .resnet51.*did you mean resnet50"):
        stored_group(store, registry, "resnet51", SETTINGS)


def test_the_variant_is_the_given_one_or_the_one_that_is_there(store, registry):
    stored_results.add(store, "m", "toy", variant="limit=40")
    assert stored_group(store, registry, "m", SETTINGS).variant == "limit=40"
    assert stored_group(store, registry, "m", SETTINGS, "seed=3").variant == "seed=3"
    assert stored_group(store, registry, "m", SETTINGS, "seed=3").missing == list(SETTINGS)


def test_each_image_counts_as_its_setting_says(group, right):
    images = group.per_image("toy.noise", "top1")
    np.testing.assert_array_equal(images.values, 100.0 * right["toy.noise"])
    assert images.ids[1] == "001.png"
    np.testing.assert_array_equal(images.labels, group.samples("toy").targets)
    assert group.per_image("toy.noise", "other") is None  # no mean over images that is known of
    assert group.per_image("absent", "top1") is None


def test_images_that_do_not_give_the_stored_number_are_not_used(store, registry):
    """A metrics_fn may count otherwise than by the best column."""
    stored_results.add(store, "m", "toy", logits=np.eye(5, dtype=np.float32), metrics={"top1": share(4, 5)})
    assert stored_group(store, registry, "m", SETTINGS).per_image("toy", "top1") is None


def test_images_of_a_setting_that_the_registry_does_not_know_are_not_used(store, right):
    assert stored_group(store, Registry(), "m", SETTINGS).per_image("toy", "top1") is None


def test_images_without_a_label_do_not_count(store, registry):
    targets = np.array([0, -1, 2, 0, -1])
    metrics = {"top1": share(2, 3)}
    stored_results.add(store, "m", "toy", logits=np.eye(5, dtype=np.float32), targets=targets, metrics=metrics)
    images = stored_group(store, registry, "m", SETTINGS).per_image("toy", "top1")
    assert images.ids.tolist() == ["000.png", "002.png", "003.png"]
    assert images.values.tolist() == [100, 100, 0]
    stored_results.add(store, "m", "toy.noise", logits=np.eye(5, dtype=np.float32), targets=np.full(5, -1))
    assert stored_group(store, registry, "m", SETTINGS).per_image("toy.noise", "top1") is None


@pytest.mark.parametrize(
    ("metrics_fn", "targets"),
    [
        (InGroup(((0, 1), (2, 3))), np.array([0, 0, 1, 0, 0, -1])),
        (InGroup(((0, 1), (2, 3)), among_all=True), np.array([0, 0, 1, 0, 0, -1])),
        (Superclasses(((0, 1), (2, 3, 4))), np.array([0, 0, 1, 0, 0, -1])),
    ],
)
def test_a_metric_of_its_own_tells_what_each_image_adds(store, metrics_fn, targets):
    registry = Registry()
    add_setting(registry, "own", metrics_fn=metrics_fn)
    logits = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    stored = metrics_fn(logits, targets)
    stored_results.add(store, "m", "own", logits=logits, targets=targets, metrics=stored)
    images = stored_group(store, registry, "m", ["own"]).per_image("own", "top1")
    assert images.values.mean() == pytest.approx(stored["top1"].value)
    assert len(images.values) == 5


def test_cartons_tell_what_each_image_adds():
    rng = np.random.default_rng(0)
    logits, targets = rng.normal(size=(40, 500)), np.repeat([CARTON, 3, -1, 7], 10)
    logits[np.arange(40), np.where(rng.random(40) < 0.5, np.maximum(targets, 0), CARTON)] += 9
    stored, images = carton(logits, targets), carton.per_image(logits, targets)
    for name in ("top1", "top1_carton", "p_carton"):
        assert np.nanmean(images[name]) == pytest.approx(stored[name].value), name


# ---- intervals over settings that share images -------------------------------------------------------------


def test_mean_over_settings_has_the_interval_of_resampled_images(group, right):
    """scipy's bootstrap over images, each with its outcomes in all three settings."""
    rows = np.array([right[name] for name in SETTINGS], dtype=float)
    found = Mean()(group)["mean_top1"]
    drawn = stats.bootstrap(
        tuple(rows), lambda *each: 100 * np.mean(each), paired=True, vectorized=False, n_resamples=3000, rng=1
    ).confidence_interval
    assert found.value == pytest.approx(100 * rows.mean())
    # The exact intervals of the settings are a little longer than normal ones.
    assert found.ci_high - found.ci_low == pytest.approx(drawn.high - drawn.low, rel=0.09)
    assert (found.ci_low, found.ci_high) == pytest.approx((drawn.low, drawn.high), abs=0.6)


def test_mean_over_settings_by_hand(group, right):
    ends = [group.estimate(name, "top1") for name in SETTINGS]
    rows = np.array([right[name] for name in SETTINGS], dtype=float)
    low, high = combined_interval(
        [1 / 3] * 3, [e.value for e in ends], [e.ci_low for e in ends], [e.ci_high for e in ends], np.corrcoef(rows)
    )
    found = Mean()(group)["mean_top1"]
    assert (found.ci_low, found.ci_high) == pytest.approx((low, high))


def test_difference_of_settings_is_narrower_where_they_share_images(group, right):
    found = Difference("gap", "toy", "toy.noise")(group)["gap"]
    drawn = stats.bootstrap(
        (right["toy"].astype(float), right["toy.noise"].astype(float)),
        lambda a, b: 100 * (a.mean() - b.mean()),
        paired=True,
        vectorized=False,
        n_resamples=3000,
        rng=1,
    ).confidence_interval
    assert (found.ci_low, found.ci_high) == pytest.approx((drawn.low, drawn.high), abs=0.8)
    a, b = (group.estimate(name, "top1") for name in ("toy", "toy.noise"))
    independent = np.hypot(a.ci_high - a.ci_low, b.ci_high - b.ci_low)
    assert found.ci_high - found.ci_low < 0.85 * independent


def test_without_stored_images_a_mean_is_as_wide_as_its_settings_and_a_difference_as_if_unrelated(store, registry):
    for name, hits in (("toy", 80), ("toy.noise", 60)):
        stored_results.add(store, "m", name, metrics={"top1": share(hits, 100)})
    group = stored_group(store, registry, "m", SETTINGS)
    a, b = share(80, 100), share(60, 100)
    mean, gap = Mean()(group)["mean_top1"], Difference("gap", "toy", "toy.noise")(group)["gap"]
    assert (mean.ci_low, mean.ci_high) == pytest.approx(((a.ci_low + b.ci_low) / 2, (a.ci_high + b.ci_high) / 2))
    below = np.hypot(a.value - a.ci_low, b.ci_high - b.value)
    above = np.hypot(a.ci_high - a.value, b.value - b.ci_low)
    assert (gap.ci_low, gap.ci_high) == pytest.approx((20 - below, 20 + above))


@pytest.mark.parametrize("lacking", ["ci_low", "ci_high"])
def test_a_setting_without_an_interval_leaves_the_whole_without_one(store, registry, lacking):
    bare = Estimate(**{**vars(share(60, 100)), lacking: None})
    for name, estimate in (("toy", share(80, 100)), ("toy.noise", bare)):
        stored_results.add(store, "m", name, metrics={"top1": estimate})
    group = stored_group(store, registry, "m", SETTINGS)
    for found in (Mean()(group)["mean_top1"], Difference("gap", "toy.noise", "toy")(group)["gap"]):
        assert (found.ci_low, found.ci_high) == (None, None)
    assert Mean()(group)["mean_top1"].value == 70


def test_a_mean_that_is_no_share_has_its_images_too(store):
    """p_carton is a mean of probabilities: the normal interval of the paired differences (scipy)."""
    registry = Registry()
    rng = np.random.default_rng(0)
    base = rng.normal(size=(300, CARTON + 2)).astype(np.float32)
    pairs = {"clean": base, "marked": base.copy()}
    pairs["marked"][:, CARTON] += rng.normal(3, 1, 300)
    values = {}
    for name, logits in pairs.items():
        add_setting(registry, name, metrics_fn=carton)
        values[name] = carton.per_image(logits, np.zeros(300, dtype=int))["p_carton"]
        stored_results.add(store, "m", name, logits=logits, metrics={"p_carton": mean_estimate(values[name], SHARE)})
    found = Difference("gap", "marked", "clean", "p_carton")(stored_group(store, registry, "m", list(pairs)))["gap"]
    gaps = values["marked"] - values["clean"]
    expected = stats.norm.interval(0.95, gaps.mean(), stats.sem(gaps))
    assert (found.ci_low, found.ci_high) == pytest.approx(expected, rel=1e-3)
