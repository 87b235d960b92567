"""Scores against scipy, detection against scikit-learn."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import entropy
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from testbed.metrics import ood

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


def test_interval_of_auroc_is_as_wide_as_resampling_says():
    rng = np.random.default_rng(3)
    draws = [ood.auroc(rng.choice(KNOWN, 700), rng.choice(UNKNOWN, 300)).value for _ in range(300)]
    found = ood.auroc(KNOWN, UNKNOWN)
    assert found.ci_high - found.ci_low == pytest.approx(4 * np.std(draws), rel=0.15)


def test_perfect_and_hopeless_detection():
    assert ood.auroc(np.array([2.0, 3.0]), np.array([0.0, 1.0])).value == 100
    assert ood.auroc(np.array([0.0, 0.0]), np.array([0.0, 0.0])).value == 50
    with pytest.raises(ValueError, match="expected scores of both kinds, got 0 and 2"):
        ood.detection(np.array([]), np.array([1.0, 2.0]))


def test_mean_scores_need_no_labels():
    found = ood.mean_scores(LOGITS)
    assert list(found) == ["msp_mean", "max_logit_mean", "energy_mean", "entropy_mean"]
    assert found["energy_mean"].value == pytest.approx(logsumexp(LOGITS, axis=1).mean())
