"""What is asked about stored sets, and what comes back: estimates, and the methods that could not be used."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from testbed.studies.labelfree.outputs import LabelFreeError, LabelFreeNote
from testbed.studies.labelfree.scores import METHODS, Method

T = TypeVar("T")

NO_CHANGE, FIT_MEAN = "no-change", "mean-of-fit"  # what an estimate must be better than
_LONGEST_FIT = 230  # characters: with the number of sets it fits its column


@dataclass(frozen=True)
class Question:
    """What is asked: words as on the command line."""

    models: tuple[str, ...]
    source: str
    test: tuple[str, ...]
    fit: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()  # none, or `all` among them: all that what is stored allows
    class_prior: str | tuple[float, ...] = "source"  # or a share for every class
    must: bool = True  # named methods must be usable; else one that is not is left out, as one of `all` is

    @property
    def settings(self) -> tuple[str, ...]:
        """All words that stand for settings."""
        return (self.source, *self.fit, *self.test)

    @property
    def prior_in_words(self) -> str:
        """The class prior as a word; given shares by a short checksum."""
        given = self.class_prior
        return given if isinstance(given, str) else f"shares {short_digest(map(repr, given))}"


@dataclass(frozen=True, kw_only=True)
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
    assumes: str = ""  # the class prior, or the models that are compared, where the method depends on them
    extrapolates: bool = False  # the score lies outside those of the fit sets
    r2: float | None = None  # of the line behind it: score on accuracy, or agreement on agreement
    notes: tuple[str, ...] = ()
    n: int = 0  # images of the set; 0 where it is not known
    margin: float | None = None  # of a line: half the width of its 95 % prediction interval
    left_out_error: float | None = None  # of a line: RMSE on fit sets that it was not fitted on, one at a time


@dataclass
class Answer:
    """What comes back; filled set by set."""

    named: bool = False  # methods were asked for by name: each must be usable
    estimates: list[SetEstimate] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)  # why, and the methods that could not be used
    remarks: list[str] = field(default_factory=list)  # about the sets themselves

    def attempt(
        self, method: Method, place: str, function: Callable[..., T], *arguments: object
    ) -> tuple[T, tuple[str, ...]] | None:
        """What the function gives, with the notes it makes; None where the method refuses."""
        try:
            # Python shows a warning of one place once; here every set must get its own.
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", LabelFreeNote)
                value = function(*arguments)
        except LabelFreeError as error:
            self.refuse(method, place, str(error))
            return None
        notes = (str(w.message) for w in caught if issubclass(w.category, LabelFreeNote))
        return value, tuple(dict.fromkeys(notes))

    def refuse(self, method: Method, place: str, reason: str) -> None:
        """The method cannot be used: one that was named ends the run, one of `all` is left out."""
        reason = reason.removeprefix(f"{method.name}: ")  # the line below names it
        if self.named:
            raise LabelFreeError(f"{method.name} on {place}: {reason}")
        self.leave_out(method, f"on {place}: {reason}")

    def leave_out(self, method: Method, reason: str) -> None:
        """Methods left out for the same reason share a line; of several models that lack something, one is named."""
        if not any(method.name in names for names in self.left_out.values()):
            self.left_out.setdefault(reason, []).append(method.name)


def chosen_methods(words: Sequence[str], kinds: Sequence[str] = ("score", "direct", "pairs")) -> list[Method]:
    """The methods of these names; no names, or `all` among them, stand for all of these kinds."""
    possible = {name: method for name, method in METHODS.items() if method.kind in kinds}
    unknown = [word for word in words if word not in possible and word != "all"]
    if unknown:
        raise LabelFreeError(f"no method '{unknown[0]}': expected {', '.join(possible)}, or all")
    return list(possible.values()) if are_all(words) else [METHODS[name] for name in dict.fromkeys(words)]


def are_all(words: Sequence[str]) -> bool:
    return not words or "all" in words


def described_fit(words: Iterable[str]) -> str:
    """The words after --fit in one line; a long one is cut, and told apart by a checksum of the whole."""
    text = " ".join(words)
    return text if len(text) <= _LONGEST_FIT else f"{text[: _LONGEST_FIT - 12]}... {short_digest([text])}"


def described_models(names: Sequence[str]) -> str:
    return f"{len(names)} models {short_digest(sorted(names))}"


def short_digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:8]
