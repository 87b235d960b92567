"""What eval.py prints: the plan of a dry run, and the results and failures of a run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from testbed.engine.plan import Bundle, Plan
    from testbed.engine.run import Report
    from testbed.options import RunOptions
    from testbed.store.database import Store
    from testbed.store.evaluation import Number

_NAMED = 3  # models or settings that are named in one line


def print_plan(plan: Plan, store: Store, bundles: Sequence[Bundle]) -> None:
    """One row per pair with what would be done, which are prepared together, the totals and the estimated time."""
    from testbed.commands.tables import text_table
    from testbed.engine.progress import duration
    from testbed.store.names import throughputs

    words = {"run": "to run", "derive": "to derive, no forward pass", "done": "done", "fail": "cannot run"}
    rows = [
        [
            p.stored_model,
            p.setting.name,
            f"{p.n_images:,}" if p.n_images else "",
            ": ".join(text for text in (words[p.action], p.reason, p.error or p.warning) if text),
        ]
        for p in plan.pairs
    ]
    for note in plan.notes:
        click.echo(note)
    click.echo(text_table(rows, ["model", "eval setting", "images", "state"]))
    # None for a model that has never been run: its speed is not known.
    seconds = plan.estimated_seconds(throughputs(store))
    images = sum(p.n_images for p in plan.having("run"))
    for line in _bundles_in_words(bundles):
        click.echo(line)
    counts = ", ".join(f"{len(plan.having(a))} {w.split(',')[0]}" for a, w in words.items() if plan.having(a))
    time = f", about {duration(seconds)} on one device" if seconds is not None else ""
    click.echo(f"\n{len(plan.pairs)} pairs: {counts}; {images:,} images{time}")


def _bundles_in_words(bundles: Sequence[Bundle]) -> list[str]:
    """Which models are shown pictures that were prepared once for all of them."""
    settings: dict[tuple[str, ...], list[str]] = {}
    for bundle in bundles:
        models = tuple(pair.stored_model for pair in bundle.pairs)
        settings.setdefault(models, []).append(bundle.pairs[0].setting.name)
    return [
        f"\nprepared once for {len(models)} models ({_first_names(models)}): {_first_names(names)}"
        for models, names in settings.items()
        if len(models) > 1
    ]


def _first_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def print_report(report: Report, store: Store, run: RunOptions, stored: bool) -> None:
    """Results on standard output; warnings, failures and interruption on standard error."""
    from testbed.commands.tables import results_table
    from testbed.store.mixed import lines, marked, mixed_data

    plan = report.plan
    asked = {(p.stored_model, p.setting.name) for p in plan.pairs if p.asked}
    rows = numbers_of_pairs(store, plan, run.variant)
    rows += _without_labels(store, run.variant, asked - {(r.model, r.eval_setting) for r in rows})
    # The order in which the user named models and settings.
    order = {pair: i for i, pair in enumerate((p.stored_model, p.setting.name) for p in plan.pairs)}
    rows.sort(key=lambda r: order[r.model, r.eval_setting])
    if rows:
        # The fallback size is for output into a file or pipe.
        mixed = mixed_data(store, {r.evaluation_id for r in rows})
        click.echo(results_table(rows, shutil.get_terminal_size((160, 24)).columns, marked(mixed)))
        for line in lines(mixed):
            click.echo(f"\n{line}")
    for pair in plan.pairs:
        if pair.warning and pair not in report.failed:
            click.echo(f"warning: {pair.label}: {pair.warning}", err=True)
    if report.failed:
        click.echo(f"\n{len(report.failed)} of {len(plan.pairs)} pairs failed:", err=True)
        for pair in report.failed:
            click.echo(f"  {pair.label}: {pair.error}", err=True)
    if report.interrupted and stored:
        click.echo("\nStopped. What is finished is kept; the same command goes on from there.", err=True)
    elif report.interrupted:
        click.echo("\nStopped. With --no-db nothing is kept: the same command begins anew.", err=True)
    elif not report.worked:
        click.echo(f"\nNothing to do: all {len(plan.pairs)} pairs are stored (--overwrite runs them again).")
    if run.variant and rows:
        click.echo(f"\nThese results are kept apart as '{run.variant}'.")
    if stored:
        click.echo(f"\nResults are in {store.where.removeprefix('database ')}")


def numbers_of_pairs(store: Store, plan: Plan, variant: str) -> list[Number]:
    """The stored numbers of the pairs that the user named, for the setting versions that the registry now declares."""
    from testbed.store.evaluation import OWN
    from testbed.store.find import EVERY, numbers

    asked = {(p.stored_model, p.setting.name, p.setting.version) for p in plan.pairs if p.asked}
    models, settings = {model for model, _, _ in asked}, {setting for _, setting, _ in asked}
    # All versions are read: the newest stored version need not be the one that is declared.
    stored = numbers(store, sorted(models), sorted(settings), variant=variant, version=EVERY, source=OWN)
    return [n for n in stored if (n.model, n.eval_setting, n.version) in asked]


def _without_labels(store: Store, variant: str, pairs: set[tuple[str, str]]) -> list[Number]:
    """A row without a number for each pair whose images have no labels: only its logits are stored."""
    from testbed.commands.tables import NO_LABELS
    from testbed.store.evaluation import OWN, Number
    from testbed.store.files import load_rows
    from testbed.store.find import find

    blank = Number._make([None] * len(Number._fields))
    rows = []
    for e in find(store, variant=variant, source=OWN) if pairs else []:
        unmeasured = (e.model, e.eval_setting) in pairs and e.samples_path
        if unmeasured and not load_rows(store.folder / str(e.samples_path)).has_labels:
            rows.append(blank._replace(model=e.model, eval_setting=e.eval_setting, metric=NO_LABELS, n=e.n_images))
    return rows
