"""From stored outputs to estimates: one pass over the sets of each model, one over the predictions of all models.

A set is read, every method looks at it, and it is let go: memory does not grow with the number of sets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.labelfree.outputs import LabelFreeError, LabelFreeNote, SetOutputs, Source
from testbed.labelfree.regression import fit_score
from testbed.labelfree.scores import METHODS, Method
from testbed.labelfree.sets import StoredModel, StoredSet, predictions_of

_NEEDED = {"features": "features were", "rotation": "the logits of a rotation head were"}
NO_CHANGE, FIT_MEAN = "no-change", "mean-of-fit"  # what an estimate must be better than


@dataclass(frozen=True)
class Question:
    """What is asked: words as on the command line."""

    models: tuple[str, ...]
    source: str
    test: tuple[str, ...]
    fit: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()  # none: all that what is stored allows
    class_prior: str | tuple[float, ...] = "source"  # or a share for every class


@dataclass(frozen=True)
class SetEstimate:
    """What one method says about one set, in percent."""

    model: str
    eval_setting: str
    group: str
    method: str
    kind: str  # score, direct, pairs or baseline
    value: float
    accuracy: float | None  # the true one, where the set has labels
    evaluation_id: int
    fit: str = ""  # the settings a line was fitted on
    extrapolates: bool = False  # the score lies outside those of the fit sets
    r2: float | None = None  # of the line behind it: score on accuracy, or agreement on agreement
    notes: tuple[str, ...] = ()


@dataclass
class Answer:
    estimates: list[SetEstimate] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # why, and the methods that could not be used


def answer(models: Sequence[StoredModel], question: Question, step: Callable[[], None] = lambda: None) -> Answer:
    """Every method on every set of every model. `step` is called once per set read."""
    found = Answer()
    chosen = _chosen(question)
    for model in models:
        _answer_one(model, question, chosen, found, step)
    pairs = [m for m in chosen if m.kind == "pairs"]
    if pairs:
        _answer_pairs(models, question, pairs, found, step)
    if not found.estimates:
        reasons = (f"{', '.join(names)}: {reason}" for reason, names in found.left_out.items())
        raise LabelFreeError("no method can be used; " + "; ".join(reasons))
    return found


def sets_to_read(models: Sequence[StoredModel], question: Question) -> int:
    """How often `step` will be called, for a progress bar."""
    total = sum(len(m.find([*question.fit, *question.test])) for m in models)
    if any(m.kind == "pairs" for m in _chosen(question)) and len(models) > 1:
        total += len(models[0].find(question.test))
    return total


def _chosen(question: Question) -> list[Method]:
    unknown = [name for name in question.methods if name not in METHODS]
    if unknown:
        raise LabelFreeError(f"no method '{unknown[0]}': expected {', '.join(METHODS)}, or all")
    return [METHODS[name] for name in question.methods or METHODS]


# ---- one model ---------------------------------------------------------------------------------------------


def _answer_one(
    model: StoredModel, question: Question, chosen: Sequence[Method], found: Answer, step: Callable[[], None]
) -> None:
    fit, test = model.find(question.fit), model.find(question.test)
    source_set = model.one(question.source)
    usable = _usable(model, question, chosen, source_set, fit, test, found)
    source = Source.of(model.outputs(source_set), _prior(question.class_prior))
    scores: dict[str, dict[str, tuple[float, tuple[str, ...]]]] = {}
    accuracies: dict[str, float | None] = {}
    asked = {s.name for s in test}
    for one in {s.name: s for s in [*fit, *test]}.values():
        outputs = _read(model, one, source)
        methods = usable if one.name in asked else [m for m in usable if m.kind == "score"]
        scores[one.name] = {m.name: _noted(m, outputs, source) for m in methods}
        accuracies[one.name] = None if outputs.accuracy is None else 100 * outputs.accuracy
        step()
    unlabelled = [s.name for s in fit if accuracies[s.name] is None]
    if unlabelled:
        raise LabelFreeError(
            f"--fit: a line needs sets with labels, '{unlabelled[0]}' has none"
            + (f" ({len(unlabelled)} such sets)" if len(unlabelled) > 1 else "")
        )
    known = np.array([accuracies[s.name] for s in fit], dtype=float)
    fitted_on = f"{' '.join(question.fit)} ({len(fit)} sets)"[-255:]
    for method in usable:
        line = fit_score([scores[s.name][method.name][0] for s in fit], known) if method.kind == "score" else None
        for one in test:
            value, notes = scores[one.name][method.name]
            found.estimates.append(
                SetEstimate(
                    *(model.name, one.name, one.group, method.name, method.kind),
                    value=value if line is None else float(line.predict(value)),
                    accuracy=accuracies[one.name],
                    evaluation_id=one.evaluation.id,
                    fit="" if line is None else fitted_on,
                    extrapolates=line is not None and bool(line.extrapolates(value)),
                    r2=None if line is None else line.r2,
                    notes=notes,
                )
            )
    for one in test:
        baselines = {NO_CHANGE: 100 * source.accuracy} | ({FIT_MEAN: float(known.mean())} if fit else {})
        for name, level in baselines.items():
            told = (model.name, one.name, one.group, name, "baseline", level, accuracies[one.name])
            found.estimates.append(SetEstimate(*told, one.evaluation.id, fitted_on if name == FIT_MEAN else ""))


def _prior(wanted: str | tuple[float, ...]) -> str | np.ndarray:
    return wanted if isinstance(wanted, str) else np.array(wanted)


def _usable(
    model: StoredModel,
    question: Question,
    chosen: Sequence[Method],
    source: StoredSet,
    fit: Sequence[StoredSet],
    test: Sequence[StoredSet],
    found: Answer,
) -> list[Method]:
    """The methods whose needs are met; a method that was named must be, one of `all` is left out with the reason."""
    lacking: dict[str, list[str]] = {
        need: [s.name for s in [source, *fit, *test] if need not in model.records(s)]
        for need in ("features", "rotation")
        if any(need in m.needs for m in chosen)
    }
    usable = []
    for method in chosen:
        reason = None
        if method.kind == "pairs":
            continue
        if method.kind == "score" and not fit:
            reason = "a score needs sets with labels to fit a line on: name them with --fit"
        for need, names in lacking.items():
            if need in method.needs and names:
                words = _quoted(dict.fromkeys([question.source, *question.fit, *question.test]))
                reason = (
                    f"{_NEEDED[need]} not recorded for {model.name} on {names[0]}"
                    + (f" and {len(names) - 1} more" if len(names) > 1 else "")
                    + f": `python eval.py --models {_quoted(question.models)} --eval-settings {words} --record {need}`"
                )
        if reason is None:
            usable.append(method)
        elif question.methods:
            raise LabelFreeError(f"{method.name}: {reason}")
        else:
            _leave_out(found, method, reason)
    return usable


def _leave_out(found: Answer, method: Method, reason: str) -> None:
    """Methods left out for the same reason share a line; of several models that lack something, one is named."""
    if any(method.name in names for names in found.left_out.values()):
        return
    found.left_out.setdefault(reason, []).append(method.name)


def _quoted(words: Iterable[str]) -> str:
    import shlex

    return " ".join(shlex.quote(word) for word in words)


def _read(model: StoredModel, one: StoredSet, source: Source) -> SetOutputs:
    outputs = model.outputs(one)
    if outputs.classes != source.outputs.classes:
        raise LabelFreeError(
            f"{model.name} gives {outputs.classes} classes on {one.name}, but {source.outputs.classes} on the source: "
            "expected settings of the same classes"
        )
    return outputs


def _noted(method: Method, outputs: SetOutputs, source: Source) -> tuple[float, tuple[str, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LabelFreeNote)
        value = method.compute(outputs, source)
    return float(value), _notes(caught)


def _notes(caught: Iterable[warnings.WarningMessage]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, LabelFreeNote)))


# ---- several models ----------------------------------------------------------------------------------------


def _answer_pairs(
    models: Sequence[StoredModel],
    question: Question,
    methods: Sequence[Method],
    found: Answer,
    step: Callable[[], None],
) -> None:
    """Agreement of all models, set by set, from their hard predictions."""
    enough = [m for m in methods if len(models) >= m.fewest_models]
    for method in methods:
        if method not in enough:
            reason = f"needs at least {method.fewest_models} models, got {len(models)}"
            if question.methods:
                raise LabelFreeError(f"{method.name} {reason}")
            _leave_out(found, method, reason)
    if not enough:
        return
    on_source = [m.one(question.source) for m in models]
    source, targets = predictions_of(models, on_source)
    if targets is None:
        raise LabelFreeError("the source set needs labels, got none; choose a labelled setting as the source")
    source_accuracies = (source == targets).mean(axis=1)
    for one in models[0].find(question.test):
        sets = [one, *(m.one(one.name) for m in models[1:])]
        predictions, truth = predictions_of(models, sets)
        for method in enough:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", LabelFreeNote)
                estimate = method.function(source, predictions, source_accuracies)
            r2 = None if estimate.line is None else estimate.line.r2
            for row, (model, own) in enumerate(zip(models, sets, strict=True)):
                accuracy = None if truth is None else 100 * float((predictions[row] == truth).mean())
                found.estimates.append(
                    SetEstimate(
                        *(model.name, one.name, one.group, method.name, method.kind),
                        value=float(estimate.accuracies[row]),
                        accuracy=accuracy,
                        evaluation_id=own.evaluation.id,
                        r2=r2,
                        notes=_notes(caught),
                    )
                )
        step()
