"""What plain settings report, by class and among a subset of the classes."""

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from testbed.metrics.accuracy import FULL_PREDICTION, accuracy_topk, class_accuracy, per_class_accuracy
from testbed.metrics.classification import classification, subset_classification

RNG = np.random.default_rng(1)
LOGITS, TARGETS = RNG.normal(size=(300, 8)), RNG.integers(0, 8, 300)


def test_accuracy_comes_first_and_is_unchanged():
    found = classification(LOGITS, TARGETS)
    assert list(found) == ["top1", "top5", "nll", "brier", "ece"]
    assert {k: found[k] for k in ("top1", "top5")} == accuracy_topk(LOGITS, TARGETS)
    assert all(e.ci_low <= e.value <= e.ci_high for e in found.values())


def test_without_labels_there_is_nothing_to_say():
    assert classification(LOGITS, np.full(300, -1)) == {}


def test_full_accuracy_counts_predictions_among_all_classes():
    everywhere = np.where(np.arange(300) < 100, TARGETS, 8)  # a third right, the others outside the subset
    found = subset_classification(LOGITS, TARGETS, {FULL_PREDICTION: everywhere})
    assert found["top1_full1000"].value == pytest.approx(100 / 3)
    assert list(found)[:3] == ["top1", "top5", "top1_full1000"]
    assert "top1_full1000" not in subset_classification(LOGITS, TARGETS, {})


def test_mean_per_class_is_scikit_learns_balanced_accuracy():
    found = class_accuracy(LOGITS, TARGETS)
    expected = 100 * balanced_accuracy_score(TARGETS, LOGITS.argmax(1))
    assert found["top1_mean_per_class"].value == pytest.approx(expected)


def test_worst_class_is_the_lowest_of_all():
    by_class = per_class_accuracy(LOGITS, TARGETS)
    lowest = min(by_class.values(), key=lambda e: e.value)
    assert class_accuracy(LOGITS, TARGETS)["top1_worst_class"] == lowest
    assert sum(e.n for e in by_class.values()) == 300


def test_classes_without_images_do_not_count():
    targets = np.where(TARGETS == 3, -1, TARGETS)
    assert 3 not in per_class_accuracy(LOGITS, targets)
