"""Intervals of weighted sums: closed forms, Newcombe's paired interval, and which images two settings share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from testbed.stats.combined import PerImage, combined_interval, image_correlations
from testbed.stats.intervals import wilson


def images(values, ids=None, labels=None):
    values = np.asarray(values, dtype=float)
    ids = np.arange(len(values)) if ids is None else np.asarray(ids)
    return PerImage(ids.astype(str), np.zeros(len(values)) if labels is None else np.asarray(labels), values)


def test_normal_intervals_combine_to_the_normal_interval_of_the_sum():
    """Symmetric sides of 1.96 standard errors: the variance of a weighted sum is w' C w."""
    w, errors = np.array([0.5, -1.0, 2.0]), np.array([1.0, 2.0, 0.5])
    r = np.array([[1, 0.3, -0.2], [0.3, 1, 0.6], [-0.2, 0.6, 1]])
    values = np.array([10.0, 20.0, 30.0])
    low, high = combined_interval(w, values, values - 1.96 * errors, values + 1.96 * errors, r)
    spread = np.sqrt(w @ (r * np.outer(errors, errors)) @ w)
    assert (low, high) == pytest.approx((45 - 1.96 * spread, 45 + 1.96 * spread))


def test_a_term_that_is_subtracted_pulls_with_its_other_side():
    # 80 [77, 84] - 60 [55, 62], independent: below 3 and 2, above 4 and 5.
    found = combined_interval([1, -1], [80, 60], [77, 55], [84, 62], np.eye(2))
    assert found == pytest.approx((20 - np.hypot(3, 2), 20 + np.hypot(4, 5)))
    # Unknown correlation: a difference as if independent, a mean as if the terms moved together.
    assert combined_interval([1, -1], [80, 60], [77, 55], [84, 62]) == pytest.approx(found)
    assert combined_interval([0.5, 0.5], [80, 60], [77, 55], [84, 62]) == pytest.approx((66, 73))
    assert combined_interval([-0.5, -0.5], [80, 60], [77, 55], [84, 62]) == pytest.approx((-73, -66))


def test_only_the_unknown_correlations_are_filled_in():
    r = np.array([[1, np.nan, 0.0], [np.nan, 1, 0.0], [0.0, 0.0, 1]])
    low, high = combined_interval([1, 1, 1], [0, 0, 0], [-3, -1, -3], [3, 1, 3], r)
    assert (low, high) == pytest.approx((-5, 5))  # (3 + 1)^2 + 3^2


def test_terms_that_cancel_leave_no_width():
    assert combined_interval([1, -1], [80, 60], [77, 57], [83, 63], np.ones((2, 2))) == pytest.approx((20, 20))


def test_two_paired_shares_have_newcombes_interval_without_its_correction():
    """Newcombe 1998, method 10 with phi as it is: the counts of Altman et al. (2000), table 6.2."""
    both, first, second, neither = 14, 5, 0, 22
    n = 41
    right = np.repeat([1, 1, 0, 0], [both, first, second, neither])
    other = np.repeat([1, 0, 1, 0], [both, first, second, neither])
    phi = np.corrcoef(right, other)[0, 1]
    r = image_correlations([images(right), images(other)])
    assert r == pytest.approx(np.array([[1, phi], [phi, 1]]))
    ends = [wilson(right.sum(), n), wilson(other.sum(), n)]
    lows, highs = zip(*ends, strict=True)
    low, high = combined_interval([1, -1], [right.mean(), other.mean()], lows, highs, r)
    (l1, u1), (l2, u2) = ends
    p1, p2 = right.mean(), other.mean()
    delta = np.sqrt((p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2)
    epsilon = np.sqrt((u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2)
    assert (low, high) == pytest.approx((p1 - p2 - delta, p1 - p2 + epsilon))


def test_interval_of_a_mean_over_shared_images_is_as_wide_as_scipys_bootstrap_of_images():
    rng = np.random.default_rng(0)
    hard = rng.random(1500)
    right = np.array([0.6 * hard + 0.4 * rng.random(1500) < p for p in (0.5, 0.6, 0.7)]).astype(float)
    ends = [stats.binomtest(int(row.sum()), 1500).proportion_ci(method="wilson") for row in right]
    r = image_correlations([images(row) for row in right])
    weights, values = np.full(3, 1 / 3), right.mean(axis=1)
    low, high = combined_interval(weights, values, [e.low for e in ends], [e.high for e in ends], r)
    drawn = stats.bootstrap(
        tuple(right), lambda *rows: np.mean(rows), paired=True, vectorized=False, n_resamples=2000, rng=rng
    )
    assert high - low == pytest.approx(np.ptp(drawn.confidence_interval), rel=0.08)
    alone, together = (
        combined_interval(weights, values, [e.low for e in ends], [e.high for e in ends], c) for c in (np.eye(3), None)
    )
    assert np.ptp(alone) < 0.9 * (high - low) < 0.9 * np.ptp(together)


def test_images_are_matched_by_id_in_any_order():
    rng = np.random.default_rng(0)
    a, b = rng.random(50), rng.random(50)
    order = rng.permutation(50)
    r = image_correlations([images(a), images(b[order], order)])
    assert r[0, 1] == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert (r == r.T).all()


def test_only_shared_images_make_means_correlated():
    """Half of the images shared and equal: the covariance of two means is half of a variance."""
    a = np.tile([0.0, 1.0], 20)
    r = image_correlations([images(a), images(a, np.arange(20, 60))])
    assert r[0, 1] == pytest.approx(0.5)


@pytest.mark.parametrize(
    "other",
    [
        None,
        images([1.0, 1.0, 1.0, 1.0]),  # nothing varies
        images([0.0, 1.0, 0.0, 1.0], [7, 8, 9, 10]),  # no shared image
        images([0.0, 1.0, 0.0, 1.0], labels=[0, 0, 0, 1]),  # another label: not the same image
        images([0.0, 1.0, 0.0, 1.0], [3, 4, 5, 6], labels=[1, 0, 0, 0]),
    ],
)
def test_correlation_is_unknown_where_images_are_not_known_to_be_shared(other):
    r = image_correlations([images([0.0, 1.0, 1.0, 0.0]), other])
    assert np.isnan(r[0, 1])
    assert np.isnan(r[1, 0])
    assert (np.diag(r) == 1).all()
