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
    answer: Answer,
    step: Callable[[], None],
) -> None:
    """Every method on every set that all models have."""
    usable = for_so_many(len(models), methods, answer)
    shared = shared_sets(models, question.test) if usable else []
    on_source = _read(models, [m.one(question.source) for m in models], usable, answer) if usable else None
    if on_source is None:
        return
    # Agreement on the source could use all its images; accuracies cannot, and the two must be of the same ones.
    source, targets = labelled_only(*on_source)
    accuracies = accuracies_of(source, targets)
    if accuracies is None:
        raise LabelFreeError("the source set needs labels, got none; choose a labelled setting as the source")
    if not shared:
        for method in usable:
            answer.refuse(method, "the test sets", "expected sets that all models have, got none")
        return
    answer.remarks += _dropped(models, question, len(shared), usable)
    for sets in shared:
        on_test = _read(models, sets, usable, answer)
        if on_test is None:
            return
        true = accuracies_of(*on_test)
        for method in list(usable):
            estimated = answer.attempt(method, sets[0].name, method.function, source, on_test[0], accuracies)
            if estimated is None:
                _withdraw([method], usable, answer)
            else:
                answer.estimates += _estimates(sets, method, *estimated, true)
        step()


def for_so_many(count: int, methods: Sequence[Method], answer: Answer) -> list[Method]:
    """The methods that compare no more than `count` models."""
    for method in methods:
        if count < method.fewest_models:
            reason = f"needs at least {method.fewest_models} models, got {count}"
            if answer.named:
                raise LabelFreeError(f"{method.name} {reason}")
            answer.leave_out(method, reason)
    return [m for m in methods if count >= m.fewest_models]


def _read(
    models: Sequence[StoredModel], sets: Sequence[StoredSet], usable: list[Method], answer: Answer
) -> tuple[np.ndarray, np.ndarray] | None:
    """Predictions and labels of one set; where the models cannot be compared on it, no method is usable any more."""
    try:
        return predictions_of(models, sets)
    except LabelFreeError as error:
        for method in usable:
            answer.refuse(method, sets[0].name, str(error))
        _withdraw(usable, usable, answer)
        return None


def _withdraw(methods: Sequence[Method], usable: list[Method], answer: Answer) -> None:
    """These methods are used no longer, and what they said of earlier sets goes too."""
    # Otherwise its error would be over fewer sets than those of the methods it stands beside.
    names = {m.name for m in methods}
    usable[:] = [m for m in usable if m.name not in names]
    answer.estimates = [e for e in answer.estimates if e.method not in names]


def _dropped(models: Sequence[StoredModel], question: Question, kept: int, usable: Sequence[Method]) -> list[str]:
    """A remark on the test sets that some of the models lack, if there are any."""
    count = len({s.name for m in models for s in m.find(question.test)}) - kept
    if not count:
        return []
    names = ", ".join(m.name for m in usable)
    return [f"{names}: {count} of {kept + count} test sets, which only some of the models have, are left out"]


def _estimates(
    sets: Sequence[StoredSet],
    method: Method,
    estimate: AgreementEstimate,
    notes: tuple[str, ...],
    true: np.ndarray | None,
) -> list[SetEstimate]:
    """One per model; `sets` are their evaluations of one setting."""
    names = [one.evaluation.model for one in sets]
    return [
        SetEstimate(
            model=names[row],
            eval_setting=one.name,
            group=one.group,
            method=method.name,
            kind=method.kind,
            value=float(estimate.accuracies[row]),
            accuracy=None if true is None else 100 * float(true[row]),
            evaluation_id=one.evaluation.id,
            assumes=described_models(names),
            r2=None if estimate.line is None else estimate.line.r2,
            notes=notes,
        )
        for row, one in enumerate(sets)
    ]
