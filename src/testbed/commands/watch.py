"""The flag of db.py that watches runs: a page in the terminal, lines of JSON for other programs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import LOOK, Action, Context
from testbed.errors import StoreError, TestbedError

if TYPE_CHECKING:
    from testbed.commands.watch_page import Line
    from testbed.store.database import Store
    from testbed.store.run_states import Watched

_EVERY_S, _LEAST_S, _MOST_S = 2.0, 0.1, 3600.0
_STYLES = {"bold": "1", "red": "31", "faint": "2"}
# The other screen of the terminal, which leaves the first as it was; no cursor; lines that are cut, not broken.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _EMPTY_LINE = "\x1b[H", "\x1b[2K"


def watch(context: Context, *, every: str | None, once: bool) -> None:
    """Look again and again until Ctrl-C. A page for a file or a pipe is written once."""
    if context.style == "csv":
        raise TestbedError("--watch: expected --format table or json, got csv")
    pause_s = _seconds(every)
    once = once or (context.style == "table" and not sys.stdout.isatty())
    try:
        looks = itertools.islice(_looks(context.store, pause_s), 1 if once else None)
        if context.style == "json":
            _as_lines(looks)
        elif once:
            _as_text(looks)
        else:
            _as_page(looks)
    except KeyboardInterrupt:
        return


def _seconds(given: str | None) -> float:
    try:
        seconds = _EVERY_S if given is None else float(given)
    except ValueError:
        seconds = -1.0
    if not _LEAST_S <= seconds <= _MOST_S:
        raise TestbedError(f"--every: expected seconds from {_LEAST_S:g} to {_MOST_S:g}, got '{given}'")
    return seconds


def _looks(store: Store, pause_s: float) -> Iterator[Watched | StoreError]:
    """What there is to see, again and again. A server that is away may come back, once it has been seen."""
    from testbed.store.run_states import watched

    yield watched(store)
    while True:
        time.sleep(pause_s)
        try:
            yield watched(store)
        except StoreError as error:
            yield error


def _as_lines(looks: Iterator[Watched | StoreError]) -> None:
    from testbed.commands.watch_page import as_data

    for now in looks:
        click.echo(json.dumps({"error": str(now)} if isinstance(now, StoreError) else as_data(now)))
        sys.stdout.flush()


def _as_text(looks: Iterator[Watched | StoreError]) -> None:
    width = shutil.get_terminal_size((160, 24)).columns
    for now in looks:
        click.echo("\n".join(line.text.rstrip() for line in _lines(now, width)))


def _as_page(looks: Iterator[Watched | StoreError]) -> None:
    with _screen() as draw:
        for now in looks:
            width, height = shutil.get_terminal_size()
            draw(_lines(now, width, height), height)


def _lines(now: Watched | StoreError, width: int, height: int | None = None) -> Sequence[Line]:
    from testbed.commands.watch_page import Line, page

    return [Line(f"{now}; looking again", "red")] if isinstance(now, StoreError) else page(now, width, height)


# ---- the terminal --------------------------------------------------------------------------------------------


@contextmanager
def _screen() -> Iterator[Callable[[Sequence[Line], int], None]]:
    """A function that draws a page of so many lines. The terminal is left as it was, also while this is stopped."""
    coloured = not os.environ.get("NO_COLOR")

    def draw(lines: Sequence[Line], height: int) -> None:
        shown = [f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if style and coloured else text for text, style in lines]
        _tell(_HOME + "\r\n".join(_EMPTY_LINE + line for line in [*shown, *[""] * (height - len(shown))]))

    def stop(*_: Any) -> None:  # Ctrl-Z
        _tell(_LEAVE)
        os.kill(os.getpid(), signal.SIGSTOP)
        _tell(_ENTER)

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    before = {s: signal.signal(s, h) for s, h in ((signal.SIGTSTP, stop), (signal.SIGTERM, end), (signal.SIGHUP, end))}
    try:
        _tell(_ENTER)
        yield draw
    finally:
        _tell(_LEAVE)
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(codes: str) -> None:
    sys.stdout.write(codes)
    sys.stdout.flush()


ACTIONS = (
    Action(
        "watch",
        watch,
        "How far all runs on the database are, until Ctrl-C; with --format json an object in a line at each look.",
        options=(
            ("every", "SECONDS", "Between two looks.  [default: 2]"),
            ("once", "", "Look once."),
        ),
        purpose=LOOK,
        reads=("style",),
    ),
)
