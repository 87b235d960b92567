"""Intervals of a share, a mean and any function of rows: published error bars, scipy, and the edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binomtest

from testbed.stats.intervals import (
    bootstrap_rows,
    clopper_pearson,
    logit_interval,
    mean_interval,
    mixed_beta_quantiles,
    wilson,
)

METHODS = {"exact": clopper_pearson, "wilson": wilson}


@pytest.mark.parametrize(
    ("setting", "n", "low", "high"),
    [
        ("val", 50_000, 75.590958, 76.663198),
        ("imagenetv2-matched-frequency-format-val", 10_000, 61.844228, 64.560938),
    ],
)
def test_published_error_bars_of_resnet50_come_out(published, setting, n, low, high):
    (accuracy,) = published.of(setting, "resnet50")
    interval = clopper_pearson(accuracy / 100 * n, n, confidence=0.995)
    assert [100 * edge for edge in interval] == pytest.approx([low, high], abs=5e-7)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("confidence", [0.95, 0.995])
@pytest.mark.parametrize(("successes", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (38065, 50_000), (1, 1)])
def test_intervals_agree_with_scipy(method, confidence, successes, n):
    expected = binomtest(successes, n).proportion_ci(confidence, method=method)
    assert METHODS[method](successes, n, confidence) == pytest.approx(tuple(expected), abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@settings(deadline=None)
@given(data=st.data(), n=st.integers(1, 10_000))
def test_the_share_lies_inside_and_the_interval_inside_0_to_1(method, data, n):
    successes = data.draw(st.integers(0, n))
    low, high = METHODS[method](successes, n)
    assert 0 <= low <= successes / n <= high <= 1


@pytest.mark.parametrize("method", METHODS)
def test_95_percent_is_the_default_and_995_is_wider(method):
    low, high = METHODS[method](60, 100)
    assert (low, high) == METHODS[method](60, 100, 0.95)
    wide_low, wide_high = METHODS[method](60, 100, 0.995)
    assert wide_low < low < high < wide_high


@pytest.mark.parametrize("method", METHODS)
def test_impossible_shares_are_refused(method):
    with pytest.raises(ValueError, match="got 11 of 10"):
        METHODS[method](11, 10)
    with pytest.raises(ValueError, match="confidence between 0 and 1, got 95"):
        METHODS[method](5, 10, 95)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("confidence", [0.0, 1.0])
def test_confidence_of_none_or_all_is_refused(method, confidence):
    with pytest.raises(ValueError, match="confidence between 0 and 1"):
        METHODS[method](5, 10, confidence)
    with pytest.raises(ValueError, match="n > 0, got 0 of 0"):
        METHODS[method](0, 0)


@pytest.mark.parametrize("values", [[1.0, 2.0], [0.3, 0.1, 0.9, 5.0, 0.2]])
@pytest.mark.parametrize("confidence", [0.95, 0.9])
def test_interval_of_a_mean_is_scipys_normal_one(values, confidence):
    expected = stats.norm.interval(confidence, np.mean(values), stats.sem(values))
    assert mean_interval(np.array(values), confidence) == pytest.approx((np.mean(values), *expected))


def test_a_single_value_has_no_interval():
    mean, low, high = mean_interval(np.array([3.0]))
    assert mean == 3
    assert np.isnan([low, high]).all()


def test_logit_interval_is_the_normal_one_of_the_logit():
    # logit(0.8) = log 4; by the delta method its standard error is 0.02 / 0.16.
    low, high = logit_interval(0.8, 0.02, 0.9)
    ends = stats.norm.interval(0.9, np.log(4), 0.125)
    assert (low, high) == pytest.approx(tuple(expit(ends)))
    assert logit_interval(0.8, 0.02) == pytest.approx(tuple(expit(stats.norm.interval(0.95, np.log(4), 0.125))))


def test_quantiles_of_a_mixture_of_betas():
    one = mixed_beta_quantiles((0.025, 0.5, 0.975), np.ones(1), np.array([3.5]), np.array([9.5]))
    assert one == pytest.approx(tuple(stats.beta.ppf([0.025, 0.5, 0.975], 3.5, 9.5)), abs=1e-12)
    weights, a, b = np.array([0.2, 0.8]), np.array([2.0, 30.0]), np.array([5.0, 4.0])

    def excess(x):
        return 0.2 * stats.beta.cdf(x, 2, 5) + 0.8 * stats.beta.cdf(x, 30, 4) - 0.1

    assert mixed_beta_quantiles((0.1,), weights, a, b)[0] == pytest.approx(brentq(excess, 0, 1), abs=1e-9)


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_bootstrap_of_rows_is_scipys_percentile_bootstrap(confidence):
    """With the same generator scipy draws the same rows."""
    values = np.random.default_rng(1).exponential(size=60)
    ours = bootstrap_rows(lambda rows: {"mean": values[rows].mean(), "n": len(rows)}, 60, 300, confidence, seed=4)
    theirs = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=300,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(4),
    )
    assert ours["mean"] == pytest.approx(tuple(theirs.confidence_interval))
    assert ours["n"] == (60, 60)


def test_bootstrap_of_rows_draws_200_times_with_seed_0_at_95_percent():
    values = np.random.default_rng(1).exponential(size=40)
    ours = bootstrap_rows(lambda rows: {"mean": values[rows].mean()}, 40)["mean"]
    theirs = stats.bootstrap((values,), np.mean, n_resamples=200, method="percentile", rng=np.random.default_rng(0))
    assert ours == pytest.approx(tuple(theirs.confidence_interval))
