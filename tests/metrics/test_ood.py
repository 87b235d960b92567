"""Scores against scipy, detection against scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit, logit, logsumexp, softmax
from scipy.stats import entropy
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from testbed.metrics import ood
from testbed.stats.intervals import clopper_pearson

RNG = np.random.default_rng(0)
LOGITS = 3 * RNG.normal(size=(50, 6))
# Rounded, so that there are ties.
KNOWN, UNKNOWN = RNG.normal(1, 1, 700).round(1), RNG.normal(0, 1, 300).round(1)
IS_UNKNOWN = np.r_[np.zeros(700), np.ones(300)]
ALL = np.r_[KNOWN, UNKNOWN]


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("msp", softmax(LOGITS, axis=1).max(1)),
        ("max_logit", LOGITS.max(1)),
        ("energy", logsumexp(LOGITS, axis=1)),
        ("entropy", -entropy(softmax(LOGITS, axis=1), axis=1)),
    ],
)
def test_scores(score, expected):
    np.testing.assert_allclose(ood.familiarity(LOGITS, score), expected, rtol=1e-9)


def test_detection_is_scikit_learns():
    found = ood.detection(KNOWN, UNKNOWN)
    assert found["auroc"].value == pytest.approx(100 * roc_auc_score(IS_UNKNOWN, -ALL))
    assert found["aupr_out"].value == pytest.approx(100 * average_precision_score(IS_UNKNOWN, -ALL))
    assert found["aupr_in"].value == pytest.approx(100 * average_precision_score(1 - IS_UNKNOWN, ALL))
    fpr, tpr, _ = roc_curve(IS_UNKNOWN, -ALL, drop_intermediate=False)
    assert found["fpr95"].value == pytest.approx(100 * fpr[np.argmax(tpr >= 0.95)])
    assert all(e.ci_low < e.value < e.ci_high for e in found.values())


def logit_ends(value, error):
    """The normal 95 % interval of the logit, in percent."""
    return 100 * expit(stats.norm.interval(0.95, logit(value), error / (value * (1 - value))))


def test_interval_of_auroc_is_delongs_on_the_logit_scale():
    """Every pair by itself: 1 where the known picture scores higher, 1/2 for a tie (DeLong et al. 1988)."""
    wins = (KNOWN[:, None] > UNKNOWN) + 0.5 * (KNOWN[:, None] == UNKNOWN)
    variance = wins.mean(axis=1).var(ddof=1) / 700 + wins.mean(axis=0).var(ddof=1) / 300
    found = ood.auroc(KNOWN, UNKNOWN)
    assert (found.ci_low, found.ci_high) == pytest.approx(tuple(logit_ends(wins.mean(), np.sqrt(variance))), abs=1e-5)
    assert found.n == 1000


def test_interval_of_auroc_is_as_wide_as_resampling_says():
    rng = np.random.default_rng(3)
    draws = [ood.auroc(rng.choice(KNOWN, 700), rng.choice(UNKNOWN, 300)).value for _ in range(300)]
    found = ood.auroc(KNOWN, UNKNOWN)
    assert found.ci_high - found.ci_low == pytest.approx(4 * np.std(draws), rel=0.15)


def test_interval_of_auroc_agrees_with_hanley_and_mcneil_for_exponential_scores():
    """Their closed form (1982) is exact for exponential scores: Q1 = A / (2 - A), Q2 = 2 A^2 / (1 + A)."""
    rng = np.random.default_rng(0)
    known, unknown = rng.exponential(3.0, 4000), rng.exponential(1.0, 3000)
    found = ood.auroc(known, unknown)
    a = 0.75
    q1, q2 = a / (2 - a), 2 * a**2 / (1 + a)
    error = np.sqrt((a * (1 - a) + 3999 * (q1 - a**2) + 2999 * (q2 - a**2)) / (4000 * 3000))
    assert found.value == pytest.approx(75, abs=300 * error)
    assert found.ci_high - found.ci_low == pytest.approx(2 * 1.96 * 100 * error, rel=0.04)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_interval_of_average_precision_is_the_infinitesimal_jackknife_of_scikit_learns(shift):
    """How the value moves with the weight of each picture, by scikit-learn's sample_weight, gives the same variance."""
    rng = np.random.default_rng(1)
    positives, negatives = rng.normal(shift, 1, 40).round(1), rng.normal(0, 1, 70).round(1)
    truth, scores = np.r_[np.ones(40), np.zeros(70)], np.r_[positives, negatives]

    def moved(i, by):
        weights = np.ones(110)
        weights[i] += by
        return average_precision_score(truth, scores, sample_weight=weights)

    slopes = np.array([(moved(i, 1e-5) - moved(i, -1e-5)) / 2e-5 for i in range(110)])
    variance = 40 * slopes[:40].var(ddof=1) + 70 * slopes[40:].var(ddof=1)
    found = ood.average_precision(positives, negatives)
    value = average_precision_score(truth, scores)
    assert found.value == pytest.approx(100 * value)
    assert (found.ci_low, found.ci_high) == pytest.approx(tuple(logit_ends(value, np.sqrt(variance))), abs=1e-3)
    assert found.n == 110


def fpr_distribution(known, unknown):
    """The distribution function of the share of known pictures below the true threshold, term by term."""
    ordered, n, m = np.sort(unknown), len(unknown), len(known)
    chances = [stats.binom.pmf(j, n, 0.95) for j in range(n + 1)]
    shares = []
    for j in range(n + 1):
        after = (known <= ordered[j - 1]).sum() if j > 0 else 0
        until = (known < ordered[j]).sum() if j < n else m
        shares.append((after + until) / 2 / m)
    mean = np.average(shares, weights=chances)
    distance = np.average(np.abs(np.array(shares) - mean), weights=chances)
    images = m * min(mean * (1 - mean) / max(mean * (1 - mean) - distance, 1e-9), 2)

    def share_of(x):
        terms = zip(chances, shares, strict=True)
        return sum(c * stats.beta.cdf(x, images * s + 0.5, images * (1 - s) + 0.5) for c, s in terms)

    return share_of


@pytest.mark.parametrize(("shift", "n_known", "n_unknown"), [(1.0, 60, 90), (2.0, 150, 40), (0.0, 30, 10)])
def test_interval_of_fpr95_covers_threshold_and_share(shift, n_known, n_unknown):
    rng = np.random.default_rng(2)
    known, unknown = rng.normal(shift, 1, n_known).round(1), rng.normal(0, 1, n_unknown).round(1)
    found = ood.fpr_at_95(known, unknown)
    distribution = fpr_distribution(known, unknown)
    low, high = (brentq(lambda x, q=q: distribution(x) - q, 0, 1) for q in (0.025, 0.975))
    assert (found.ci_low, found.ci_high) == pytest.approx((100 * low, 100 * max(high, found.value / 100)), abs=1e-6)


def test_interval_of_fpr95_is_nearly_scipys_bootstrap_of_both_samples():
    """And far wider than the exact interval at a fixed threshold, which held the truth in 73 % of cases."""
    rng = np.random.default_rng(0)
    known, unknown = rng.normal(1.5, 1, 800), rng.normal(0, 1, 800)

    def share_at(known, unknown):
        return (known <= np.sort(unknown)[759]).mean()

    drawn = stats.bootstrap(
        (known, unknown), share_at, vectorized=False, n_resamples=1500, method="percentile", rng=rng
    )
    found = ood.fpr_at_95(known, unknown)
    ends = 100 * np.array(drawn.confidence_interval)
    assert (found.ci_low, found.ci_high) == pytest.approx(tuple(ends), abs=1.5)
    fixed = stats.binomtest(int((known <= np.sort(unknown)[759]).sum()), 800).proportion_ci()
    assert found.ci_high - found.ci_low > 1.4 * 100 * (fixed.high - fixed.low)


def test_too_few_unknown_pictures_leave_the_threshold_open():
    """The true threshold is above all n scores with chance 0.95 ** n, and then rejects half of the rest, or more."""
    known = np.linspace(5, 6, 50)
    assert 0.95**71 > 0.025 > 0.95**73
    assert ood.fpr_at_95(known, np.linspace(0, 1, 71)).ci_high > 30
    assert ood.fpr_at_95(known, np.linspace(0, 1, 73)).ci_high < 30


def test_fpr95_of_many_pictures_leaves_out_only_what_cannot_be():
    chances, places = ood._quantile_places(200_000, 0.95)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert len(places) < 3000
    np.testing.assert_allclose(chances, stats.binom.pmf(places, 200_000, 0.95), rtol=1e-6, atol=1e-15)


def test_perfect_and_hopeless_detection():
    assert ood.auroc(np.array([2.0, 3.0]), np.array([0.0, 1.0])).value == 100
    assert ood.auroc(np.array([0.0, 0.0]), np.array([0.0, 0.0])).value == 50
    with pytest.raises(ValueError, match="expected scores of both kinds, got 0 and 2"):
        ood.detection(np.array([]), np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="expected scores of both kinds, got 2 and 0"):
        ood.detection(np.array([1.0, 2.0]), np.array([]))


def test_perfect_detection_is_as_sure_as_the_smaller_sample():
    """30 of 30: the exact interval begins at 0.025 ** (1 / 30). Nothing varied, so DeLong would say 100 to 100."""
    known, unknown = np.arange(30.0) + 100, np.arange(50.0)
    for found in (ood.auroc(known, unknown), ood.average_precision(known, unknown)):
        assert (found.value, found.ci_high) == (100, 100)
        assert found.ci_low == pytest.approx(100 * 0.025 ** (1 / 30))
    hopeless = ood.auroc(unknown, known)
    assert (hopeless.value, hopeless.ci_low, hopeless.ci_high) == pytest.approx((0, 0, 100 - 100 * 0.025 ** (1 / 30)))
    alone = ood.auroc(np.array([1.0]), np.array([0.0, 2.0]))
    assert (alone.value, alone.ci_low, alone.ci_high) == pytest.approx(
        (50, *(100 * e for e in clopper_pearson(0.5, 1)))
    )


def test_mean_scores_need_no_labels():
    found = ood.mean_scores(LOGITS)
    assert list(found) == ["msp_mean", "max_logit_mean", "energy_mean", "entropy_mean"]
    assert found["energy_mean"].value == pytest.approx(logsumexp(LOGITS, axis=1).mean())


@pytest.mark.parametrize(("n", "share"), [(5, 0.05), (60, 0.05), (60, 0.5)])
def test_places_of_a_quantile_have_scipys_binomial_probabilities(n, share):
    chances, places = ood._quantile_places(n, share)
    np.testing.assert_allclose(chances, stats.binom.pmf(places, n, share), atol=1e-14)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
