"""Calibration against scikit-learn, scipy and plain loops."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from scipy.stats import bootstrap, norm, sem
from sklearn.metrics import log_loss

from testbed.metrics import calibration as c
from testbed.metrics import softmax as softmax_module


def case(n=600, classes=7, scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes)) * scale
    logits[np.arange(n), targets] += 1.5
    return logits.astype(np.float32), targets


def test_nll_is_scikit_learns_log_loss():
    logits, targets = case()
    p = softmax(logits.astype(np.float64), axis=1)
    found = c.nll(logits, targets)
    assert found.value == pytest.approx(log_loss(targets, p, labels=range(7)), rel=1e-5)
    assert found.ci_low < found.value < found.ci_high
    assert found.n == 600


def test_brier_is_the_squared_distance_from_the_labels_corner():
    logits, targets = case()
    p = softmax(logits.astype(np.float64), axis=1)
    assert c.brier(logits, targets).value == pytest.approx(((p - np.eye(7)[targets]) ** 2).sum(1).mean(), rel=1e-5)


def by_loop(logits, targets, edges):
    """Naeini et al. 2015, bin by bin: (edge, next edge]."""
    p = softmax(logits.astype(np.float64), axis=1)
    confidence, right = p.max(1), p.argmax(1) == targets
    total = 0.0
    for low, high in pairwise(edges):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return 100 * total


@pytest.mark.parametrize("bins", [5, 15])
def test_ece_is_the_gap_over_equal_width_bins(bins):
    logits, targets = case()
    found = c.ece(logits, targets, bins)
    assert found.value == pytest.approx(by_loop(logits, targets, np.linspace(0, 1, bins + 1)), abs=1e-3)
    assert found.ci_low <= found.value <= found.ci_high


def test_adaptive_ece_has_equally_many_images_per_bin():
    logits, targets = case(n=60)
    p = softmax(logits.astype(np.float64), axis=1)
    order = np.argsort(p.max(1))
    gap = (p.argmax(1) == targets) - p.max(1)
    expected = 100 * np.mean([abs(gap[part].mean()) for part in np.split(order, 15)])
    assert c.adaptive_ece(logits, targets).value == pytest.approx(expected, abs=1e-3)


def test_ece_worked_by_hand():
    # Two images at confidence 0.9 (one wrong), two at 0.6 (both right): (2 * |0.5 - 0.9| + 2 * |1 - 0.6|) / 4 = 0.4
    logits = np.log(np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.4, 0.6]]))
    assert c.ece(logits, np.array([0, 1, 0, 1])).value == pytest.approx(40, abs=1e-3)


@pytest.mark.parametrize("scale", [1.0, 2.0, 8.0])
def test_temperature_is_the_one_a_general_optimiser_finds(scale):
    logits, targets = case(scale=scale)

    def loss(log_t):
        return -log_softmax(logits.astype(np.float64) / np.exp(log_t), axis=1)[np.arange(600), targets].mean()

    best = np.exp(minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-8}).x)
    assert c.fit_temperature(logits, targets) == pytest.approx(best, rel=1e-4)


@pytest.mark.parametrize("factor", [1 / 50, 25.0])
def test_temperature_grows_with_the_logits_to_the_same_precision(factor):
    logits, targets = case()
    best = c.fit_temperature(logits, targets, tolerance=1e-9)
    assert c.fit_temperature(factor * logits, targets) == pytest.approx(factor * best, rel=1e-5)


def test_interval_of_the_temperature_is_as_wide_as_resampling_says():
    logits, targets = case(n=800, scale=1.5)
    found = c.calibration(logits, targets)["temperature"]
    rng = np.random.default_rng(0)
    draws = [c.fit_temperature(logits[rows], targets[rows]) for rows in (rng.integers(0, 800, 800) for _ in range(300))]
    spread = np.log(draws).std()
    assert np.log(found.ci_high / found.ci_low) == pytest.approx(2 * 1.96 * spread, rel=0.12)
    assert np.sqrt(found.ci_low * found.ci_high) == pytest.approx(found.value)


def test_interval_of_the_temperature_is_the_sandwich_of_scipys_derivatives():
    logits, targets = case(n=300)
    wide = logits.astype(np.float64)

    def of_images(inverse):
        return -log_softmax(inverse * wide, axis=1)[np.arange(300), targets]

    inverse, step = 1 / 1.7, 1e-4
    slopes = (of_images(inverse + step) - of_images(inverse - step)) / (2 * step)
    curvature = (of_images(inverse + step) - 2 * of_images(inverse) + of_images(inverse - step)).mean() / step**2
    error = np.sqrt((slopes**2).mean() / 300) / curvature / inverse
    low, high = c.temperature_interval(logits, targets, 1.7)
    assert (low, high) == pytest.approx((1.7 * np.exp(-1.959964 * error), 1.7 * np.exp(1.959964 * error)), rel=1e-4)


def test_temperature_without_any_curvature_has_no_interval():
    assert c.temperature_interval(np.zeros((4, 3)), np.array([0, 1, 2, 0]), 1.0) == (0, np.inf)
    assert c.calibration(np.zeros((4, 3)), np.array([0, 1, 2, 0]))["temperature"].ci_low is None


def resampled_by_scipy(function, n):
    """The percentile interval of 200 resamples, drawn by scipy with the same generator."""
    rows = np.arange(n)
    drawn = bootstrap(
        (rows,), function, vectorized=False, n_resamples=200, method="percentile", rng=np.random.default_rng(0)
    )
    return tuple(drawn.confidence_interval)


@pytest.mark.parametrize("adaptive", [False, True])
def test_interval_of_the_calibration_error_is_scipys_percentile_bootstrap_of_images(adaptive):
    logits, targets = case(n=300)
    p = softmax(logits.astype(np.float64), axis=1)
    confidence, right = p.max(1), p.argmax(1) == targets
    if adaptive:
        place = np.empty(300, dtype=int)
        place[np.argsort(confidence, kind="stable")] = np.arange(300) // 20  # 15 bins of 20 images
    else:
        place = np.minimum((np.ceil(confidence * 15) - 1).astype(int), 14)

    def error(rows):
        gap = (right - confidence)[rows]
        return 100 * sum(abs(gap[place[rows] == b].sum()) for b in range(15)) / len(rows)

    found = c.adaptive_ece(logits, targets) if adaptive else c.ece(logits, targets)
    low, high = resampled_by_scipy(error, 300)
    assert (found.ci_low, found.ci_high) == pytest.approx((min(low, found.value), max(high, found.value)), abs=1e-3)


def test_interval_of_the_selective_risk_is_scipys_percentile_bootstrap_of_images():
    rng = np.random.default_rng(5)
    confidence = np.sort(rng.random(80))[::-1]  # rows are drawn in the order of confidence
    correct = rng.random(80) < confidence

    def area(rows):
        order = rows[np.argsort(-confidence[rows], kind="stable")]
        wrong = ~correct[order]  # the same image several times has the same outcome, so ties do not matter
        return 100 * (np.cumsum(wrong) / np.arange(1, len(rows) + 1)).mean()

    found = c.selective_risk_of(c.Scores(np.zeros(80), np.zeros(80), confidence, correct))
    assert (found.ci_low, found.ci_high) == pytest.approx(resampled_by_scipy(area, 80))


def test_intervals_of_nll_and_brier_are_normal():
    logits, targets = case()
    p = softmax(logits.astype(np.float64), axis=1)
    for found, values in (
        (c.nll(logits, targets), -np.log(p[np.arange(600), targets])),
        (c.brier(logits, targets), ((p - np.eye(7)[targets]) ** 2).sum(1)),
    ):
        assert (found.ci_low, found.ci_high) == pytest.approx(norm.interval(0.95, values.mean(), sem(values)), rel=1e-5)


def test_temperature_of_a_model_that_is_never_wrong_ends_at_the_bound():
    logits = np.array([[5.0, 0.0], [0.0, 5.0]])
    assert 0 < c.fit_temperature(logits, np.array([0, 1])) < 0.1


def test_temperature_mends_an_overconfident_model():
    logits, targets = case(n=4000)
    found = c.calibration(6 * logits, targets)
    assert found["ece_at_temperature"].value < found["ece"].value / 3
    assert found["nll_at_temperature"].value < found["nll"].value


def test_images_without_a_label_are_left_out():
    logits, targets = case()
    hidden = np.where(np.arange(600) % 3 == 0, -1, targets)
    kept = hidden >= 0
    assert c.nll(logits, hidden) == c.nll(logits[kept], targets[kept])


def test_rows_are_read_in_parts_without_changing_the_result(monkeypatch):
    logits, targets = case()
    whole = c.scores(logits, targets)
    monkeypatch.setattr(softmax_module, "_ELEMENTS_AT_ONCE", 7 * logits.shape[1])
    parts = c.scores(logits, targets)
    for field in ("nll", "brier", "confidence", "correct"):
        np.testing.assert_array_equal(getattr(parts, field), getattr(whole, field))


def test_scores_of_a_very_sure_model_stay_in_their_range():
    logits = 60 * np.eye(5, dtype=np.float32)[[0, 1, 2, 3]]
    per_image = c.scores(logits, np.array([0, 1, 2, 0]))
    assert (per_image.nll >= 0).all()
    assert (per_image.brier >= 0).all()
    assert per_image.brier[3] == pytest.approx(2)


def test_bins_hold_counts_confidence_and_accuracy_and_give_the_ece():
    logits, targets = case()
    per_image = c.scores(logits, targets)
    bins = c.binned(per_image.confidence, per_image.correct, c.equal_width_places(per_image.confidence, 10), 10)
    assert bins.count.sum() == 600
    inside = (per_image.confidence > 0.8) & (per_image.confidence <= 0.9)
    assert bins.count[8] == inside.sum()
    assert bins.confidence[8] == pytest.approx(per_image.confidence[inside].mean())
    assert bins.accuracy[8] == pytest.approx(per_image.correct[inside].mean())
    assert np.isnan(bins.accuracy[0])  # with 7 classes nobody is less sure than 1/7
    assert bins.expected_error == c.ece(logits, targets, 10).value


def test_selective_risk_averages_the_error_among_the_surest():
    # Surest first: right, wrong, right, wrong; errors among the first k: 0, 1/2, 1/3, 1/2.
    confidence, correct = np.array([0.6, 0.9, 0.8, 0.7]), np.array([False, True, False, True])
    found = c.selective_risk_of(c.Scores(np.zeros(4), np.zeros(4), confidence, correct))
    assert found.value == pytest.approx(100 * (0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)


def test_selective_risk_of_a_model_that_is_always_equally_sure_is_its_error():
    correct = np.arange(100) < 70
    found = c.selective_risk_of(c.Scores(np.zeros(100), np.zeros(100), np.full(100, 0.5), correct))
    assert found.value == pytest.approx(30)
    assert found.ci_low < 30 < found.ci_high


def test_calibration_needs_two_labelled_images():
    logits, targets = case(n=2)
    assert c.calibration(logits, np.array([targets[0], -1])) == {}
    assert "ece" in c.calibration(logits, targets)


def test_each_half_is_scored_at_the_temperature_of_the_other():
    logits, targets = case(n=400)
    first, second = (c.fit_temperature(logits[half], targets[half]) for half in (slice(0, None, 2), slice(1, None, 2)))
    found = c.calibration(logits, targets)
    losses = [
        -log_softmax(logits[half].astype(float) / t, axis=1)[np.arange(200), targets[half]]
        for half, t in ((slice(0, None, 2), second), (slice(1, None, 2), first))
    ]
    assert found["nll_at_temperature"].value == pytest.approx(np.mean(losses), rel=1e-6)
    assert found["temperature"].value == pytest.approx((first + second) / 2)
    assert found["temperature"].n == 400


def test_temperature_is_found_in_few_steps(monkeypatch):
    """Newton's steps: a general bisection of the whole range to 1e-5 would take 30."""
    logits, targets = case(scale=2.0)
    calls, slope = [], c._nll_slope
    monkeypatch.setattr(c, "_nll_slope", lambda *arguments: calls.append(1) or slope(*arguments))
    c.fit_temperature(logits, targets)
    assert len(calls) < 10
