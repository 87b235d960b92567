"""Noticing workers that hang: what each is at, for how long it has been silent, and when that is too long.

What counts is progress: a thread of the worker could say "I live" for ever while a classify function does not return.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.engine.messages import At, Event, TaskDone
from testbed.engine.pools import Died, Member

SILENT_S = 60.0  # without a word from a worker that computes: the user is told
SILENT_LOADING_S = 300.0  # the same while it starts or loads a model, which may have to be downloaded
_TURN_S = 5.0  # a turn of the parent counts at most this much
_LOOK_EVERY_S = 0.1  # a parent with a thousand workers may take hundreds of turns in a second

_STARTING = At("starting", loading=True)


@dataclass
class _Signs:
    """What is known of one worker."""

    at: At = _STARTING
    silent_s: float = 0.0  # since its last word
    at_it_s: float = 0.0  # since it began what it is at
    warned: bool = False  # of what it is at
    patience: float = 1.0  # grows with every warning that turned out to be needless


@dataclass(frozen=True)
class Worry:
    """A worker that may hang: to be told to the user, or to be ended."""

    member: Member
    text: str
    overdue: bool = False
    scope: str = "pair"  # "model" while it loads one, which no further pair need wait for


class Watch:
    """Counts the time without a sign of life in turns of the parent that looks.

    A run that slept as a whole (Ctrl-Z, a closed laptop) wakes up and blames nobody: its sleep is one turn.
    """

    def __init__(self, timeout_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._last = clock()
        self._signs: dict[int, _Signs] = {}  # by id of the member

    def heard(self, member: Member, event: Event | Died) -> None:
        signs = self._of(member)
        if signs.warned and not isinstance(event, Died):
            signs.patience *= 2  # it only was slow: do not warn of every slow batch
        signs.silent_s = 0.0
        if isinstance(event, At):
            signs.at, signs.at_it_s, signs.warned = event, 0.0, False
        elif isinstance(event, TaskDone):
            signs.at, signs.at_it_s, signs.warned = At("taking the next chunk"), 0.0, False
        elif isinstance(event, Died):
            self._signs[id(member)] = _Signs()

    def worries(self, members: Sequence[Member]) -> Iterator[Worry]:
        """Called once in every turn, after all that workers have told was heard."""
        now = self._clock()
        if now - self._last < _LOOK_EVERY_S:
            return
        here = {id(member) for member in members}
        self._signs = {key: signs for key, signs in self._signs.items() if key in here}  # workers come and go
        turn_s, self._last = min(now - self._last, _TURN_S), now
        for member in members:
            signs = self._of(member)
            if not member.tasks or member.pid is None:  # it has nothing to do, or works in this process
                signs.silent_s = signs.at_it_s = 0.0
                continue
            signs.silent_s += turn_s
            signs.at_it_s += turn_s
            limit_s = self._limit(signs)
            if limit_s is not None and signs.at_it_s > limit_s:
                text = f"ended after {limit_s:g} s {_state(member)[0]} {signs.at.what}"
                yield Worry(member, text, True, "model" if signs.at.loading and signs.at != _STARTING else "pair")
            elif not signs.warned and signs.silent_s > signs.patience * _silence(signs):
                signs.warned = True
                state, remedy = _state(member)
                who = f"worker {member.label} (process {member.pid})"
                yield Worry(
                    member, f"{who}: no progress for {signs.silent_s:.0f} s, {state} {signs.at.what} ({remedy})"
                )

    def _limit(self, signs: _Signs) -> float | None:
        """How long a worker may be at what it is at. Loading takes as long as it takes, however small the chunks."""
        if self._timeout_s is None:
            return None
        return max(self._timeout_s, SILENT_LOADING_S) if signs.at.loading else self._timeout_s * signs.at.models

    def _of(self, member: Member) -> _Signs:
        return self._signs.setdefault(id(member), _Signs())


def _silence(signs: _Signs) -> float:
    return SILENT_LOADING_S if signs.at.loading else SILENT_S


def _state(member: Member) -> tuple[str, str]:
    """What the system says of a process that says nothing itself, and what can be done about it."""
    pid = 0 if member.far else member.pid
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # another system or machine, or it has just gone
        letter = ""
    if letter in ("T", "t"):
        return "stopped at", f"kill -CONT {pid} lets it go on"
    if letter == "D":
        return "waiting for a disk or a network drive at", "--timeout SECONDS ends such workers"
    return "busy at", "--timeout SECONDS ends such workers"
