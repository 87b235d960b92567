"""db.py: query and manage stored results."""

from __future__ import annotations

from typing import Any

import click

from testbed.commands import auditing, checking, downloading, exchanging, groups, listing, managing, measuring, reading
from testbed.commands.action import Action, Context
from testbed.commands.options import ManyValues, ManyValuesCommand, db_option, one_line_errors, registry_option

# What changes the database comes before what shows it, so that several flags can be given at once.
ACTIONS: tuple[Action, ...] = (
    *downloading.ACTIONS,
    *auditing.ACTIONS,
    *managing.ACTIONS,
    *exchanging.ACTIONS,
    *checking.ACTIONS,
    *listing.ACTIONS,
    *reading.ACTIONS,
    *groups.ACTIONS,
    *measuring.ACTIONS,
)


def _with_actions(command: Any) -> Any:
    for action in reversed(ACTIONS):
        for name, metavar, text in reversed(action.options):
            several: dict[str, Any] = {"cls": ManyValues} if metavar.endswith("...") else {}
            command = click.option(f"--{name}", metavar=metavar, help=text, **several)(command)
        kind: dict[str, Any] = {"is_flag": True}
        if action.values and action.values[0].endswith("..."):
            kind = {"cls": ManyValues, "metavar": action.values[0]}
        elif action.values:
            n = len(action.values)
            kind = {"nargs": n, "metavar": " ".join(action.values), "type": str if n == 1 else (str,) * n}
        command = click.option(f"--{action.flag}", help=action.help, **kind)(command)
    return command


@click.command(
    cls=ManyValuesCommand, context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]}
)
@_with_actions
@db_option
@registry_option
@click.option("--filter", "pattern", metavar="GLOB", help="Only names that match, in lists and --status.")
@click.option("--format", "style", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("--override", is_flag=True, help="Do what destroys or replaces.")
@click.pass_context
@one_line_errors
def main(
    ctx: click.Context,
    db: str | None,
    registry: tuple[str, ...],
    pattern: str | None,
    style: str,
    override: bool,
    **asked: Any,
) -> None:
    """Query and manage the results database. Several flags may be given at once; they run in the order shown."""
    context = Context(db, registry, pattern, style, override, extra=asked)
    chosen = [(a, asked[a.flag.replace("-", "_")]) for a in ACTIONS]
    chosen = [(action, given) for action, given in chosen if given not in (None, False, ())]
    for action, given in chosen:
        if action.values:
            action.function(context, given)
        else:
            action.function(context)
    if not chosen:
        click.echo(ctx.get_help())
