"""CAUC and CDROP against numbers of the published program, and the mathematics around them."""

import numpy as np
import pytest

from explain.golden_cases import CASES, inputs_of
from testbed.metrics import contrastive as c
from testbed.metrics.contrastive import Recipe
from testbed.stats.intervals import mean_interval


def scores(inputs, deleted, pos, neg):
    """s at each number of deleted pixels, by the plainest of loops."""
    order = np.argsort(-inputs.heatmap.ravel(), kind="stable")
    found = []
    for n in deleted:
        image = inputs.image.reshape(3, -1).copy()
        image[:, order[:n]] = 0
        p = inputs.probabilities(image)
        found.append(p[pos].sum() * (1 - p[neg].sum()))
    return np.array(found)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_are_those_of_the_published_program(case):
    inputs = inputs_of(case)
    plan = c.plan_deletion(inputs.heatmap, Recipe(case.step, case.delta, case.tau, case.smooth))
    s = scores(inputs, plan.deleted, case.pos, case.neg)
    assert plan.count == case.count
    assert c.cauc(plan, s) == pytest.approx(case.cauc, abs=1e-10)
    assert c.cdrop(plan, s) == pytest.approx(case.cdrop, abs=1e-10, nan_ok=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_paper_mode_is_the_readme(case):
    inputs = inputs_of(case)
    plan = c.plan_deletion(inputs.heatmap, Recipe(1, case.delta, case.tau, case.smooth, mode="paper"))
    s = scores(inputs, plan.deleted, case.pos, case.neg)
    assert c.cauc(plan, s) == pytest.approx(case.readme_cauc, abs=1e-10)
    assert c.cdrop(plan, s) == pytest.approx(case.readme_cdrop, abs=1e-10)


def test_worked_example_by_hand():
    s = np.array([0.815940370107, 0.619935050810, 0.413579955516])  # logits 2.9 0.4 0; 2.1 0.6 0; 1.5 0.8 0
    heatmap = np.array([0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, *[0] * 9]).reshape(4, 4) / 0.8
    plan = c.plan_deletion(heatmap, Recipe(step=1))
    assert plan.deleted.tolist() == [0, 1, 2]  # the third salient pixel is never deleted
    assert c.cauc(plan, s) == pytest.approx((1.849455376433 - 0.5 * (0.815940370107 + 0.413579955516)) / 17)
    assert c.cdrop(plan, s) == pytest.approx((0.815940370107 - 1.849455376433 / 3) / np.log2(1 + 3 / 0.8))


def test_paper_mode_between_wider_steps_takes_the_curve_as_straight():
    heatmap = np.linspace(1, 0, 400).reshape(20, 20)
    fine, wide = (c.plan_deletion(heatmap, Recipe(step, 0.5, mode="paper")) for step in (1, 7))
    assert wide.deleted[-1] == fine.deleted[-1] == 200
    assert c.cauc(wide, 1 - wide.deleted / 400) == pytest.approx(c.cauc(fine, 1 - fine.deleted / 400), abs=1e-12)


def test_equal_pixels_go_in_row_major_order():
    ranks = c.pixel_ranks(np.array([[1, 2, 1], [2, 0, 2]]))
    assert ranks.tolist() == [[3, 0, 4], [1, 5, 2]]
    many = c.pixel_ranks(np.zeros((50, 50)))  # enough for an unstable sort to show itself
    assert many.ravel().tolist() == list(range(2500))


@pytest.mark.parametrize(
    ("heatmap", "reason"),
    [
        (np.ones((8, 8)), "constant"),
        (np.zeros((8, 8)), "empty"),
        (-np.ones((8, 8)), "negative"),
        (np.linspace(-2, -1, 64).reshape(8, 8), "negative"),
        (np.where(np.eye(8) > 0, np.nan, 1), "not finite"),
        (np.where(np.eye(8) > 0, np.inf, 1), "not finite"),
        (np.eye(8), "too small"),  # 8 pixels go in one step of 16
        (np.linspace(-1, 1, 64).reshape(8, 8), "too small"),  # 16 are above half of the positive range
        (np.linspace(0, 1, 64).reshape(8, 8), ""),
    ],
)
def test_maps_that_say_nothing_are_told_apart(heatmap, reason):
    assert c.INVALID[c.invalid_code(heatmap, Recipe(step=16))] == reason


def test_larger_delta_is_a_prefix_of_the_same_curve():
    heatmap = np.random.default_rng(0).random((32, 32))
    wide, narrow = (c.plan_deletion(heatmap, Recipe(4, delta)).deleted for delta in (0.3, 0.6))
    assert len(narrow) < len(wide)
    assert np.array_equal(wide[: len(narrow)], narrow)


@pytest.mark.parametrize("smooth", [1, 3, 5])
def test_cdrop_alone_asks_for_one_and_smooth_len_points(smooth):
    heatmap = np.random.default_rng(0).random((32, 32))
    whole = c.plan_deletion(heatmap, Recipe(4, smooth_len=smooth))
    alone = c.plan_deletion(heatmap, Recipe(4, smooth_len=smooth, metrics=("CDROP",)))
    assert len(alone.deleted) == 1 + smooth
    s = np.exp(-whole.deleted / 100)
    assert c.cdrop(alone, s[np.isin(whole.deleted, alone.deleted)]) == c.cdrop(whole, s)


@pytest.mark.parametrize("most", [8, 24, 32, 100, 1000])
def test_max_points_bounds_the_passes_and_keeps_cdrop_exact(most):
    heatmap = np.random.default_rng(0).random((64, 64))
    whole = c.plan_deletion(heatmap, Recipe(4))
    few = c.plan_deletion(heatmap, Recipe(4, max_points=most))
    assert len(few.deleted) <= min(most, len(whole.deleted))
    s = np.exp(-whole.deleted / 800)
    chosen = s[np.isin(whole.deleted, few.deleted)]
    assert c.cdrop(few, chosen) == c.cdrop(whole, s)
    assert c.cauc(few, chosen) == pytest.approx(c.cauc(whole, s), rel=0.03 if most == 8 else 2e-3)
    if most == 1000:
        assert np.array_equal(few.deleted, whole.deleted)


def test_area_normalised_cauc_is_about_the_mean_score():
    heatmap = np.random.default_rng(0).random((64, 64))
    for delta in (0.2, 0.5, 0.8):
        plan = c.plan_deletion(heatmap, Recipe(4, delta))
        assert c.cauc_per_area(plan, np.full(len(plan.deleted), 0.7)) == pytest.approx(0.7, rel=0.01)


def test_whole_curves_are_means_over_the_picture():
    changed = c.whole_curve(1000, 11)
    assert changed.tolist() == list(range(0, 1001, 100))
    assert c.whole_auc(changed, np.full(11, 0.3)) == pytest.approx(0.3)
    assert c.whole_auc(changed, changed / 1000) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (dict(step=0), "expected step of at least 1, got 0"),
        (dict(smooth_len=0), "expected smooth_len of at least 1"),
        (dict(delta=-0.1), "expected delta from 0 to 1"),
        (dict(tau_threshold=0), "expected tau_threshold above 0"),
        (dict(mode="cwoz"), "expected mode cwox or paper, got 'cwoz'"),
        (dict(max_points=3), "expected max_points of at least smooth_len"),
        (dict(metrics=("CDAOP",)), "expected metrics among CAUC, CDROP, got CDAOP"),
    ],
)
def test_wrong_recipe_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**wrong)


def test_likely_classes_are_the_smallest_set_that_reaches_the_mass():
    p = np.array([[0.02, 0.9, 0.08], [0.97, 0.01, 0.02], [1 / 3, 1 / 3, 1 / 3]])
    found = c.likely_classes(np.log(p), 0.95)
    assert [row.tolist() for row in found] == [[1, 2], [0], [0, 1, 2]]
    assert [len(row) for row in c.likely_classes(np.log(p), 0.95, most=2)] == [2, 1, 2]


# ---- rows to metrics -------------------------------------------------------------------------------------


def rows(cauc, invalid=None, exists=None):
    cauc = np.asarray(cauc, dtype=float)
    exists = np.ones(cauc.shape, bool) if exists is None else np.asarray(exists, bool)
    return {
        "positive": np.where(exists, 1, -1)[:, :, None],
        "invalid": np.zeros(cauc.shape, np.int8) if invalid is None else np.asarray(invalid, np.int8),
        "cauc": cauc,
        "cdrop": -cauc,
    }


def test_invalid_maps_are_left_out_and_counted():
    found = c.explanation_metrics(rows([[0.2, 0.0], [0.4, 0.9]], [[0, 5], [0, 0]], [[1, 1], [1, 0]]))
    assert found["cauc"].value == pytest.approx(0.3)
    assert found["cauc"].n == 2
    assert found["n_valid"].value == 2
    assert (found["n_invalid"].value, found["n_invalid"].n) == (1, 3)


def test_nothing_valid_gives_counts_and_no_mean():
    found = c.explanation_metrics(rows([[0.0], [0.0]], [[4], [3]]))
    assert set(found) == {"n_valid", "n_invalid"}
    assert found["n_invalid"].value == 2


def test_interval_is_the_usual_one_where_each_image_has_one_row():
    values = np.random.default_rng(0).random(40)
    found = c.clustered_mean(values, np.arange(40))
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx(mean_interval(values))


def test_rows_of_one_image_do_not_count_as_independent():
    values = np.random.default_rng(0).random(40)
    once = c.clustered_mean(values, np.arange(40))
    twice = c.clustered_mean(np.tile(values, 2), np.tile(np.arange(40), 2))
    assert (twice.ci_low, twice.ci_high) == pytest.approx((once.ci_low, once.ci_high))
    assert twice.n == 80


def test_every_metric_with_a_direction_tells_it():
    metrics = c.explanation_metrics(rows([[0.2], [0.4]], [[0], [0]], [[1], [1]]))
    assert {name: e.kind.better for name, e in metrics.items()} == {
        "cauc": "lower",
        "cdrop": "higher",
        "n_valid": None,
        "n_invalid": None,
    }
    assert {name: kind.better for name, kind in c.KINDS.items() if kind.better} == c.BETTER
