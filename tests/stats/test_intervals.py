"""Intervals of a share: published error bars, scipy, and the edges."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from testbed.stats.intervals import clopper_pearson, wilson

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
