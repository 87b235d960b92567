"""Flag of db.py that shows a group of settings as a whole: its members and its own aggregate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import Action, Context
from testbed.commands.tables import cell, text_table, with_interval
from testbed.errors import StoreError, TestbedError, UnknownName, near_names
from testbed.metrics.estimate import Estimate

if TYPE_CHECKING:
    import numpy as np

    from testbed.store.files import SampleList
    from testbed.store.outputs import Outputs

_MOST_MEMBERS = 20  # larger groups show their aggregate only
_MOST_MISSING = 5


class StoredResults:
    """What is stored of one model, as an aggregate sees it (testbed.metrics.aggregates.StoredGroup)."""

    def __init__(self, context: Context, model: str, members: Sequence[str], variant: str | None = None) -> None:
        from testbed.store import queries

        known = queries.model_names(context.store)
        if model not in known:
            raise UnknownName(f"no model '{model}' in the {context.store.where}{near_names(model, known)}")
        self.members = members
        self._context, self._model = context, model
        rows = [r for r in queries.all_results(context.store) if r["model"] == model and r["source"] == "own"]
        self.variant = self._fullest(rows) if variant is None else variant
        self._metrics: dict[str, dict[str, Estimate]] = {}
        for r in queries.results(context.store, [model], variant=self.variant):
            found = Estimate(r["value"], r["ci_low"], r["ci_high"], r["n"])
            self._metrics.setdefault(r["eval_setting"], {})[r["metric"]] = found

    def _fullest(self, rows: list[dict[str, Any]]) -> str:
        """Whole settings, or where none is stored the limited run that covers most of the group."""
        stored: dict[str, set[str]] = {}
        for row in rows:
            if row["eval_setting"] in self.members:
                stored.setdefault(row["variant"], set()).add(row["eval_setting"])
        return "" if "" in stored or not stored else max(sorted(stored), key=lambda v: len(stored[v]))

    @property
    def missing(self) -> list[str]:
        return [m for m in self.members if m not in self._metrics]

    def metrics(self, setting: str) -> dict[str, Estimate]:
        return self._metrics.get(setting, {})

    def estimate(self, setting: str, metric: str) -> Estimate | None:
        return self.metrics(setting).get(metric)

    def logits(self, setting: str) -> np.ndarray | None:
        outputs = self._outputs(setting)
        return None if outputs is None else outputs.logits

    def samples(self, setting: str) -> SampleList | None:
        outputs = self._outputs(setting)
        return None if outputs is None else outputs.samples

    def _outputs(self, setting: str) -> Outputs | None:
        from testbed.store import queries
        from testbed.store.outputs import outputs_of

        try:
            evaluation = queries.completed(self._context.store, self._model, setting, self.variant)
            return outputs_of(self._context.store, self._context.registry, evaluation)
        except (StoreError, UnknownName):
            return None

    def of(self, model: str) -> StoredResults | None:
        try:
            return StoredResults(self._context, model, self.members, self.variant)
        except UnknownName:
            return None


def print_group(context: Context, pair: tuple[str, str]) -> None:
    """The members of a group that are stored, and the numbers that its aggregate makes of them."""
    model, group = pair
    shelf = context.registry.eval_settings
    if group not in shelf.groups:
        raise UnknownName(f"no group '{group}'{near_names(group, shelf.groups)}")
    stored = StoredResults(context, model, shelf.expand(group))
    aggregate = shelf.aggregates.get(group)
    n = len(stored.members)
    if len(stored.missing) == n:
        raise TestbedError(f"{model} has been run on none of the {n} settings of '{group}'")
    numbers = dict(aggregate(stored)) if aggregate is not None else {}
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
    metric, e = next(iter(metrics.items()))
    return [name, metric, with_interval(e.value, e.ci_low, e.ci_high), cell(e.n)]


ACTIONS = (Action("print-group", print_group, "A group's members, its mean, mCE, AUROC, ...", ("MODEL", "GROUP")),)
