"""The flag of db.py that prints a group of settings: its members and its aggregate."""

from __future__ import annotations

import click

from testbed.commands.action import LOOK, Action, Context
from testbed.commands.tables import cell, text_table, with_interval
from testbed.errors import TestbedError, UnknownName, near_names
from testbed.metrics.estimate import Estimate

_MOST_MEMBERS = 20  # larger groups show their aggregate only
_MOST_MISSING = 5


def print_group(context: Context, pair: tuple[str, str]) -> None:
    """Print the stored members of a group, and the numbers that its aggregate computes from them."""
    from testbed.studies.groups import stored_group

    model, group = pair
    shelf = context.registry.eval_settings
    if group not in shelf.groups:
        raise UnknownName(f"no group '{group}'{near_names(group, shelf.groups)}")
    context.refuse("--print-group", version="its settings have versions of their own", source="it reads own results")
    stored = stored_group(context.store, context.registry, model, shelf.expand(group), context.variant)
    aggregate = shelf.aggregates.get(group)
    n = len(stored.members)
    if len(stored.missing) == n:
        raise TestbedError(f"{model} has been run on none of the {n} settings of '{group}'")
    try:
        numbers = dict(aggregate(stored)) if aggregate is not None else {}
    except TestbedError:
        raise
    except (Exception, SystemExit) as error:  # aggregates of registry files are the users' own code
        raise TestbedError(f"the aggregate of '{group}' failed: {type(error).__name__}: {error}") from error
    if context.style != "table":
        rows = [{"metric": name, **vars(e)} for name, e in numbers.items()]
        context.print(rows, ["metric", "value", "ci_low", "ci_high", "n"])
        return
    variant = f" ({stored.variant})" if stored.variant else ""
    click.echo(f"{model} on {group}{variant}: {n - len(stored.missing)} of {n} settings\n")
    if n <= _MOST_MEMBERS:
        lines = [_member_line(name, stored.metrics(name)) for name in stored.members]
        click.echo(text_table(lines, ["eval setting", "metric", "value [95 % interval]", "n"]) + "\n")
    if numbers:
        lines = [[name, with_interval(e.value, e.ci_low, e.ci_high), cell(e.n)] for name, e in numbers.items()]
        click.echo(text_table(lines, [f"{group} as a whole", "value [95 % interval]", "n"]))
    else:
        click.echo("nothing to show for the group as a whole")
    if stored.missing:
        more = "" if len(stored.missing) <= _MOST_MISSING else ", ..."
        click.echo(f"\nnot run: {', '.join(stored.missing[:_MOST_MISSING])}{more}")


def _member_line(name: str, metrics: dict[str, Estimate]) -> list[str]:
    if not metrics:
        return [name, "", "-", ""]
    # The first metric is the main one: a metrics_fn returns it first.
    metric, e = next(iter(metrics.items()))
    return [name, metric, with_interval(e.value, e.ci_low, e.ci_high), cell(e.n)]


ACTIONS = (
    Action(
        "print-group",
        print_group,
        "A group's members, its mean, mCE, AUROC, ...",
        ("MODEL", "GROUP"),
        purpose=LOOK,
        reads=("variant", "style"),
        as_command="show-group",
    ),
)
