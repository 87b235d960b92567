"""From stored outputs to estimates: one pass over the sets of each model, one over the predictions of all models.

A set is read, every method looks at it, and it is let go: memory does not grow with the number of sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.studies.labelfree.answers import (
    FIT_MEAN,
    NO_CHANGE,
    Answer,
    Question,
    SetEstimate,
    are_all,
    chosen_methods,
    described_fit,
)
from testbed.studies.labelfree.needs import Sets, usable_methods
from testbed.studies.labelfree.outputs import LabelFreeError, SetOutputs, Source
from testbed.studies.labelfree.pairs import answer_pairs
from testbed.studies.labelfree.regression import ScoreLine, fit_score
from testbed.studies.labelfree.scores import Method
from testbed.studies.labelfree.sets import StoredModel, StoredSet, partly_stored, shared_sets


def answer(models: Sequence[StoredModel], question: Question, step: Callable[[], None] = lambda: None) -> Answer:
    """Every method on every set of every model. `step` is called once per set read."""
    chosen = chosen_methods(question.methods)
    found = Answer(named=not are_all(question.methods))
    found.remarks += partly_stored(models, [question.source, *question.fit, *question.test])
    for model in models:
        _answer_one(model, question, chosen, found, step, place=" of " + model.name if len(models) > 1 else "")
    pairs = [m for m in chosen if m.kind == "pairs"]
    if pairs:
        answer_pairs(models, question, pairs, found, step)
    found.remarks = list(dict.fromkeys(found.remarks))
    if all(e.kind == "baseline" for e in found.estimates):
        reasons = (f"{', '.join(names)}: {reason}" for reason, names in found.left_out.items())
        raise LabelFreeError("no method can be used; " + "; ".join(reasons))
    return found


def sets_to_read(models: Sequence[StoredModel], question: Question) -> int:
    """How often `step` will be called, for a progress bar."""
    total = sum(len(m.find([*question.fit, *question.test])) for m in models)
    if any(m.kind == "pairs" for m in chosen_methods(question.methods)) and len(models) > 1:
        total += len(shared_sets(models, question.test))
    return total


@dataclass
class _Looked:
    """What the methods say of the sets of one model, and the true accuracies in percent."""

    values: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = field(default_factory=dict)  # by method and set
    accuracies: dict[str, float | None] = field(default_factory=dict)


def _answer_one(
    model: StoredModel,
    question: Question,
    chosen: Sequence[Method],
    found: Answer,
    step: Callable[[], None],
    place: str,
) -> None:
    sets = Sets.of(model, question)
    found.remarks += _seen_before(sets)
    usable = usable_methods(sets, question, chosen, found)
    source = Source.of(model.outputs(sets.source), _prior(question.class_prior))
    looked = _look(sets, source, usable, found, step, place)
    _check_labels(sets.fit, looked)
    known = np.array([looked.accuracies[s.name] for s in sets.fit], dtype=float)
    fitted_on = f"{described_fit(question.fit)} ({len(sets.fit)} sets)"
    for method in usable:
        line: ScoreLine | None = None
        said: tuple[str, ...] = ()
        if method.kind == "score":
            scores = [looked.values[method.name, s.name][0] for s in sets.fit]
            fitted = found.attempt(method, f"the fit sets{place}", fit_score, scores, known)
            if fitted is None:
                continue
            line, said = fitted
        assumes = question.prior_in_words if method.uses_class_prior else ""
        found.estimates += [_estimate(model, one, method, looked, line, fitted_on, assumes, said) for one in sets.test]
    levels = {NO_CHANGE: 100 * source.accuracy} | ({FIT_MEAN: float(known.mean())} if sets.fit else {})
    for one in sets.test:
        for name, level in levels.items():
            told = (model.name, one.name, one.group, name, "baseline", level, looked.accuracies[one.name])
            found.estimates.append(SetEstimate(*told, one.evaluation.id, fitted_on if name == FIT_MEAN else ""))


def _look(
    sets: Sets, source: Source, usable: list[Method], found: Answer, step: Callable[[], None], place: str
) -> _Looked:
    """Every usable method on every set. One that refuses a set is no longer usable."""
    looked = _Looked()
    asked = {s.name for s in sets.test}
    for one in sets.to_read:
        outputs = _read(sets.model, one, source)
        looked.accuracies[one.name] = None if outputs.accuracy is None else 100 * outputs.accuracy
        for method in [m for m in usable if one.name in asked or m.kind == "score"]:
            told = found.attempt(method, one.name + place, method.compute, outputs, source)
            if told is None:
                usable.remove(method)
            else:
                looked.values[method.name, one.name] = told
        step()
    return looked


def _estimate(
    model: StoredModel,
    one: StoredSet,
    method: Method,
    looked: _Looked,
    line: ScoreLine | None,
    fitted_on: str,
    assumes: str,
    said: tuple[str, ...],
) -> SetEstimate:
    value, notes = looked.values[method.name, one.name]
    return SetEstimate(
        *(model.name, one.name, one.group, method.name, method.kind),
        value=value if line is None else float(line.predict(value)),
        accuracy=looked.accuracies[one.name],
        evaluation_id=one.evaluation.id,
        fit="" if line is None else fitted_on,
        assumes=assumes,
        extrapolates=line is not None and bool(line.extrapolates(value)),
        r2=None if line is None else line.r2,
        notes=(*said, *notes),
    )


def _prior(wanted: str | tuple[float, ...]) -> str | np.ndarray:
    return wanted if isinstance(wanted, str) else np.array(wanted)


def _check_labels(fit: Sequence[StoredSet], looked: _Looked) -> None:
    unlabelled = [s.name for s in fit if looked.accuracies[s.name] is None]
    if unlabelled:
        raise LabelFreeError(
            f"--fit: a line needs sets with labels, '{unlabelled[0]}' has none"
            + (f" ({len(unlabelled)} such sets)" if len(unlabelled) > 1 else "")
        )


def _seen_before(sets: Sets) -> list[str]:
    """Test sets that the estimates start from, or that lines are fitted on."""
    fit, lines = {s.name for s in sets.fit}, []
    for which, count in (
        ("among the fit sets", sum(s.name in fit for s in sets.test)),
        ("the source", sum(s.name == sets.source.name for s in sets.test)),
    ):
        if count:
            verb, their = ("is", "its error is") if count == 1 else ("are", "their errors are")
            lines.append(f"{count} of {len(sets.test)} test sets {verb} {which}: {their} not out of sample")
    return lines


def _read(model: StoredModel, one: StoredSet, source: Source) -> SetOutputs:
    outputs = model.outputs(one)
    if outputs.classes != source.outputs.classes:
        raise LabelFreeError(
            f"{model.name} gives {outputs.classes} classes on {one.name}, but {source.outputs.classes} on the source: "
            "expected settings of the same classes"
        )
    return outputs
