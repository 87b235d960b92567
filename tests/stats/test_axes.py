"""Axes: values by hand, round trips, and what happens at 0 and 100."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.stats.axes import AXES, axis_grid, from_axis, to_axis


@pytest.mark.parametrize(
    ("axis", "percent", "position"),
    [
        ("logit", 50, 0.0),
        ("logit", 80, np.log(4)),  # odds 4 to 1
        ("logit", 10, -np.log(9)),
        ("probit", 50, 0.0),
        ("probit", 97.5, 1.959963984540054),  # the normal quantile in every table
        ("linear", 76.13, 0.7613),
        ("linear", 0, 0.0),
        ("linear", 100, 1.0),
    ],
)
def test_percentages_have_the_position_of_the_textbook(axis, percent, position):
    assert to_axis(percent, axis) == pytest.approx(position, abs=1e-12)
    assert from_axis(position, axis) == pytest.approx(percent, abs=1e-10)


@pytest.mark.parametrize("axis", AXES)
@settings(deadline=None)
@given(percent=st.lists(st.floats(1e-3, 100 - 1e-3), min_size=1, max_size=20))
def test_there_and_back_is_the_same_percentage(axis, percent):
    np.testing.assert_allclose(from_axis(to_axis(percent, axis), axis), percent, rtol=1e-9)


@pytest.mark.parametrize("axis", AXES)
@settings(deadline=None)
@given(pair=st.tuples(st.floats(0.01, 99.99), st.floats(0.01, 99.99)))
def test_axes_keep_the_order(axis, pair):
    first, second = to_axis(pair, axis)
    assert (first < second) == (pair[0] < pair[1]) or first == second


@pytest.mark.parametrize("axis", ["logit", "probit"])
@pytest.mark.parametrize("edge", [0, 100])
def test_edges_are_refused_unless_clipped(axis, edge):
    with pytest.raises(ValueError, match=f"strictly between 0 and 100 on the {axis} axis, got {edge}"):
        to_axis([50.0, edge], axis)
    clipped = from_axis(to_axis([50.0, edge], axis, clip=0.5), axis)
    np.testing.assert_allclose(clipped, [50.0, abs(edge - 0.5)])


def test_missing_stays_missing():
    assert np.isnan(to_axis([np.nan, 40.0])).tolist() == [True, False]


@pytest.mark.parametrize("wrong", [-0.1, 100.1, np.inf])
def test_what_is_no_percentage_is_refused_even_when_clipping(wrong):
    with pytest.raises(ValueError, match="expected percentages from 0 to 100"):
        to_axis([50.0, wrong], clip=1.0)


def test_an_unknown_axis_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="among logit, probit, linear, got 'log'"):
        to_axis(50, "log")
    with pytest.raises(ValueError, match="among logit, probit, linear"):
        from_axis(0.0, "log")


def test_a_grid_is_even_on_its_axis_and_ends_where_it_should():
    grid = axis_grid(55, 85)
    assert len(grid) == 200
    np.testing.assert_allclose(grid[[0, -1]], [55, 85])
    np.testing.assert_allclose(np.diff(to_axis(grid), 2), 0, atol=1e-12)


def test_importing_the_statistics_loads_nothing_heavy():
    modules = "axes, effective_robustness, estimators, fits, intervals, paired"
    heavy = "{'torch', 'pandas', 'matplotlib', 'statsmodels', 'scipy'}"
    code = f"import sys; from testbed.stats import {modules}; print(sorted({heavy} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
