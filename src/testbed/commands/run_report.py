"""What eval.py prints: the plan of a dry run, and the results and failures of a run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from testbed.commands.causes import Failure, abridged, cause_lines, first_names
from testbed.commands.options import say
from testbed.errors import counted

if TYPE_CHECKING:
    from testbed.engine.bundles import Bundle
    from testbed.engine.pairs import Pair, Plan
    from testbed.engine.run import Report
    from testbed.options import RunOptions
    from testbed.store.database import Store
    from testbed.store.evaluation import Number

_STATES = {"run": "to run", "derive": "to derive, no forward pass", "done": "done", "fail": "cannot run"}


def print_plan(plan: Plan, store: Store, bundles: Sequence[Bundle], run: RunOptions, place: Disk, full: bool) -> None:
    """What would be done with each pair, what cannot be run and why, and what it takes in time and on disk."""
    from testbed.engine.probe_training import untrained

    for note in (*filter(None, [plan.share]), *plan.notes, *untrained(plan, Path(run.results_folder))):
        click.echo(note)
    if not plan.pairs:
        click.echo("no pairs: there are more shards than pairs, and this one has none")
        return
    if pairs := [p for p in plan.pairs if full or p.action != "fail"]:
        click.echo(_plan_table(pairs, full))
    for line in _bundles_in_words(bundles):
        say(line)
    if (failing := plan.having("fail")) and not full:
        click.echo(f"\n{len(failing):,} cannot run:")
        for line in cause_lines(map(_failure, failing)):
            say(f"  {line}")
    counts = ", ".join(f"{len(plan.having(a)):,} {w.split(',')[0]}" for a, w in _STATES.items() if plan.having(a))
    images = sum(p.n_images for p in plan.having("run"))
    click.echo(f"\n{counted(len(plan.pairs), 'pair')}: {counts}; {counted(images, 'image')}")
    if plan.having("run"):
        click.echo(_time_in_words(plan, store))
        click.echo(_disk_in_words(plan, run, place))


def _plan_table(pairs: Sequence[Pair], full: bool) -> str:
    """One row per pair; where that is more than a screen, one per state and family of settings."""
    from testbed.commands.families import families
    from testbed.commands.results_table import MOST_LINES
    from testbed.commands.tables import text_table

    def state(pair: Pair) -> str:
        return ": ".join(text for text in (_STATES[pair.action], pair.reason, pair.error or pair.warning) if text)

    def images(pairs: Sequence[Pair]) -> str:
        return f"{total:,}" if (total := sum(p.n_images for p in pairs)) else ""

    if full or len(pairs) <= MOST_LINES:
        lines = [[p.stored_model, p.setting.name, images([p]), state(p)] for p in pairs]
        return text_table(lines, ["model", "eval setting", "images", "state"])
    family = {s: name for name, members in families(p.setting.name for p in pairs).items() for s in members}
    grouped: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        grouped.setdefault((family[pair.setting.name], abridged(state(pair))), []).append(pair)
    lines = [[name, f"{len(alike):,}", images(alike), word] for (name, word), alike in grouped.items()]
    table = text_table(lines[:MOST_LINES], ["eval setting", "pairs", "images", "state"])
    more = f"... and {len(lines) - MOST_LINES:,} lines more" if len(lines) > MOST_LINES else ""
    return "\n".join(text for text in (table, more, "--full shows every pair.") if text)


def _time_in_words(plan: Plan, store: Store) -> str:
    from testbed.engine.progress import duration
    from testbed.store.names import throughputs

    seconds = plan.estimated_seconds(throughputs(store))
    if seconds is None:
        return "time: not known, since none of these models has been run; --limit 100 tells their speed"
    return f"time: about {duration(seconds)} on one device"


def _disk_in_words(plan: Plan, run: RunOptions, place: Disk) -> str:
    """What the logits take, and what is free. The number of classes is that of the labels."""
    each = 2 if run.logits_dtype == "float16" else 4
    needed = sum(each * p.n_images * p.n_classes for p in plan.having("run"))
    beside = f", without {' and '.join(run.arrays)}" if run.arrays else ""
    cache = f"; up to {run.cache_gb:g} GB of prepared images (--cache-gb)" if run.cache_gb else ""
    return f"disk: about {_size(needed)} of logits{beside}{cache}; {_size(place.free)} free in {place.folder}"


def _size(n_bytes: float) -> str:
    for unit in ("kB", "MB", "GB"):
        n_bytes /= 1000
        if n_bytes < 1000 or unit == "GB":
            return f"{n_bytes:,.{1 if n_bytes < 10 else 0}f} {unit}"
    raise AssertionError


def _failure(pair: Pair) -> Failure:
    return Failure(pair.stored_model, pair.setting.name, pair.error)


class Disk(NamedTuple):
    """The folder that results go to, and the room on its disk."""

    folder: Path
    free: int


def disk_of(folder: Path) -> Disk:
    """The folder need not exist yet: its disk is then that of the nearest one that does."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return Disk(folder, shutil.disk_usage(there).free)


def _bundles_in_words(bundles: Sequence[Bundle]) -> list[str]:
    """Which models are shown pictures that were prepared once for all of them."""
    settings: dict[tuple[str, ...], list[str]] = {}
    for bundle in bundles:
        models = tuple(pair.stored_model for pair in bundle.pairs)
        settings.setdefault(models, []).append(bundle.pairs[0].setting.name)
    return [
        f"\nprepared once for {len(models)} models ({first_names(models)}): {first_names(names)}"
        for models, names in settings.items()
        if len(models) > 1
    ]


def print_report(report: Report, store: Store, run: RunOptions, stored: bool, full: bool) -> None:
    """Results on standard output; warnings, failures and interruption on standard error."""
    from testbed.commands.results_table import results_table
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
        click.echo(results_table(rows, shutil.get_terminal_size((160, 24)).columns, marked(mixed), full=full))
        for line in lines(mixed):
            say(f"\n{line}")
    failed = {id(pair) for pair in report.failed}
    doubtful = [p for p in plan.pairs if p.warning and id(p) not in failed]
    for line in cause_lines(Failure(p.stored_model, p.setting.name, p.warning) for p in doubtful):
        say(f"warning: {line}", err=True)
    if report.failed:
        click.echo(f"\n{len(report.failed):,} of {len(plan.pairs):,} pairs failed:", err=True)
        for line in cause_lines(map(_failure, report.failed)):
            say(f"  {line}", err=True)
        if report.log is not None:
            click.echo(f"{report.log} has each of them in full.", err=True)
    if report.interrupted and stored:
        click.echo("\nStopped. What is finished is kept; the same command goes on from there.", err=True)
    elif report.interrupted:
        click.echo("\nStopped. With --no-db nothing is kept: the same command begins anew.", err=True)
    elif not plan.pairs:
        click.echo("\nNothing to do: there are more shards than pairs, and this one has none.")
    elif not report.worked:
        click.echo(f"\nNothing to do: all {len(plan.pairs)} pairs are stored (--overwrite runs them again).")
    if run.variant and rows:
        click.echo(f"\nThese results are kept apart as '{run.variant}'.")
    if plan.share and report.worked:
        click.echo(f"\nThis was {plan.share}.")
    if stored:
        click.echo(f"\nResults are in {store.where.removeprefix('database ')}")


def numbers_of_pairs(store: Store, plan: Plan, variant: str) -> list[Number]:
    """The stored numbers of the pairs that the user named, for the setting versions that the registry now declares."""
    from testbed.store.evaluation import OWN
    from testbed.store.find import EVERY, numbers

    asked = {pair.key for pair in plan.pairs if pair.asked}
    models, settings = {model for model, _, _ in asked}, {setting for _, setting, _ in asked}
    # All versions are read: the newest stored version need not be the one that is declared.
    stored = numbers(store, sorted(models), sorted(settings), variant=variant, version=EVERY, source=OWN)
    return [n for n in stored if (n.model, n.eval_setting, n.version) in asked]


def _without_labels(store: Store, variant: str, pairs: set[tuple[str, str]]) -> list[Number]:
    """A row without a number for each pair whose images have no labels: only its logits are stored."""
    from testbed.commands.results_table import NO_LABELS
    from testbed.store.evaluation import OWN, Number
    from testbed.store.find import find

    blank = Number._make([None] * len(Number._fields))
    rows = []
    for e in find(store, variant=variant, source=OWN) if pairs else []:
        unmeasured = (e.model, e.eval_setting) in pairs and e.samples_path
        if unmeasured and not store.place(e.samples_path).rows().has_labels:
            rows.append(blank._replace(model=e.model, eval_setting=e.eval_setting, metric=NO_LABELS, n=e.n_images))
    return rows
