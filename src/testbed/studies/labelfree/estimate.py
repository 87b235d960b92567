"""From stored outputs to estimates: one pass over the sets of each model, one over the predictions of all models.

A set is read, every method looks at it, and it is let go: memory does not grow with the number of sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from testbed.store.outputs import Outputs
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
from testbed.studies.labelfree.outputs import LabelFreeError, Source
from testbed.studies.labelfree.pairs import answer_pairs
from testbed.studies.labelfree.regression import ScoreLine, fit_score
from testbed.studies.labelfree.scores import Method
from testbed.studies.labelfree.sets import StoredModel, StoredSet, partly_stored, shared_sets


def answer_question(
    models: Sequence[StoredModel], question: Question, step: Callable[[], None] = lambda: None
) -> Answer:
    """Every method on every set of every model. `step` is called once per set read."""
    chosen = chosen_methods(question.methods)
    answer = Answer(named=question.must and not are_all(question.methods))
    answer.remarks += partly_stored(models, question.settings)
    for model in models:
        sets = Sets.of(model, question)
        answer.remarks += _seen_before(sets)
        _OneModel(sets, question, answer, several=len(models) > 1).estimate(chosen, step)
    pairs = [m for m in chosen if m.kind == "pairs"]
    if pairs:
        answer_pairs(models, question, pairs, answer, step)
    # Several models mostly have the same to say of the same sets.
    answer.remarks = list(dict.fromkeys(answer.remarks))
    if all(e.kind == "baseline" for e in answer.estimates):
        reasons = (f"{', '.join(names)}: {reason}" for reason, names in answer.left_out.items())
        raise LabelFreeError("no method can be used; " + "; ".join(reasons))
    return answer


def sets_to_read(models: Sequence[StoredModel], question: Question) -> int:
    """How often `step` will be called, for a progress bar."""
    total = sum(len(m.find([*question.fit, *question.test])) for m in models)
    if any(m.kind == "pairs" for m in chosen_methods(question.methods)) and len(models) > 1:
        total += len(shared_sets(models, question.test))
    return total


@dataclass(frozen=True)
class _Fit:
    """The line of one score, if the method is a score, and what fitting it said."""

    line: ScoreLine | None = None
    notes: tuple[str, ...] = ()


@dataclass
class _OneModel:
    """The sets of one model, and what the methods say of each."""

    sets: Sets
    question: Question
    answer: Answer
    several: bool  # the question is about several models: messages name this one
    values: dict[tuple[str, str], tuple[float, tuple[str, ...]]] = field(default_factory=dict)  # by method and set
    accuracies: dict[str, float | None] = field(default_factory=dict)  # the true ones in percent, by set
    sizes: dict[str, int] = field(default_factory=dict)  # images, by set

    def estimate(self, chosen: Sequence[Method], step: Callable[[], None]) -> None:
        """Add the estimates of every usable method, and the baselines, to the answer."""
        usable = usable_methods(self.sets, self.question, chosen, self.answer)
        source = Source.of(self.sets.model.outputs(self.sets.source), _prior(self.question.class_prior))
        self._look(source, usable, step)
        self._check_labels()
        for method in usable:
            fit = self._fit(method)
            if fit is not None:
                self.answer.estimates += [self._estimate(one, method, fit) for one in self.sets.test]
        self.answer.estimates += self._baselines(source)

    def _look(self, source: Source, usable: list[Method], step: Callable[[], None]) -> None:
        """Every usable method on every set. One that refuses a set is no longer usable."""
        tested = {s.name for s in self.sets.test}
        for one in self.sets.to_read:
            outputs = _read(self.sets.model, one, source)
            self.accuracies[one.name] = None if outputs.accuracy is None else 100 * outputs.accuracy
            self.sizes[one.name] = len(outputs.ids)
            # Fit sets are there for the lines: a direct estimate of them would never be shown.
            for method in [m for m in usable if one.name in tested or m.kind == "score"]:
                value = self.answer.attempt(method, one.name + self._place, method.compute, outputs, source)
                if value is None:
                    usable.remove(method)  # a line, or an error, over some of the sets would mislead
                else:
                    self.values[method.name, one.name] = value
            step()

    def _fit(self, method: Method) -> _Fit | None:
        """The line of a score; nothing to fit for other methods; None where no line can be had."""
        if method.kind != "score":
            return _Fit()
        scores = [self.values[method.name, s.name][0] for s in self.sets.fit]
        fitted = self.answer.attempt(method, f"the fit sets{self._place}", fit_score, scores, self._known)
        return None if fitted is None else _Fit(*fitted)

    def _estimate(self, one: StoredSet, method: Method, fit: _Fit) -> SetEstimate:
        value, notes = self.values[method.name, one.name]
        line = fit.line
        return SetEstimate(
            model=self.sets.model.name,
            eval_setting=one.name,
            group=one.group,
            method=method.name,
            kind=method.kind,
            value=value if line is None else float(line.predict(value)),
            accuracy=self.accuracies[one.name],
            evaluation_id=one.evaluation.id,
            fit="" if line is None else self._fitted_on,
            assumes=self.question.prior_in_words if method.uses_class_prior else "",
            extrapolates=line is not None and bool(line.extrapolates(value)),
            r2=None if line is None else line.r2,
            notes=(*fit.notes, *notes),
            n=self.sizes[one.name],
            margin=None if line is None else line.margin(value),
            left_out_error=None if line is None else line.left_out_error,
        )

    def _baselines(self, source: Source) -> list[SetEstimate]:
        """What anybody could say: nothing changes, or the set is as accurate as the fit sets are on average."""
        levels = {NO_CHANGE: 100 * source.accuracy}
        if self.sets.fit:
            levels[FIT_MEAN] = float(self._known.mean())
        return [
            SetEstimate(
                model=self.sets.model.name,
                eval_setting=one.name,
                group=one.group,
                method=name,
                kind="baseline",
                value=level,
                accuracy=self.accuracies[one.name],
                evaluation_id=one.evaluation.id,
                fit=self._fitted_on if name == FIT_MEAN else "",
            )
            for one in self.sets.test
            for name, level in levels.items()
        ]

    def _check_labels(self) -> None:
        unlabelled = [s.name for s in self.sets.fit if self.accuracies[s.name] is None]
        if unlabelled:
            raise LabelFreeError(
                f"--fit: a line needs sets with labels, '{unlabelled[0]}' has none"
                + (f" ({len(unlabelled)} such sets)" if len(unlabelled) > 1 else "")
            )

    @property
    def _known(self) -> np.ndarray:
        """The accuracies of the fit sets."""
        return np.array([self.accuracies[s.name] for s in self.sets.fit], dtype=float)

    @property
    def _fitted_on(self) -> str:
        return f"{described_fit(self.question.fit)} ({len(self.sets.fit)} sets)"

    @property
    def _place(self) -> str:
        return f" of {self.sets.model.name}" if self.several else ""


def _prior(wanted: str | tuple[float, ...]) -> str | np.ndarray:
    return wanted if isinstance(wanted, str) else np.array(wanted)


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


def _read(model: StoredModel, one: StoredSet, source: Source) -> Outputs:
    """A set of other classes ends the run, whatever the methods: the words named a wrong setting."""
    outputs = model.outputs(one)
    if outputs.columns != source.outputs.columns:
        raise LabelFreeError(
            f"{model.name} gives {outputs.columns} classes on {one.name}, but {source.outputs.columns} on the source: "
            "expected settings of the same classes"
        )
    return outputs
