"""Answers without probabilities as logits, and which numbers can be measured from them.

A model that says no more than a class, or a few in their order, has an accuracy and no calibration. Its logits hold the
order alone: classes that it named are above 0, the others at 0, and a label that it did not name below 0, so that ties
never make an answer right. They may be read column by column, as for a subset of the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# The array beside logits that were made of answers: what was answered, best first, as numbers of the setting's classes.
ANSWERS = "answers"
NO_ANSWER = -1


def answer_logits(answers: np.ndarray, targets: np.ndarray, columns: int) -> np.ndarray:
    """Logits of answers (images x ranks): columns, best first, NO_ANSWER for none. `targets` are columns too."""
    logits = np.zeros((len(answers), columns), dtype=np.float32)
    labelled = np.flatnonzero(targets >= 0)
    logits[labelled, targets[labelled]] = -1
    ranks = answers.shape[1]
    for rank in reversed(range(ranks)):  # the best last, should a class be named twice
        given = np.flatnonzero(answers[:, rank] != NO_ANSWER)
        logits[given, answers[given, rank]] = (ranks - rank) / ranks
    return logits


def decided_by_answers(
    measured: Callable[[np.ndarray], Mapping[str, Any]], logits: np.ndarray, answers: np.ndarray
) -> tuple[dict[str, Any], list[str]]:
    """The numbers that answers alone decide, and the names of the others.

    `measured` gives the numbers of logits. Confidences and the order of classes that were not named can be chosen
    freely: a number that changes with them, such as a calibration error, would be invented.
    """
    numbers = measured(logits)
    answered = (answers != NO_ANSWER).any(axis=1)
    others = [measured(_filled(logits, answered, last)) for last in (True, False)]
    known = {n: v for n, v in numbers.items() if all(n in other and other[n] == v for other in others)}
    return known, [name for name in numbers if name not in known]


def _filled(logits: np.ndarray, answered: np.ndarray, label_last: bool) -> np.ndarray:
    """The same answers with another confidence, and another order of the classes that were not named.

    A label that was not named comes last of all, or next to what was named. Where nothing was, it stays the last.
    """
    label, named = logits < 0, logits > 0
    confident: np.ndarray = logits * np.float32(6 if label_last else 3)
    order: np.ndarray = np.random.default_rng(int(label_last)).uniform(-0.75, -0.25, size=logits.shape[1:])
    filled = np.where(logits == 0, order.astype(np.float32), confident)
    if not label_last:
        filled[label & answered[:, None]] = -0.125
    # The answer was a class that is no column here, of a subset of the classes: wrong, whatever the order.
    elsewhere = np.flatnonzero(answered & ~named.any(axis=1))
    if logits.shape[1] > 1:
        filled[elsewhere, np.where(label[elsewhere, 0], 1, 0)] = 0
    return filled
