"""The flag of db.py that prints a group of settings: its members and its aggregate."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import LOOK, Action, Context
from testbed.commands.causes import first_names
from testbed.commands.options import say
from testbed.commands.results_table import MOST_LINES, results_table
from testbed.commands.tables import cell, text_table, with_interval
from testbed.errors import TestbedError
from testbed.metrics.aggregates import Mean
from testbed.metrics.estimate import Estimate

if TYPE_CHECKING:
    from testbed.studies.groups import StoredGroup

_MOST_MISSING = 5
_MORE = "--print-eval MODEL SETTING shows one setting with its interval, --format csv the group's numbers."


def print_group(context: Context, pair: tuple[str, str]) -> None:
    """Print the stored members of a group, and the numbers that its aggregate computes from them."""
    from testbed.studies.groups import stored_group

    model, group = pair
    members, aggregate = context.registry.group(group)
    stored = stored_group(context.store, context.registry, model, members, context.variant)
    n = len(stored.members)
    if len(stored.missing) == n:
        there = _other_settings(context, model)
        raise TestbedError(f"{model} has been run on none of the {n} settings of '{group}'{there}")
    aggregate = aggregate or _mean_of_main_metrics
    try:
        numbers = dict(aggregate(stored))
    except TestbedError:
        raise
    except (Exception, SystemExit) as error:  # aggregates of registry files are the users' own code
        raise TestbedError(f"the aggregate of '{group}' failed: {type(error).__name__}: {error}") from error
    if context.style != "table":
        rows = [{"metric": name, **vars(e)} for name, e in numbers.items()]
        context.print(rows, ["metric", "value", "ci_low", "ci_high", "n"])
        return
    variant = f" ({stored.variant})" if stored.variant else ""
    say(f"{model} on {group}{variant}: {n - len(stored.missing)} of {n} settings\n")
    if n > MOST_LINES:
        click.echo(_folded_members(context, stored) + "\n")
    else:
        lines = [_member_line(name, stored.metrics(name)) for name in stored.members]
        click.echo(text_table(lines, ["eval setting", "metric", "value [95 % interval]", "n"]) + "\n")
    if numbers:
        lines = [[name, with_interval(e.value, e.ci_low, e.ci_high), cell(e.n)] for name, e in numbers.items()]
        click.echo(text_table(lines, [f"{group} as a whole", "value [95 % interval]", "n"]))
        if remark := getattr(aggregate, "remark", ""):
            say(f"\n{remark}")
    else:
        click.echo("the group as a whole has no number: its settings have none in common, or too few have been run")
    if stored.missing:
        more = "" if len(stored.missing) <= _MOST_MISSING else ", ..."
        say(f"\nnot run: {', '.join(stored.missing[:_MOST_MISSING])}{more}")


def _mean_of_main_metrics(stored: Any) -> dict[str, Estimate]:
    """The mean over the stored members, where the registry declares no aggregate and all have the same main metric."""
    main = [next(iter(stored.metrics(name).items())) for name in stored.members if stored.metrics(name)]
    if len({(metric, estimate.kind) for metric, estimate in main}) != 1:
        return {}
    metric, estimate = main[0]
    return Mean(metric, estimate.kind)(stored)


def _folded_members(context: Context, stored: StoredGroup) -> str:
    """The members of a large group, with severities as their mean."""
    from testbed.store.evaluation import OWN
    from testbed.store.find import numbers

    rows = numbers(context.store, [stored.model], stored.members, variant=stored.variant, source=OWN)
    return results_table(rows, shutil.get_terminal_size((160, 24)).columns, more=_MORE)


def _other_settings(context: Context, model: str) -> str:
    """What there is of the model instead, to end a message that a group has nothing of it."""
    from testbed.store.evaluation import OWN
    from testbed.store.find import EVERY, find

    stored = find(context.store, [model], None, EVERY, EVERY, EVERY)
    own = list(dict.fromkeys(e.eval_setting for e in stored if e.source == OWN))
    sources = list(dict.fromkeys(e.source for e in stored if e.source != OWN))
    told = [f"own results on {first_names(own)}"] if own else []
    told += [f"published results by {first_names(sources)} (--print-eval MODEL SETTING)"] if sources else []
    return f"; it has {' and '.join(told)}" if told else ""


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
        refuses={"version": "its settings have versions of their own", "source": "it reads own results"},
        as_command="show-group",
    ),
)
