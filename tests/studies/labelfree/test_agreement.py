"""Agreement on the line: on models made to lie on one, and on the stored predictions of Recht et al. (2019)."""

import json

import numpy as np
import pytest

from shared_data import shared_data
from testbed.studies.labelfree.agreement import _inside, accuracy_line, aline_d, aline_s, gde, pairwise_agreement
from testbed.studies.labelfree.outputs import LabelFreeError, LabelFreeNote


def cifar(which):
    """(source predictions, target predictions, accuracies on both) of the models on CIFAR-10 and CIFAR-10.1 v6."""
    root = shared_data("cifar10.1-predictions")
    names = sorted(path.name for path in (root / "v6_predictions").glob("*.json"))
    if which == "26 networks":
        names = [name for name in names if not name.startswith("random_features")]
    read = [
        np.array([json.loads((root / folder / name).read_text()) for name in names])
        for folder in ("original_predictions", "v6_predictions")
    ]
    labels = np.load(shared_data("cifar10", "cifar10_test.npz"))["labels"], np.load(root / "cifar10.1_v6_labels.npy")
    return *read, *((p == y).mean(axis=1) for p, y in zip(read, labels, strict=True))


# Measured once by another program on the same files: slope, intercept and R2 on probit axes, then mean absolute errors
# in percentage points of no change, ALine-S, ALine-D, mean agreement, and the line that has seen the labels.
MEASURED = {
    "26 networks": (26, (0.905, -0.305, 0.972), (0.929, -0.289, 0.975), (6.93, 1.09, 1.06, 1.42, 0.53)),
    "all": (30, (0.950, -0.381, 0.984), (0.995, -0.396, 0.983), (7.78, 1.14, 1.13, 2.83, 0.60)),
}


@pytest.mark.parametrize("which", MEASURED)
def test_cifar_10_1_is_estimated_from_agreement_to_about_one_point(which):
    source, target, before, after = cifar(which)
    models, accuracy, agreement, misses = MEASURED[which]
    assert source.shape == (models, 10_000) and target.shape == (models, 2_000)
    with_labels = accuracy_line(before, after, 10_000, 2_000)
    simple, paired = aline_s(source, target, before), aline_d(source, target, before)
    assert (with_labels.slope, with_labels.intercept, with_labels.r2) == pytest.approx(accuracy, abs=6e-4)
    for line in (simple.line, paired.line):
        assert (line.slope, line.intercept, line.r2) == pytest.approx(agreement, abs=6e-4)
    alike = gde(source, target, before).accuracies
    guesses = 100 * before, simple.accuracies, paired.accuracies, alike, with_labels.predict(100 * before)
    off = [np.abs(guess - 100 * after).mean() for guess in guesses]
    assert off == pytest.approx(misses, abs=6e-3)


def runs(errors, n=4000, classes=10, seed=0):
    """Predictions of models that are wrong independently with these probabilities; the labels are all 0."""
    rng = np.random.default_rng(seed)
    wrong = rng.random((len(errors), n)) < np.array(errors)[:, None]
    return np.where(wrong, rng.integers(1, classes, (len(errors), n)), 0)


def test_pairwise_agreement_is_a_share_of_equal_predictions():
    assert pairwise_agreement(np.array([[0, 1, 2, 3], [0, 1, 2, 0], [3, 1, 0, 0]])).tolist() == [
        [1, 0.75, 0.25],
        [0.75, 1, 0.5],
        [0.25, 0.5, 1],
    ]


def test_gde_of_two_models_is_their_agreement():
    target = np.array([[0, 1, 2, 3], [0, 1, 2, 0]])
    assert gde(np.zeros((2, 3)), target, [0.9, 0.8]).accuracies == pytest.approx([75, 75])


def test_without_a_shift_the_line_is_the_diagonal_and_the_estimate_the_source_accuracy():
    predictions = runs([0.1, 0.2, 0.3, 0.4])
    accuracies = (predictions == 0).mean(axis=1)
    for method in (aline_s, aline_d):
        estimate = method(predictions, predictions, accuracies)
        assert (estimate.line.slope, estimate.line.intercept) == pytest.approx((1, 0))
        assert estimate.accuracies == pytest.approx(100 * accuracies)


def test_perfect_models_stay_finite():
    source, target = runs([0, 0, 0.2, 0.3]), runs([0, 0, 0.4, 0.5], seed=1)
    for method in (aline_s, aline_d):
        estimated = method(source, target, (source == 0).mean(axis=1)).accuracies
        assert np.isfinite(estimated).all() and ((estimated >= 0) & (estimated <= 100)).all()


def test_a_bent_line_is_told():
    rng = np.random.default_rng(3)
    source = runs([0.05, 0.2, 0.3, 0.4, 0.5])
    target = runs(rng.permutation([0.5, 0.1, 0.6, 0.05, 0.3]), seed=2)
    with pytest.warns(LabelFreeNote, match="R2 is .* below 0.95"):
        aline_s(source, target, (source == 0).mean(axis=1))


@pytest.mark.parametrize(
    ("method", "models", "accuracies", "words"),
    [
        (aline_s, 2, [0.9, 0.8], "at least 3 models to compare, got 2"),
        (aline_d, 2, [0.9, 0.8], "at least 3 models"),
        (gde, 1, [0.9], "at least 2 models"),
        (aline_s, 3, [0.9, 0.8], "same models throughout"),
        (aline_s, 3, [90, 80, 70], "from 0 to 1, got up to 90"),
    ],
)
def test_too_few_models_or_mistaken_units_are_refused(method, models, accuracies, words):
    predictions = runs([0.1, 0.2, 0.3])[:models]
    with pytest.raises(LabelFreeError, match=words):
        method(predictions, predictions, accuracies)


def test_models_that_all_agree_alike_have_no_line():
    same = np.zeros((3, 50), dtype=int)
    with pytest.raises(LabelFreeError, match="models that differ on the source set, got 100 % agreement for all"):
        aline_s(same, same, [0.9, 0.8, 0.7])


def test_all_or_no_images_are_moved_inside_by_half_an_image():
    assert _inside(np.array([0.0, 0.3, 1.0]), 10) == pytest.approx([5, 30, 95])
