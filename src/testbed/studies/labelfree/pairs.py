"""Agreement of several models, set by set, from their stored hard predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from testbed.studies.labelfree.agreement import AgreementEstimate, accuracies_of, labelled_only
from testbed.studies.labelfree.answers import Answer, Question, SetEstimate, described_models
from testbed.studies.labelfree.outputs import LabelFreeError
from testbed.studies.labelfree.scores import Method
from testbed.studies.labelfree.sets import StoredModel, StoredSet, predictions_of, shared_sets


def answer_pairs(
    models: Sequence[StoredModel],
    question: Question,
    methods: Sequence[Method],
    found: Answer,
    step: Callable[[], None],
) -> None:
    """Every method on every set that all models have."""
    usable = for_so_many(len(models), methods, found)
    shared = shared_sets(models, question.test) if usable else []
    on_source = _read(models, [m.one(question.source) for m in models], usable, found) if usable else None
    if on_source is None:
        return
    source, targets = labelled_only(*on_source)
    accuracies = accuracies_of(source, targets)
    if accuracies is None:
        raise LabelFreeError("the source set needs labels, got none; choose a labelled setting as the source")
    if not shared:
        for method in usable:
            found.refuse(method, "the test sets", "expected sets that all models have, got none")
        return
    _tell_dropped(models, question, len(shared), usable, found)
    for sets in shared:
        on_test = _read(models, sets, usable, found)
        if on_test is None:
            return
        for method in list(usable):
            told = found.attempt(method, sets[0].name, method.function, source, on_test[0], accuracies)
            if told is None:
                _withdraw([method], usable, found)
            else:
                found.estimates += _estimates(models, sets, method, *told, accuracies_of(*on_test))
        step()


def for_so_many(count: int, methods: Sequence[Method], found: Answer) -> list[Method]:
    """The methods that compare no more than `count` models."""
    for method in methods:
        if count < method.fewest_models:
            reason = f"needs at least {method.fewest_models} models, got {count}"
            if found.named:
                raise LabelFreeError(f"{method.name} {reason}")
            found.leave_out(method, reason)
    return [m for m in methods if count >= m.fewest_models]


def _read(
    models: Sequence[StoredModel], sets: Sequence[StoredSet], usable: list[Method], found: Answer
) -> tuple[np.ndarray, np.ndarray] | None:
    """Predictions and labels of one set; where the models cannot be compared on it, no method is usable any more."""
    try:
        return predictions_of(models, sets)
    except LabelFreeError as error:
        for method in usable:
            found.refuse(method, sets[0].name, str(error))
        _withdraw(usable, usable, found)
        return None


def _withdraw(methods: Sequence[Method], usable: list[Method], found: Answer) -> None:
    """These methods are used no longer, and what they said of earlier sets goes too."""
    names = {m.name for m in methods}
    usable[:] = [m for m in usable if m.name not in names]
    found.estimates = [e for e in found.estimates if e.method not in names]


def _tell_dropped(
    models: Sequence[StoredModel], question: Question, kept: int, usable: list[Method], found: Answer
) -> None:
    dropped = len({s.name for m in models for s in m.find(question.test)}) - kept
    if dropped:
        found.remarks.append(
            f"{', '.join(m.name for m in usable)}: {dropped} of {kept + dropped} test sets, which only some of the "
            "models have, are left out"
        )


def _estimates(
    models: Sequence[StoredModel],
    sets: Sequence[StoredSet],
    method: Method,
    estimate: AgreementEstimate,
    notes: tuple[str, ...],
    accuracies: np.ndarray | None,
) -> list[SetEstimate]:
    return [
        SetEstimate(
            *(model.name, own.name, own.group, method.name, method.kind),
            value=float(estimate.accuracies[row]),
            accuracy=None if accuracies is None else 100 * float(accuracies[row]),
            evaluation_id=own.evaluation.id,
            assumes=described_models([m.name for m in models]),
            r2=None if estimate.line is None else estimate.line.r2,
            notes=notes,
        )
        for row, (model, own) in enumerate(zip(models, sets, strict=True))
    ]
