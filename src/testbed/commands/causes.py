"""Failures grouped by their cause, each told once and in a few lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from testbed.errors import cause_of

_MOST_CHARACTERS = 500  # of one reason; PyTorch lists every key of a state dict that does not fit
_NAMED = 3  # models, settings or causes that are named in one line
_QUOTED = re.compile(r"'[^']*'")


class Failure(NamedTuple):
    model: str
    eval_setting: str
    error: str

    @property
    def label(self) -> str:
        return f"{self.model} on {self.eval_setting}"


def abridged(error: str) -> str:
    """The beginning of an error that is too long to be read."""
    text = " ".join(error.split())
    left = len(text) - _MOST_CHARACTERS
    return text if left <= 0 else f"{text[:_MOST_CHARACTERS].rstrip()} ... ({left:,} more characters)"


def cause_lines(failures: Iterable[Failure]) -> list[str]:
    """A line for each reason: how many pairs, and which. Of many reasons of one kind only the first is told."""
    by_cause: dict[str, dict[str, list[Failure]]] = {}
    for failure in failures:
        by_cause.setdefault(cause_of(failure.error), {}).setdefault(failure.error, []).append(failure)
    told = []
    for reasons in by_cause.values():
        if len(reasons) <= _NAMED:
            told += [f"{_pairs(alike)}: {abridged(reason)}" for reason, alike in reasons.items()]
            continue
        first, *others = reasons
        told.append(f"{_pairs([f for alike in reasons.values() for f in alike])}: {abridged(first)}")
        names = [name for name in dict.fromkeys(map(_subject, others)) if name and name != _subject(first)]
        told.append(f"  likewise {first_names(names)}" if names else f"  and {len(others):,} more of this kind")
    return told


def _subject(error: str) -> str:
    """What the error is about: the first name in quotes."""
    quoted = _QUOTED.search(error)
    return quoted[0] if quoted else ""


def _pairs(failures: Sequence[Failure]) -> str:
    if len(failures) == 1:
        return failures[0].label
    models = list(dict.fromkeys(f.model for f in failures))
    settings = list(dict.fromkeys(f.eval_setting for f in failures))
    return f"{len(failures):,} pairs ({first_names(models)} on {first_names(settings)})"


def first_names(names: Sequence[str]) -> str:
    """`a, b, c and 4 more`."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
