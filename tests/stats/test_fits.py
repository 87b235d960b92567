"""Fits: published coefficients and bands, scipy on committed numbers, the two-piece fit, the JSON form."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from testbed.stats.axes import AXES, axis_grid, to_axis
from testbed.stats.fits import (
    PUBLISHED_SEED,
    LineDraws,
    LineFit,
    TwoPieceDraws,
    TwoPieceFit,
    bootstrap,
    describe,
    fit,
    fit_from_dict,
    fit_line,
)

V2 = ("val", "imagenetv2-matched-frequency-format-val")
OBJECTNET = ("val-on-objectnet-classes", "objectnet-1.0-beta")
IMAGENET_A = ("val-on-imagenet-a-classes", "imagenet-a")

# Ten made-up models.
REFERENCE = np.array([56.5, 60.1, 64.0, 67.3, 69.8, 71.6, 74.2, 76.1, 78.3, 82.7])
SHIFTED = np.array([43.4, 47.9, 50.2, 54.8, 57.3, 58.1, 62.2, 63.3, 66.9, 72.4])


def line_draws(*arguments, **options) -> LineDraws:
    draws = bootstrap(*arguments, **options)
    assert isinstance(draws, LineDraws)
    return draws


# Published: imagenet-testbed's table, standard models, fitted and resampled by its own recipe.
@pytest.mark.parametrize(
    ("settings", "only_obtainable", "n", "slope", "intercept", "r2"),
    [
        (V2, False, 85, 0.923229, -0.497690, 0.996046),
        (OBJECTNET, False, 85, 0.980910, -1.928289, 0.952511),
        (V2, True, 61, 0.932181, -0.508206, 0.997392),
        (OBJECTNET, True, 61, 1.005768, -1.948056, 0.984947),
    ],
)
def test_published_lines_come_out(published, settings, only_obtainable, n, slope, intercept, r2):
    x, y = (published.column(name) for name in settings)
    chosen = published.standard & (published.obtainable() if only_obtainable else True) & (x >= 55)
    line = fit(x[chosen], y[chosen])
    assert isinstance(line, LineFit)
    assert line.n == n
    assert (line.slope, line.intercept, line.r2) == pytest.approx((slope, intercept, r2), abs=5e-7)


def test_published_bootstrap_comes_out(published):
    x, y = (published.column(name)[published.standard] for name in V2)
    line, draws = fit_line(x, y), line_draws(x, y)
    assert (line.r, line.slope_stderr) == pytest.approx((0.998021, 0.006385), abs=5e-7)
    intervals = draws.coefficient_intervals()
    assert intervals["slope"] == pytest.approx((0.910224, 0.936147), abs=5e-7)
    assert intervals["intercept"] == pytest.approx((-0.513618, -0.481195), abs=5e-7)
    low, high = draws.band([60, 70, 80])
    assert low == pytest.approx([46.6399, 56.9079, 68.5210], abs=5e-5)
    assert high == pytest.approx([47.2117, 57.2252, 68.7068], abs=5e-5)


def test_imagenet_a_breaks_at_the_model_without_any_accuracy(published):
    x, y = (published.column(name)[published.standard] for name in IMAGENET_A)
    broken = fit(x, y)
    assert isinstance(broken, TwoPieceFit)
    assert broken.pivot == pytest.approx(91.86, abs=1e-5)  # resnet50
    assert (broken.below.n, broken.above.n) == (33, 51)
    left = stats.linregress(to_axis(x[x < broken.pivot]), to_axis(y[x < broken.pivot]))
    right = stats.linregress(to_axis(x[x > broken.pivot]), to_axis(y[x > broken.pivot]))
    assert (broken.below.slope, broken.below.intercept) == pytest.approx((left.slope, left.intercept))
    assert (broken.above.slope, broken.above.intercept) == pytest.approx((right.slope, right.intercept))


@pytest.mark.parametrize("axis", AXES)
def test_least_squares_on_every_axis_agrees_with_scipy(axis):
    line = fit_line(REFERENCE, SHIFTED, axis)
    expected = stats.linregress(to_axis(REFERENCE, axis), to_axis(SHIFTED, axis))
    assert (line.slope, line.intercept) == pytest.approx((expected.slope, expected.intercept))
    assert (line.r, line.r2) == pytest.approx((expected.rvalue, expected.rvalue**2))
    assert (line.slope_stderr, line.intercept_stderr) == pytest.approx((expected.stderr, expected.intercept_stderr))


def test_prediction_follows_the_line_by_hand():
    line = LineFit(2.0, -1.0, None, None, None, None, 2)
    # odds 3 to 1 become odds 9 / e
    assert line.predict(75) == pytest.approx(100 * (9 / np.e) / (1 + 9 / np.e))


@pytest.mark.parametrize("method", ["theil-sen", "huber"])
def test_robust_methods_bear_one_broken_model(method):
    broken = SHIFTED.copy()
    broken[-1] = 5.0
    whole, pulled = fit_line(REFERENCE, SHIFTED), fit_line(REFERENCE, broken)
    robust = fit_line(REFERENCE, broken, method=method)
    assert abs(robust.slope - whole.slope) < 0.15 < abs(pulled.slope - whole.slope)
    assert (robust.slope_stderr, robust.intercept_stderr) == (None, None)
    assert robust.method == method


def test_bootstrap_equals_lstsq_on_the_published_draws():
    x, y = to_axis(REFERENCE), to_axis(SHIFTED)
    generator, n = np.random.RandomState(PUBLISHED_SEED), len(x)
    expected = []
    for _ in range(1000):
        rows = generator.choice(n, n)
        expected.append(np.linalg.lstsq(np.column_stack([np.ones(n), x[rows]]), y[rows], rcond=None)[0])
    draws = line_draws(REFERENCE, SHIFTED)
    np.testing.assert_allclose(np.column_stack([draws.intercepts, draws.slopes]), expected, rtol=1e-9)
    low, high = draws.coefficient_intervals()["slope"]
    ordered = np.sort(np.array(expected)[:, 1])
    assert (low, high) == pytest.approx((ordered[24], ordered[975]))  # at or outside 2.5 and 97.5 %


@pytest.mark.parametrize("method", ["ols", "theil-sen", "huber"])
def test_the_band_surrounds_the_line_and_widens_with_confidence(method):
    grid = axis_grid(55, 85)
    line, draws = fit_line(REFERENCE, SHIFTED, method=method), line_draws(REFERENCE, SHIFTED, method=method)
    low, high = draws.band(grid)
    wide_low, wide_high = draws.band(grid, confidence=0.995)
    assert low.shape == grid.shape
    assert (low <= line.predict(grid)).all()
    assert (line.predict(grid) <= high).all()
    assert (wide_low <= low).all()
    assert (high <= wide_high).all()


def test_resampling_in_blocks_changes_nothing(monkeypatch):
    whole = line_draws(REFERENCE, SHIFTED, method="theil-sen")
    monkeypatch.setattr("testbed.stats.fits.BLOCK", 5000)
    parted = line_draws(REFERENCE, SHIFTED, method="theil-sen")
    np.testing.assert_array_equal(whole.slopes, parted.slopes)


def test_resamples_without_a_line_are_left_out_of_the_intervals():
    draws = line_draws([60, 70, 80], [50, 58, 70])
    assert 0 < np.isnan(draws.slopes).sum() < 200  # one model three times: 1 in 9
    assert np.isfinite(draws.coefficient_intervals()["slope"]).all()


def test_models_that_lack_an_accuracy_are_left_out():
    line = fit_line([*REFERENCE, 70.0, np.nan], [*SHIFTED, np.nan, 60.0])
    assert line == fit_line(REFERENCE, SHIFTED)


def test_two_lines_are_used_on_their_own_sides_of_the_pivot():
    x = np.array([60.0, 65, 70, 75, 80, 85, 90])
    y = np.array([2.0, 2.2, 2.4, 0.0, 10.0, 20, 40])
    broken = fit(x, y)
    assert isinstance(broken, TwoPieceFit)
    assert (broken.pivot, broken.below.n, broken.above.n, broken.n) == (75.0, 3, 3, 6)
    below, above = fit_line(x[:3], y[:3]), fit_line(x[4:], y[4:])
    np.testing.assert_allclose(
        broken.predict([62, 75, 75.1]), [below.predict(62), below.predict(75), above.predict(75.1)]
    )
    draws = bootstrap(x, y)
    assert isinstance(draws, TwoPieceDraws)
    assert draws.predict([62, 88]).shape == (1000, 2)
    low, high = draws.band([62.0])
    assert low[0] <= below.predict(62) <= high[0]


def test_of_several_models_without_accuracy_the_best_is_the_pivot():
    x = np.array([60.0, 65, 67, 70, 75, 80, 85])
    y = np.array([2.0, 2.2, 0.0, 2.4, 0.0, 10.0, 20])
    broken = fit(x, y)
    assert isinstance(broken, TwoPieceFit)
    assert (broken.pivot, broken.below.n, broken.above.n) == (75.0, 3, 2)


def test_one_line_will_do_where_zero_has_a_place():
    x, y = [60, 70, 80, 90], [2.0, 0.0, 10.0, 20.0]
    assert isinstance(fit(x, y, clip=0.1), LineFit)
    assert isinstance(fit(x, y, axis="linear"), LineFit)
    with pytest.raises(ValueError, match="strictly between 0 and 100"):
        fit_line(x, y)
    with pytest.raises(ValueError, match=r"got 1 below and 2 above; leave it out or pass clip"):
        fit(x, y)


def test_too_few_models_are_refused():
    with pytest.raises(ValueError, match="at least 2 models with different reference accuracy"):
        fit_line([70, 70], [50, 60])
    with pytest.raises(ValueError, match="equally long"):
        fit_line([70, 80], [50, 60, 70])
    with pytest.raises(ValueError, match="confidence between 0 and 1, got 95"):
        line_draws(REFERENCE, SHIFTED).band([60], confidence=95)


def test_what_is_undefined_is_none():
    flat = fit_line([60, 70, 80], [50, 50, 50])
    assert (flat.r, flat.r2) == (None, None)
    assert fit_line([60, 70], [50, 55]).slope_stderr is None


def test_three_models_are_enough_for_the_standard_error_of_scipy():
    x, y = [60, 70, 80], [50, 53, 62]
    fitted, expected = fit_line(x, y, "linear"), stats.linregress(x, y)
    assert (fitted.slope, fitted.slope_stderr) == pytest.approx((expected.slope, expected.stderr))


@pytest.mark.parametrize(
    ("reference", "shifted"),
    [
        (REFERENCE, SHIFTED),
        ([60, 70, 80], [50, 50, 50]),
        ([60, 65, 70, 75, 80, 85, 90], [2.0, 2.2, 2.4, 0.0, 10.0, 20.0, 40.0]),
    ],
)
def test_a_fit_survives_json_and_predicts_the_same(reference, shifted):
    fitted, draws = fit(reference, shifted), bootstrap(reference, shifted)
    text = json.dumps(describe(fitted, draws), allow_nan=False)
    again = fit_from_dict(json.loads(text))
    assert again == fitted
    assert fit_from_dict(fitted.to_dict()) == fitted


def test_the_json_form_names_what_people_ask_for():
    data = describe(fit(REFERENCE, SHIFTED), bootstrap(REFERENCE, SHIFTED))
    assert {"kind", "axis", "method", "slope", "intercept", "r", "r2", "slope_stderr", "n", "formula"} <= set(data)
    assert data["bootstrap"]["resamples"] == 1000
    assert data["bootstrap"]["slope"][0] < data["slope"] < data["bootstrap"]["slope"][1]
    with pytest.raises(ValueError, match="kind 'line' or 'two-piece', got 'curve'"):
        fit_from_dict({"kind": "curve"})
