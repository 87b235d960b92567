"""Two models on the same images: worked examples, scipy, and coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from testbed.stats.intervals import wilson
from testbed.stats.paired import bootstrap_difference, difference, mcnemar, paired_counts


def answers(both: int, only_first: int, only_second: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    """Two models' right-or-wrong arrays with these counts, in a mixed order."""
    counts = [both, only_first, only_second, neither]
    order = np.random.default_rng(0).permutation(sum(counts))
    first = np.repeat([True, True, False, False], counts)[order]
    return first, np.repeat([True, False, True, False], counts)[order]


def test_images_are_counted_by_who_had_them_right():
    counts = paired_counts(*answers(14, 5, 3, 22))
    assert (counts.both, counts.only_first, counts.only_second, counts.neither) == (14, 5, 3, 22)
    assert counts.n == 44


@pytest.mark.parametrize(("only_first", "only_second"), [(1, 7), (7, 1), (0, 5), (30, 30), (400, 460)])
def test_mcnemar_is_the_exact_sign_test_of_the_discordant_images(only_first, only_second):
    result = mcnemar(*answers(50, only_first, only_second, 9))
    expected = binomtest(only_first, only_first + only_second, 0.5).pvalue
    assert (result.only_first, result.only_second) == (only_first, only_second)
    assert result.p_value == pytest.approx(expected)


def test_mcnemar_by_hand():
    # 1 against 7: 2 * (1 + 8) / 2**8
    assert mcnemar(*answers(1, 1, 7, 12)).p_value == pytest.approx(18 / 256)
    assert mcnemar(*answers(5, 0, 0, 5)).p_value == 1.0


def test_difference_agrees_with_the_worked_example_of_newcombe():
    # Altman et al. (2000), Statistics with Confidence, table 6.2: 0.122, 95 % interval 0.011 to 0.226.
    result = difference(*answers(14, 5, 0, 22))
    assert (result.value, result.n) == (pytest.approx(100 * 5 / 41), 41)
    assert (result.low, result.high) == pytest.approx((1.1, 22.6), abs=0.06)


def test_difference_turns_its_sign_with_the_order():
    first, second = answers(60, 9, 4, 27)
    forth, back = difference(first, second), difference(second, first)
    assert (forth.value, forth.low, forth.high) == pytest.approx((-back.value, -back.high, -back.low))


def test_bootstrap_and_score_interval_agree_on_many_images():
    pair = answers(30_000, 2_600, 2_000, 15_400)
    score, resampled = difference(*pair), bootstrap_difference(*pair)
    assert resampled.value == score.value == pytest.approx(1.2)
    assert (resampled.low, resampled.high) == pytest.approx((score.low, score.high), abs=0.02)


def test_bootstrap_by_counts_is_the_bootstrap_over_images():
    first, second = answers(40, 12, 5, 23)
    by_image = first.astype(int) - second.astype(int)
    rows = np.random.default_rng(1).integers(0, len(first), size=(10_000, len(first)))
    expected = np.percentile(100 * by_image[rows].mean(axis=1), [2.5, 97.5])
    result = bootstrap_difference(first, second)
    np.testing.assert_allclose([result.low, result.high], expected, atol=1.3)  # an image is 1.25 points


def test_agreement_on_every_image_still_has_a_score_interval():
    pair = answers(50, 0, 0, 0)
    assert (bootstrap_difference(*pair).low, bootstrap_difference(*pair).high) == (0, 0)
    assert difference(*pair).low < 0 < difference(*pair).high


def test_phi_that_is_smaller_than_its_correction_counts_as_0():
    """Newcombe 1998, method 10: two images of each kind but 3 and 1 that one model has alone, so ad - bc = 1."""
    found = difference(*answers(2, 3, 1, 2))
    (l1, u1), (l2, u2) = wilson(5, 8), wilson(3, 8)
    p1, p2 = 5 / 8, 3 / 8
    below, above = np.hypot(p1 - l1, u2 - p2), np.hypot(u1 - p1, p2 - l2)
    assert (found.low, found.high) == pytest.approx((25 - 100 * below, 25 + 100 * above))


def test_score_interval_covers_the_truth_about_as_often_as_it_says():
    rng, truth, hits = np.random.default_rng(2), 5.0, 0
    for _ in range(600):
        both, only_first, only_second, neither = rng.multinomial(200, [0.5, 0.15, 0.10, 0.25])
        result = difference(*answers(both, only_first, only_second, neither))
        hits += result.low <= truth <= result.high
    assert 0.92 < hits / 600 < 0.985


def test_confidence_widens():
    pair = answers(140, 50, 10, 220)
    for function in (difference, bootstrap_difference):
        usual, wide = function(*pair), function(*pair, confidence=0.995)
        assert wide.low < usual.low < usual.high < wide.high


def test_what_is_not_right_or_wrong_per_image_is_refused():
    right = np.array([True, False])
    with pytest.raises(ValueError, match=r"one boolean per image .* for the second model, got int64"):
        mcnemar(right, np.array([3, 7]))
    with pytest.raises(ValueError, match="same images, got 2 and 3"):
        difference(right, np.array([True, False, True]))
    with pytest.raises(ValueError, match="one boolean per image"):
        difference(right[:0], right[:0])
