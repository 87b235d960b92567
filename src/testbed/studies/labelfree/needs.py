"""Which methods can be used on what is stored of a model, and what to run for the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.studies.labelfree.answers import Answer, Question
from testbed.studies.labelfree.outputs import LabelFreeError
from testbed.studies.labelfree.scores import Method
from testbed.studies.labelfree.sets import StoredModel, StoredSet

_NEEDED = {"features": "features were", "rotation": "the logits of a rotation head were"}


@dataclass(frozen=True)
class Sets:
    """The stored sets of one model that a question is about."""

    model: StoredModel
    source: StoredSet
    fit: list[StoredSet]
    test: list[StoredSet]

    @classmethod
    def of(cls, model: StoredModel, question: Question) -> Sets:
        return cls(model, model.one(question.source), model.find(question.fit), model.find(question.test))

    @property
    def to_read(self) -> list[StoredSet]:
        """Those a method looks at, each once."""
        return list({s.name: s for s in [*self.fit, *self.test]}.values())


def usable_methods(sets: Sets, question: Question, chosen: Sequence[Method], answer: Answer) -> list[Method]:
    """The methods whose needs are met; a method that was named must be, one of `all` is left out with the reason."""
    reasons = _reasons(sets, question, frozenset(need for method in chosen for need in method.needs))
    usable = []
    for method in chosen:
        if method.kind == "pairs":
            continue
        lacking = [reason for need, reason in reasons.items() if need in method.needs]
        if method.kind == "score" and not sets.fit:
            # First: recorded arrays would be of no use without a line.
            lacking.insert(0, "a score needs sets with labels to fit a line on: name them with --fit")
        if not lacking:
            usable.append(method)
        elif answer.named:
            raise LabelFreeError(f"{method.name}: {lacking[0]}")
        else:
            answer.leave_out(method, lacking[0])
    return usable


def _reasons(sets: Sets, question: Question, needs: frozenset[str]) -> dict[str, str]:
    """Why what is stored does not do, by what is needed."""
    reasons = {}
    for need in sorted(needs & _NEEDED.keys()):
        # All settings in one command: features of some sets only would still not do.
        words = dict.fromkeys(question.settings)
        command = sets.model.eval_command(words, record=need)
        lacking = [s.name for s in [sets.source, *sets.to_read] if need not in sets.model.records(s)]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            reasons[need] = f"{_NEEDED[need]} not recorded for {sets.model.name} on {lacking[0]}{more}: `{command}`"
        elif need == "rotation" and (heads := _several_heads(sets)):
            reasons[need] = f"{heads}: `{command}` records those of another head again"
    return reasons


def _several_heads(sets: Sets) -> str:
    """One line must not be fitted through the logits of two heads."""
    heads = Counter(sets.model.rotation_head(s) for s in sets.to_read)
    if len(heads) < 2:
        return ""
    told = ", ".join(f"{count} of {head[:8] or 'an unknown one'}" for head, count in heads.most_common())
    return f"the sets of {sets.model.name} hold the logits of {len(heads)} rotation heads ({told})"
