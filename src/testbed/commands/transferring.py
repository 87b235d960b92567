"""Flags of db.py that bring results to another place: --merge and --copy of databases, --move-logits of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from testbed.commands.action import BRING_IN, LOOK_AFTER, TAKE_OUT, Action, Context
from testbed.commands.options import say
from testbed.errors import StoreError, TestbedError, counted

if TYPE_CHECKING:
    from testbed.store.carrying import Carried
    from testbed.store.comparing import Compared
    from testbed.store.transfer import Taken

_INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C: 128 + SIGINT
_MOST_TOLD = 5  # results that are named, of those that were left out for one reason


def merge(context: Context, places: tuple[str, ...]) -> None:
    from testbed.store.merging import merge as take_in
    from testbed.store.opening import is_there, open_store

    for place in places:
        if not is_there(place):
            raise StoreError(f"--merge: there is no database {place}")
    damaged = 0
    for place in places:
        with _interrupted_in_words():
            taken = take_in(context.new_store, open_store(place), context.override)
        say(f"{place}: {_in_words(taken)}")
        for line in _left_out(taken, place):
            say(line, err=True)
        damaged += len(taken.damaged)
    if damaged:
        raise TestbedError(f"{counted(damaged, 'damaged result')} left out: eval.py makes them again")


def copy(context: Context, target: str) -> None:
    from testbed.store.comparing import compare
    from testbed.store.copying import copy as copied
    from testbed.store.opening import open_store

    other = open_store(target, create=True)
    with _interrupted_in_words():
        taken = copied(context.store, other)
        click.echo(f"{_in_words(taken, 'copied')}")
        for line in _told(taken.damaged):
            say(line, err=True)
        compared = compare(context.store, other)
    if compared.differences:
        for line in compared.differences:
            say(f"differs: {line}", err=True)
        raise TestbedError(f"{other.where} is no copy of {context.store.where}: run the same command again")
    click.echo(_agreement(compared))
    if other.folder.resolve() == context.store.folder.resolve():
        click.echo(f"Both use the logits in {other.folder}: what one of them removes is missing to the other.")
    elif compared.elsewhere:
        click.echo("Both use the logits at addresses: what one of them removes is missing to the other.")
    click.echo(f"To go on there: --db, or TESTBED_DB={other.where.removeprefix('database ')}")


def move_logits(context: Context, root: str) -> None:
    from testbed.store.moving import move_logits as moved
    from testbed.store.places import checked_root

    done = list(moved(context.store, checked_root(root, "--move-logits")))
    bad = [(e, problem) for e, problem in done if problem]
    for evaluation, problem in bad:
        say(f"{evaluation.label} stays, it is damaged: {problem}", err=True)
    click.echo(f"moved the logits of {counted(len(done) - len(bad), 'result')} to {root}")
    if bad:
        raise TestbedError(
            f"{counted(len(bad), 'damaged result')} not moved: --verify marks them, eval.py makes them again"
        )


@contextmanager
def _interrupted_in_words() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say("\ninterrupted: what has been taken stays; the same command goes on", err=True)
        raise SystemExit(_INTERRUPTED) from None


def _in_words(taken: Taken, verb: str = "took in") -> str:
    parts = [counted(taken.completed, "result")]
    parts += [f"{taken.failed:,} that failed"] if taken.failed else []
    parts += [f"{taken.unfinished:,} unfinished with their chunks"] if taken.unfinished and verb == "copied" else []
    were = "was" if taken.stored == 1 else "were"
    there = f"; {taken.stored:,} {were} there already" if taken.stored else ""
    return f"{verb} {', '.join(parts)}{there}{_files(taken.files)}"


def _files(carried: Carried) -> str:
    counts = ((carried.linked, "linked"), (carried.copied, "copied"), (carried.stayed, "stay where they are"))
    told = ", ".join(f"{n:,} {word}" for n, word in counts if n)
    return f"; files: {told} ({carried.n_bytes / 1e6:,.1f} MB)" if told else ""


def _left_out(taken: Taken, place: str) -> list[str]:
    lines = _told(taken.damaged)
    if taken.differing:
        n, what = len(taken.differing), "has" if len(taken.differing) == 1 else "have"
        lines.append(
            f"{_named(taken.differing)}: {'this one' if n == 1 else 'these'} {what} another result here, which stays; "
            "--override takes the newer one"
        )
    if taken.removed:
        lines.append(
            f"{_named(taken.removed)}: removed with the result that it was derived from; eval.py makes it again"
        )
    if taken.followers:
        lines.append(f"{counted(taken.followers, 'result')} derived from those: left out with them")
    if taken.unfinished:
        lines.append(
            f"{taken.unfinished:,} unfinished: left in {place}, where the eval.py command that began them goes on"
        )
    return lines


def _told(lines: list[str]) -> list[str]:
    more = [f"... and {len(lines) - _MOST_TOLD:,} more"] if len(lines) > _MOST_TOLD else []
    return [*lines[:_MOST_TOLD], *more]


def _named(labels: list[str]) -> str:
    more = f" and {len(labels) - _MOST_TOLD:,} more" if len(labels) > _MOST_TOLD else ""
    return f"{', '.join(labels[:_MOST_TOLD])}{more}"


def _agreement(compared: Compared) -> str:
    shown = ("evaluations", "metrics", "chunks", "estimates")
    rows = ", ".join(f"{compared.rows[name]:,} {name}" for name in shown if compared.rows.get(name))
    elsewhere = f", {compared.elsewhere:,} at addresses that were not read" if compared.elsewhere else ""
    return (
        f"both sides agree: {rows or 'no rows'} (digest {compared.digest[:12]}); sha256 of "
        f"{counted(compared.logits, 'logits file')}{elsewhere}"
    )


ACTIONS = (
    Action(
        "merge",
        merge,
        "Take in the results of other databases, such as those of shards, with their files. Of a pair that both have "
        "the result here stays; with --override the newer one does.",
        ("FILE...",),
        purpose=BRING_IN,
        reads=("override",),
    ),
    Action(
        "copy",
        copy,
        "Copy the whole database with its files to another, such as a server, and compare both; what was interrupted "
        "goes on.",
        ("URL",),
        purpose=TAKE_OUT,
    ),
    Action(
        "move-logits",
        move_logits,
        "Move the logits of completed results from the results folder to a URL, such as s3://BUCKET/PREFIX; what was "
        "interrupted goes on.",
        ("URL",),
        purpose=LOOK_AFTER,
    ),
)
