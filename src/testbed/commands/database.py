"""db.py: query and manage stored results."""

from __future__ import annotations

from typing import Any

import click

from testbed.commands import (
    auditing,
    checking,
    downloading,
    exchanging,
    groups,
    listing,
    managing,
    measuring,
    reading,
    validating,
)
from testbed.commands.action import Action, Context, Option
from testbed.commands.options import (
    ManyValues,
    ManyValuesCommand,
    WholeNumber,
    db_option,
    one_line_errors,
    registry_option,
)

# The functions behind the flags import what they need when they are called, so that --help is quick.
# What changes the database comes before what shows it, so that several flags can be given at once.
ACTIONS: tuple[Action, ...] = (
    *downloading.ACTIONS,
    *auditing.ACTIONS,
    *managing.ACTIONS,
    *exchanging.ACTIONS,
    *checking.ACTIONS,
    *validating.ACTIONS,
    *listing.ACTIONS,
    *reading.ACTIONS,
    *groups.ACTIONS,
    *measuring.ACTIONS,
)
# Each is a field of Context. A test holds the flags that a help text names against those that read the field.
SHARED_OPTIONS: tuple[Option, ...] = (
    (
        "data-root",
        "DIR...",
        "Folders with datasets, for --download, --audit-data, --check-references, --validate-shape-bias and "
        "--import-logits.  "
        "[default: $TESTBED_DATA or ./data]",
    ),
    (
        "source",
        "NAME",
        "Where numbers were published: required by --import-csv; the suffix of network names for --import-decisions; "
        "the results that --print-eval shows.",
    ),
    (
        "setting",
        "NAME",
        "Eval setting of the decisions, for --import-decisions, --export-decisions and --compare-people.",
    ),
    (
        "aggregation",
        "NAME",
        "From 1000 classes to 16 categories: mean, sum or max; for --export-decisions and --compare-people.  "
        "[default: mean]",
    ),
    (
        "checkpoint-dir",
        "DIR",
        "Folder of weights files, for --download-weights and --validate-shape-bias: searched first, and written to.  "
        "[default: $TESTBED_WEIGHTS or results/weights]",
    ),
    ("models", "GLOB...", "Only these models, for --export-decisions, --compare-people and --check-references."),
)


def _with_option(command: Any, option: Option) -> Any:
    name, metavar, text = option
    kind: dict[str, Any] = {"metavar": metavar, "cls": ManyValues if metavar.endswith("...") else None}
    return click.option(f"--{name}", help=text, **(kind if metavar else {"is_flag": True}))(command)


def _with_actions(command: Any) -> Any:
    """The command with every flag and its options. Reversed, since click shows the last decorator first."""
    for option in reversed(SHARED_OPTIONS):
        command = _with_option(command, option)
    for action in reversed(ACTIONS):
        for option in reversed(action.options):
            command = _with_option(command, option)
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
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How rows are printed.",
)
@click.option(
    "--variant", metavar="NAME", help="Partial results, such as limit=500.  [default: whole settings, if any]"
)
@click.option("--version", type=WholeNumber(min=0), metavar="N", help="Of a setting.  [default: the newest]")
@click.option("--override", is_flag=True, help="Do what destroys or replaces.")
@click.pass_context
@one_line_errors
def main(
    ctx: click.Context,
    *,
    db: str | None,
    registry: tuple[str, ...],
    pattern: str | None,
    style: str,
    override: bool,
    variant: str | None,
    version: int | None,
    source: str | None,
    data_root: tuple[str, ...],
    setting: str | None,
    aggregation: str | None,
    models: tuple[str, ...],
    checkpoint_dir: str | None,
    **by_action: Any,
) -> None:
    """Query and manage the results database. Several flags may be given at once; they run in the order shown."""
    context = Context(
        db=db,
        registry_folders=registry,
        pattern=pattern,
        style=style,
        override=override,
        variant=variant,
        version=version,
        source=source,
        data_root=data_root,
        setting=setting,
        aggregation=aggregation,
        models=models,
        checkpoint_dir=checkpoint_dir,
    )
    # What click passes for a flag that is not given depends on its kind.
    chosen = [action for action in ACTIONS if by_action[_parameter(action.flag)] not in (None, False, ())]
    for action in chosen:
        values = [by_action[_parameter(action.flag)]] if action.values else []
        own_options = {_parameter(name): by_action[_parameter(name)] for name, _, _ in action.options}
        action.function(context, *values, **own_options)
    if not chosen:
        click.echo(ctx.get_help())


def _parameter(name: str) -> str:
    """The keyword under which click passes an option: --data-root comes as data_root."""
    return name.replace("-", "_")
