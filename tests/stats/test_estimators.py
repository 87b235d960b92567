"""Lines through points: against scipy, numpy and a worked example of Huber regression."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from testbed.stats.estimators import METHODS, estimator, huber, least_squares, theil_sen

# Belgian telephone calls (millions) 1950-1973, six years of them recorded in another unit;
# Rousseeuw and Leroy (1987), in R as MASS::phones.
YEARS = np.arange(50.0, 74.0)
CALLS = np.array(
    [
        [4.4, 4.7, 4.7, 5.9, 6.6, 7.3, 8.1, 8.8, 10.6, 12.0, 13.5, 14.9],
        [16.1, 21.2, 119.0, 124.0, 142.0, 159.0, 182.0, 212.0, 43.0, 24.0, 27.0, 29.0],
    ]
).ravel()


def test_huber_agrees_with_the_worked_example_of_venables_and_ripley():
    # rlm(calls ~ year, phones, maxit = 50): -102.622, 2.041.
    # R stops at a relative change of 1e-4, ours at 1e-10, hence the tolerance.
    slope, intercept = huber(YEARS, CALLS)
    assert slope == pytest.approx(2.041, rel=1e-3)
    assert intercept == pytest.approx(-102.622, rel=1e-3)


def test_huber_balances_its_own_equations():
    slope, intercept = huber(YEARS, CALLS)
    residual = CALLS - intercept - slope * YEARS
    scale = np.median(np.abs(residual)) / 0.6745
    pull = np.clip(residual / scale, -1.345, 1.345)
    assert pull.sum() == pytest.approx(0, abs=1e-6)
    assert (pull * YEARS).sum() == pytest.approx(0, abs=1e-4)


def test_huber_that_trusts_every_point_is_least_squares():
    np.testing.assert_allclose(huber(YEARS, CALLS, threshold=1e6), least_squares(YEARS, CALLS))


def test_theil_sen_agrees_with_scipy_ties_included():
    x = np.repeat(YEARS[::2], 2)
    expected = stats.theilslopes(CALLS, x, method="joint")
    np.testing.assert_allclose(theil_sen(x, CALLS), (expected.slope, expected.intercept))


def test_least_squares_agrees_with_scipy():
    expected = stats.linregress(YEARS, CALLS)
    np.testing.assert_allclose(least_squares(YEARS, CALLS), (expected.slope, expected.intercept))


@pytest.mark.parametrize("method", METHODS)
def test_a_perfect_line_is_found_even_beside_a_stray_point(method):
    x = np.linspace(-1, 2, 12)
    y = 0.9 * x - 0.5
    np.testing.assert_allclose(estimator(method)(x, y), (0.9, -0.5), atol=1e-9)
    y[3] += 10
    if method != "ols":
        np.testing.assert_allclose(estimator(method)(x, y), (0.9, -0.5), atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_many_resamples_at_once_equal_one_by_one(method):
    rows = np.random.default_rng(1).integers(0, len(YEARS), size=(7, len(YEARS)))
    rows[3] = 5  # one point, repeated: no line
    slopes, intercepts = estimator(method)(YEARS[rows], CALLS[rows])
    assert np.isnan(slopes).tolist() == [False, False, False, True, False, False, False]
    for row, slope, intercept in zip(rows, slopes, intercepts, strict=True):
        alone = estimator(method)(YEARS[row], CALLS[row])
        np.testing.assert_allclose(alone, (slope, intercept), rtol=1e-5)


def test_an_unknown_method_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="among ols, theil-sen, huber, got 'ransac'"):
        estimator("ransac")
