"""The line from score to accuracy against scikit-learn, and errors against the published pooling."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from testbed.studies.labelfree.outputs import LabelFreeError
from testbed.studies.labelfree.regression import errors, errors_by_group, fit_score

# README of autoeval_baselines: RMSE on CIFAR-10.1 (1 set), CIFAR-10.1-C (19), CIFAR-10-F (20), overall (40)
PUBLISHED = {
    "ResNet-56 Rotation": (7.285, 6.386, 7.763, 7.129),
    "ResNet-56 ConfScore": (2.190, 9.743, 2.676, 6.985),
    "ResNet-56 Entropy": (2.424, 10.300, 2.913, 7.402),
    "ResNet-56 ATC": (11.428, 5.964, 8.960, 7.766),
    "ResNet-56 FID": (7.517, 5.145, 4.662, 4.985),
    "RepVGG Rotation": (16.726, 17.137, 8.105, 13.391),
    "RepVGG ConfScore": (5.470, 12.004, 3.709, 8.722),
    "RepVGG Entropy": (5.997, 12.645, 3.419, 9.093),
    "RepVGG ATC": (15.168, 8.050, 7.694, 8.132),
    "RepVGG FID": (10.718, 6.318, 5.245, 5.966),
}


def case(n=40, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.2, 0.9, n)
    return scores, 100 * scores - 5 + rng.normal(size=n) * 4


def test_line_is_scikit_learns():
    scores, accuracies = case()
    line, theirs = fit_score(scores, accuracies), LinearRegression().fit(scores[:, None], accuracies)
    assert (line.slope, line.intercept) == pytest.approx((theirs.coef_[0], theirs.intercept_))
    assert line.predict([0.1, 0.5]) == pytest.approx(theirs.predict([[0.1], [0.5]]))
    assert line.r2 == pytest.approx(r2_score(accuracies, theirs.predict(scores[:, None])))


def test_scale_and_sign_of_a_score_do_not_change_the_prediction():
    scores, accuracies = case()
    assert fit_score(-100 * scores, accuracies).predict([-50]) == pytest.approx(
        fit_score(scores, accuracies).predict([0.5])
    )


def test_scores_beyond_the_fit_sets_are_marked_and_not_clipped():
    line = fit_score([0.4, 0.5, 0.6], [40, 50, 60])
    assert line.extrapolates([0.39, 0.4, 0.55, 0.6, 1.2]).tolist() == [True, False, False, False, True]
    assert line.predict([1.2]) == pytest.approx([120])


def test_errors_are_those_of_scikit_learn_and_scipy():
    predicted, true = case(seed=1)
    measured = errors(predicted, true)
    assert measured.rmse == pytest.approx(root_mean_squared_error(true, predicted))
    assert measured.mae == pytest.approx(mean_absolute_error(true, predicted))
    assert measured.bias == pytest.approx((predicted - true).mean())
    assert measured.rho == pytest.approx(spearmanr(predicted, true).statistic)


@pytest.mark.parametrize("name", PUBLISHED)
def test_pooled_error_weighs_groups_by_their_sets_as_published(name):
    *by_group, overall = PUBLISHED[name]
    groups = ["cifar-10.1"] + ["cifar-10.1-c"] * 19 + ["cifar10-f"] * 20
    signs = np.where(np.arange(40) % 2, 1, -1)
    predicted = 60 + signs * np.repeat(by_group, [1, 19, 20])
    assert [e.rmse for e in errors_by_group(predicted, np.full(40, 60.0), groups).values()] == pytest.approx(by_group)
    assert errors(predicted, np.full(40, 60.0)).rmse == pytest.approx(overall, abs=1e-3)


def test_groups_keep_their_order_and_a_single_set_has_no_rank_correlation():
    by_group = errors_by_group([50, 60, 70], [55, 60, 70], ["b", "a", "a"])
    assert list(by_group) == ["b", "a"]
    assert by_group["b"].rho is None and by_group["b"].bias == -5 and by_group["a"].rmse == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit_score([1, 1, 1], [50, 60, 70]), "at least 2 fit sets with different scores, got 3 with 1"),
        (lambda: fit_score([1, 2], [50, 60, 70]), "equally long"),
        (lambda: fit_score([1, np.nan], [50, 60]), "got 1 that are not"),
        (lambda: errors([], []), "at least 1 set"),
        (lambda: errors_by_group([1, 2], [1, 2], ["a"]), r"one group per set \(2\), got 1"),
    ],
)
def test_what_makes_no_line_is_refused(call, words):
    with pytest.raises(LabelFreeError, match=words):
        call()
