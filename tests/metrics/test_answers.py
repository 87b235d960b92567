"""Numbers of answers without probabilities: what the answers decide, and nothing that would be invented."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.metrics.accuracy import accuracy_topk, class_accuracy
from testbed.metrics.answers import NO_ANSWER, answer_logits, decided_by_answers
from testbed.metrics.classification import classification

N, CLASSES = 400, 100
RNG = np.random.default_rng(0)
TARGETS = RNG.integers(0, CLASSES, N)


def answers_with(accuracy, ranks=1):
    """Distinct classes, best first; the first is the label for this share of the images."""
    told = np.stack([RNG.permutation(CLASSES)[:ranks] for _ in range(N)])
    for row in range(N):
        others = [c for c in told[row] if c != TARGETS[row]]
        right = row < accuracy * N
        told[row] = [TARGETS[row], *others, (TARGETS[row] + 1) % CLASSES][:ranks] if right else told[row]
        if not right and told[row, 0] == TARGETS[row]:
            told[row, 0] = next(c for c in range(CLASSES) if c not in told[row])
    return told


def numbers(metrics_fn, told):
    logits = answer_logits(told, TARGETS, CLASSES)
    return decided_by_answers(lambda filled: metrics_fn(filled, TARGETS), logits, told)


@pytest.mark.parametrize("accuracy", [0.0, 0.5, 0.99, 1.0])
def test_one_answer_decides_the_accuracy_and_no_calibration(accuracy):
    told = answers_with(accuracy)
    known, others = numbers(classification, told)
    expected = 100 * (told[:, 0] == TARGETS).mean()
    assert known["top1"].value == expected
    assert {"nll", "brier", "ece"} <= set(others)
    # Where every answer is right, the label is among the first five as well.
    assert ("top5" in known) == (accuracy == 1.0)
    per_class, left_out = numbers(class_accuracy, told)
    assert left_out == [] and per_class["top1_worst_class"].value <= expected


def test_five_answers_in_their_order_decide_top5():
    told = answers_with(0.4, ranks=5)
    known, _ = numbers(accuracy_topk, told)
    assert known["top1"].value == 100 * (told[:, 0] == TARGETS).mean()
    assert known["top5"].value == 100 * (told == TARGETS[:, None]).any(axis=1).mean()


def test_no_answer_is_never_right_and_neither_is_one_outside_the_columns():
    """Ties would make class 0 the answer: the label of these images is class 0."""
    targets = np.zeros(4, dtype=np.int64)
    nothing = np.full((4, 1), NO_ANSWER)
    logits = answer_logits(nothing, targets, 3)
    assert accuracy_topk(logits, targets)["top1"].value == 0
    for told in (nothing, np.full((4, 1), 2)):  # 2: a class of the parent that this subset has not
        known, _ = decided_by_answers(lambda filled: accuracy_topk(filled, targets), logits, told)
        assert known["top1"].value == 0


def test_a_few_columns_of_answers_keep_wrong_ones_wrong():
    told = answers_with(0.5)
    logits = answer_logits(told, TARGETS, CLASSES)
    kept = TARGETS < 10
    part, labels = logits[kept, :10], TARGETS[kept]
    assert ((part.argmax(axis=1) == labels) == (told[kept, 0] == labels)).all()


def test_unlabelled_images_have_answers_and_no_number():
    targets = np.full(3, -1)
    logits = answer_logits(np.array([[1], [2], [0]]), targets, 3)
    assert logits.argmax(axis=1).tolist() == [1, 2, 0]
