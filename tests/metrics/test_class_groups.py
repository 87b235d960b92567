"""Groups of classes, worked by hand."""

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm

from testbed.metrics.class_groups import InGroup, Merged, Superclasses, group_of_column, merge, weighted

GROUPS = ((0, 3), (1,), ())
LOGITS = np.array([[1.0, 3.0, 9.0, 2.0], [4.0, 3.0, 9.0, 5.0], [0.0, -1.0, 0.0, -2.0]])


def test_merging_takes_the_highest_logit_and_leaves_empty_groups_no_chance():
    np.testing.assert_array_equal(merge(LOGITS, GROUPS), [[2, 3, -np.inf], [5, 3, -np.inf], [0, -1, -np.inf]])


def test_mean_probability_merges_probabilities_not_logits():
    p = softmax(LOGITS, axis=1)
    expected = np.stack([p[:, [0, 3]].mean(1), p[:, 1]], axis=1)
    merged = merge(LOGITS, GROUPS[:2], "mean_probability")
    np.testing.assert_allclose(softmax(merged, axis=1), expected / expected.sum(1, keepdims=True), rtol=1e-5)


def test_prediction_among_the_groups_columns_ignores_other_columns():
    found = InGroup(GROUPS)(LOGITS, np.array([1, 0, 0]))["top1"]  # column 2 is highest, but in no group
    assert (found.value, found.n) == (100, 3)


def test_prediction_among_all_columns_is_wrong_outside_every_group():
    found = InGroup(GROUPS, among_all=True)(LOGITS, np.array([1, 0, 0]))["top1"]
    assert found.value == pytest.approx(100 / 3)


def test_images_without_a_label_have_no_accuracy_in_groups():
    assert InGroup(GROUPS)(LOGITS, np.full(3, -1)) == {}


def test_merged_classes_count_columns_as_targets():
    found = Merged(GROUPS, uniform=True, weights={"weighted": (3, 1, 1)})(LOGITS, np.array([3, 0, 1]))
    # merged predictions 1 0 0, true groups 0 0 1: group 0 half right, group 1 wrong, group 2 has no images
    assert found["top1"].value == pytest.approx(100 / 3)
    assert found["top1_uniform_class_weight"].value == pytest.approx(25)
    assert found["weighted"].value == pytest.approx(100 * 3 * 0.5 / 4)


def test_equal_weights_and_sizes_give_plain_accuracy():
    right, group = np.array([1, 0, 1, 1], dtype=bool), np.array([0, 0, 1, 1])
    assert weighted(right, group, np.ones(2)).value == pytest.approx(75)


def test_superclasses_count_as_targets():
    assert Superclasses(((0, 3), (1,)))(LOGITS[:2], np.array([1, 0]))["top1"].value == 100


def test_a_class_in_two_groups_is_refused():
    with pytest.raises(ValueError, match="expected each class in one group"):
        group_of_column(((0, 1), (1,)), 2)


def test_interval_of_a_weighted_mean_is_that_of_a_stratified_sample():
    """Variance of independent strata: sum of w^2 p (1 - p) / n over the square of the summed weights (Cochran 1977)."""
    group = np.repeat([0, 1, 2, -1], [10, 20, 30, 5])
    right = np.r_[np.arange(10) < 7, np.arange(20) < 5, np.arange(30) < 15, np.ones(5)].astype(bool)
    found = weighted(right, group, np.array([1.0, 3.0, 0.0, 2.0]))  # the third has no weight, the fourth no image
    value = (0.7 + 3 * 0.25) / 4
    error = np.sqrt(0.7 * 0.3 / 10 + 9 * 0.25 * 0.75 / 20) / 4
    assert found.value == pytest.approx(100 * value)
    assert (found.ci_low, found.ci_high) == pytest.approx(tuple(100 * np.array(norm.interval(0.95, value, error))))
    assert found.n == 60
    assert np.isnan(weighted(right, group, np.zeros(4)).value)


def test_uniform_mean_is_given_only_where_it_is_asked_for():
    assert "top1_uniform_class_weight" not in Merged(GROUPS)(LOGITS, np.array([0, 1, 3]))
    assert "top1_uniform_class_weight" in Merged(GROUPS, uniform=True)(LOGITS, np.array([0, 1, 3]))
