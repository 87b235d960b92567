"""Effective robustness: published values, intervals against the normal approximation, correlations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from testbed.stats.effective_robustness import (
    effective_robustness,
    effective_robustness_interval,
    relative_robustness,
    robustness_correlation,
)
from testbed.stats.fits import LineDraws, LineFit, bootstrap, fit

V2 = "imagenetv2-matched-frequency-format-val"


IDENTITY = LineFit(1.0, 0.0, None, None, None, None, 2, "linear")


def exact(percent, n):
    """(value, low, high) of accuracies in percent of n images, with scipy's exact interval."""
    percent, n = np.broadcast_arrays(np.asarray(percent, dtype=float), n)
    ends = [
        stats.binomtest(round(p / 100 * k), int(k)).proportion_ci(method="exact")
        for p, k in zip(percent, n, strict=True)
    ]
    return percent, np.array([100 * end.low for end in ends]), np.array([100 * end.high for end in ends])


def bare(percent):
    """An accuracy without an interval."""
    values = np.asarray(percent, dtype=float)
    return values, np.full_like(values, np.nan), np.full_like(values, np.nan)


def identity_draws(resamples: int = 50) -> LineDraws:
    """Resampled lines that are all y = x, so that only images vary."""
    return LineDraws(np.ones(resamples), np.zeros(resamples), "linear", seed=0)


def test_published_values_come_out(published):
    x, y = published.column("val"), published.column(V2)
    line = fit(x[published.standard], y[published.standard])
    models = ("resnet50", "vit_b_32_clip_zeroshot")
    rho = effective_robustness(published.of("val", *models), published.of(V2, *models), line)
    assert rho == pytest.approx([-0.7376, 5.6288], abs=5e-5)


def test_clip_stands_above_the_line_beyond_chance_and_resnet50_does_not(published):
    x, y = published.column("val"), published.column(V2)
    draws = bootstrap(x[published.standard], y[published.standard])
    models = ("resnet50", "vit_b_32_clip_zeroshot")
    reference, shifted = published.of("val", *models), published.of(V2, *models)
    line = fit(x[published.standard], y[published.standard])
    low, high = effective_robustness_interval(exact(reference, 50_000), exact(shifted, 10_000), line, draws)
    assert low[0] < 0 < high[0]
    assert 4 < low[1] < 5.6288 < high[1] < 7


def test_the_distance_to_the_line_by_hand():
    line = LineFit(1.0, 0.0, None, None, None, None, 2)
    np.testing.assert_allclose(effective_robustness([60, 70], [50, 75], line), [-10, 5])


def test_images_alone_widen_as_the_normal_approximation_says():
    n_reference, n_shifted = 5000, 2000
    edges = exact([70.0], n_reference), exact([55.0], n_shifted)
    low, high = effective_robustness_interval(*edges, IDENTITY, identity_draws())
    sigma = 100 * np.sqrt(0.7 * 0.3 / n_reference + 0.55 * 0.45 / n_shifted)
    assert (high - low) / 2 == pytest.approx(1.96 * sigma, rel=0.02)
    assert (high + low) / 2 == pytest.approx(-15, abs=0.1 * sigma)


def test_sides_add_in_squares_by_hand():
    """y - x with x in [60, 73] and y in [51, 55 + 6]: below sqrt(4^2 + 3^2), above sqrt(6^2 + 10^2)."""
    x, y = ([70.0], [60.0], [73.0]), ([55.0], [51.0], [61.0])
    low, high = effective_robustness_interval(x, y, IDENTITY, identity_draws())
    assert (low[0], high[0]) == pytest.approx((-15 - 5, -15 + np.hypot(6, 10)))
    # Lines from 2 points below to 4 above: the band counts as one more side.
    draws = LineDraws(np.ones(1001), np.linspace(-0.02, 0.04, 1001), "linear", seed=0)
    low, high = effective_robustness_interval(x, y, IDENTITY, draws, confidence=0.999999)
    assert (low[0], high[0]) == pytest.approx((-15 - np.sqrt(4**2 + 3**2 + 4**2), -15 + np.sqrt(6**2 + 10**2 + 2**2)))


def test_a_falling_line_takes_the_other_end_of_the_reference():
    falling = LineFit(-1.0, 1.0, None, None, None, None, 2, "linear")
    draws = LineDraws(-np.ones(5), np.ones(5), "linear", seed=0)
    x, y = ([70.0], [60.0], [73.0]), ([55.0], [55.0], [55.0])
    low, high = effective_robustness_interval(x, y, falling, draws)
    assert (low[0], high[0]) == pytest.approx((25 - 10, 25 + 3))


def test_models_and_images_together_are_wider_than_either():
    reference = np.array([56.5, 60.1, 64.0, 67.3, 69.8, 71.6, 74.2, 76.1, 78.3, 82.7])
    shifted = np.array([43.4, 47.9, 50.2, 54.8, 57.3, 58.1, 62.2, 63.3, 66.9, 72.4])
    line, draws = fit(reference, shifted), bootstrap(reference, shifted)

    def width(x, y, **options) -> float:
        low, high = effective_robustness_interval(x, y, line, draws, **options)
        return float(high[0] - low[0])

    models = width(bare([63.3]), bare([55.8]))
    large, small = (exact([63.3], 50_000), exact([55.8], 10_000)), (exact([63.3], 500), exact([55.8], 100))
    assert 0 < models < width(*large) < width(*small)
    assert width(*large) < width(*large, confidence=0.995)
    exact_low, exact_high = draws.band([63.3])
    assert models == pytest.approx(float(exact_high[0] - exact_low[0]))


def test_a_model_that_lacks_an_accuracy_gets_none_and_edges_do_no_harm():
    line, draws = LineFit(1.0, 0.0, None, None, None, None, 2), LineDraws(np.ones(500), np.zeros(500), "logit", seed=0)
    x = tuple(np.append(np.nan, edge) for edge in exact([100.0, 98.0], 50))
    y = tuple(np.append(50.0, edge) for edge in exact([98.0, 94.0], [100, 50]))
    low, high = effective_robustness_interval(x, y, line, draws, clip=1)
    assert np.isnan([low[0], high[0]]).all()
    assert np.isfinite([low[1:], high[1:]]).all()
    nobody = effective_robustness_interval(bare([np.nan]), bare([50.0]), line, draws)
    assert np.isnan(nobody).all()


def test_a_two_piece_fit_serves_as_well_as_a_line():
    x, y = [60, 65, 70, 75, 80, 85, 90], [2.0, 2.3, 2.4, 0.0, 10.0, 22.0, 40.0]
    fitted, draws = fit(x, y), bootstrap(x, y)
    rho = effective_robustness([62.0, 88.0], [5.0, 30.0], fitted)
    edges = exact([62.0, 88.0], 50_000), exact([5.0, 30.0], 7_500)
    low, high = effective_robustness_interval(*edges, fitted, draws)
    assert (low < rho).all()
    assert (rho < high).all()


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="one value per model"):
        effective_robustness_interval(bare([70.0, 71.0]), bare([60.0]), IDENTITY, identity_draws())
    with pytest.raises(ValueError, match="one value per model"):
        effective_robustness_interval(([70.0], [60.0, 61.0], [80.0]), bare([60.0]), IDENTITY, identity_draws())


def test_relative_robustness_is_the_gain_over_the_model_it_came_from():
    np.testing.assert_allclose(relative_robustness([66.0, 60.0], 63.0), [3.0, -3.0])


def test_correlation_agrees_with_scipy_over_models_that_have_both():
    first = np.array([0.1, 2.0, np.nan, 1.1, -0.4, 3.0])
    second = np.array([0.3, 1.0, 5.0, 1.5, np.nan, 2.0])
    both = [0, 1, 3, 5]
    expected = stats.pearsonr(first[both], second[both])
    found = robustness_correlation(first, second, confidence=0.9)
    assert found.n == 4
    assert (found.r, found.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.9)))


def test_correlation_of_too_few_models_is_refused():
    with pytest.raises(ValueError, match="at least 3 models"):
        robustness_correlation([1.0, 2.0, np.nan], [1.0, 2.0, 3.0])
    assert robustness_correlation([1.0, 2.0, 4.0], [1.0, 2.0, 3.0]).n == 3
    with pytest.raises(ValueError, match="differ on both shifts"):
        robustness_correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
