"""db.py: query and manage stored results."""

from __future__ import annotations

from typing import Any

import click

from testbed.commands import actions
from testbed.commands.options import ManyValuesCommand, db_option, one_line_errors, registry_option

# Flag, number of values, their names, what it does. Each runs the function of the same name in actions.
_ACTIONS = (
    ("add-model", 1, "NAME", "Add a registry model to the database (any name with --override)."),
    ("add-eval-setting", 1, "NAME", "Add a registry setting to the database (any name with --override)."),
    ("remove-model", 1, "NAME", "Remove a model with its evaluations and logits; needs --override."),
    ("remove-eval-setting", 1, "NAME", "Remove a setting with its evaluations and logits; needs --override."),
    ("remove-evaluation", 2, "MODEL SETTING", "Remove one pair's results; needs --override."),
    ("rename-model", 2, "OLD NEW", "Rename a stored model."),
    ("rename-eval-setting", 2, "OLD NEW", "Rename a stored setting."),
    ("import-logits", 1, "DIR", "Take in what --save-logits wrote elsewhere."),
    ("import-csv", 1, "FILE", "Take in published accuracies, models x settings; needs --source."),
    ("recompute-metrics", 0, "", "Measure stored logits again, without any model; --filter chooses settings."),
    ("list-models-registry", 0, "", "Models that can be run."),
    ("list-eval-settings-registry", 0, "", "Eval settings that can be run."),
    ("list-parent-eval-settings-registry", 0, "", "Eval settings that are nobody's child."),
    ("list-models-db", 0, "", "Models with a row in the database."),
    ("list-eval-settings-db", 0, "", "Eval settings with a row in the database."),
    ("print-setting", 1, "SETTING", "Everything a setting declares."),
    ("print-eval", 2, "MODEL SETTING", "Metrics with intervals, and where they come from."),
    ("status", 0, "", "Matrix of done, failed, running and missing pairs."),
    ("save-logits", 2, "SETTING DIR", "Write logits, targets and image paths of all models, one .npz each."),
    ("export", 1, "FILE", "Write all results to FILE.csv, .json or .parquet."),
    ("verify", 0, "", "Check every logits file against its checksum."),
)


def _with_actions(command: Any) -> Any:
    for flag, values, names, text in reversed(_ACTIONS):
        kind: dict[str, Any] = {"is_flag": True} if values == 0 else {"nargs": values, "metavar": names}
        if values == 2:
            kind["type"] = (str, str)
        command = click.option(f"--{flag}", help=text, **kind)(command)
    return command


@click.command(
    cls=ManyValuesCommand, context_settings={"max_content_width": 110, "help_option_names": ["-h", "--help"]}
)
@_with_actions
@db_option
@registry_option
@click.option("--filter", "pattern", metavar="GLOB", help="Only names that match, in lists and --status.")
@click.option("--format", "style", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("--types", metavar="FILE", help="CSV with the columns model and type, for --import-csv.")
@click.option("--source", metavar="NAME", help="Where the numbers of --import-csv were published.")
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
    types: str | None,
    source: str | None,
    **asked: Any,
) -> None:
    """Query and manage the results database. Several flags may be given at once; they run in the order shown."""
    context = actions.Context(db, registry, pattern, style, override, types, source)
    done = 0
    for flag, values, _, _ in _ACTIONS:
        name = flag.replace("-", "_")
        given = asked[name]
        if given in (None, False):
            continue
        action = getattr(actions, name)
        if values == 0:
            action(context)
        else:
            action(context, given)
        done += 1
    if not done:
        click.echo(ctx.get_help())
