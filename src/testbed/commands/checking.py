"""Flags of db.py that compare: with people by their decisions, with published numbers by references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import Action, Context
from testbed.commands.tables import text_table
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.metrics.estimate import Estimate
    from testbed.studies.references.diagnose import Diagnosis
    from testbed.studies.references.table import Check, Reference

_CHECK_COLUMNS = ["model", "eval_setting", "metric", "measured", "expected", "difference", "tolerance", "verdict"]
_BREAKDOWN = ("shape_correct", "texture_correct", "neither", "shape_bias")
_MOST_MISSING = 8


# ---- decisions -------------------------------------------------------------------------------------------


def import_decisions(context: Context, folder: str) -> None:
    from testbed.studies.people import observers

    setting = _setting(context, "--import-decisions")
    taken = observers.import_decisions(
        context.new_store, context.registry, Path(folder), setting, context.extra["source"] or "", context.override
    )
    names = ", ".join(one.name for one in taken)
    click.echo(f"took in {len(taken)} observer(s) on {setting}: {names}")
    expected = context.registry.eval_setting(setting).size
    for one in taken:
        if expected is not None and one.trials != expected:
            click.echo(f"warning: {one.name}: expected {expected} trials, found {one.trials}", err=True)


def export_decisions(context: Context, folder: str) -> None:
    from testbed.studies.people import observers

    setting = _setting(context, "--export-decisions")
    written = observers.export_decisions(
        context.store, context.registry, setting, Path(folder), context.extra["models"] or None, _aggregation(context)
    )
    click.echo(f"wrote the decisions of {len(written)} observer(s) on {setting} to {folder}")


def compare_people(context: Context) -> None:
    """Accuracy difference, observed and error consistency of every model with people, over one or more settings."""
    from testbed.studies.people import observers

    settings = _setting(context, "--compare-people").split(",")
    people = context.extra["people"] or observers.PEOPLE
    chosen = [*context.extra["models"], people] if context.extra["models"] else None
    panels = [
        observers.panel(context.store, context.registry, name, chosen, _aggregation(context)) for name in settings
    ]
    rows = [
        {
            "observer": one.model or f"people ({people})",
            "accuracy16": one.accuracy,
            "accuracy_difference": _interval(one.consistency.accuracy_difference, context.style),
            "observed_consistency": _interval(one.consistency.observed, context.style),
            "error_consistency": _interval(one.consistency.error, context.style),
        }
        for one in observers.compare_with_people(panels, people)
    ]
    context.print(rows, list(rows[0]))


def _interval(estimate: Estimate, style: str) -> Any:
    if style != "table":
        return estimate.value
    return f"{estimate.value:.3f} [{estimate.ci_low:.3f}, {estimate.ci_high:.3f}]"


def _setting(context: Context, flag: str) -> str:
    setting = context.extra["setting"]
    if not setting:
        raise TestbedError(f"{flag} needs --setting NAME, such as cue-conflict")
    return str(setting)


def _aggregation(context: Context) -> str:
    from testbed.metrics.categories16 import AGGREGATIONS

    chosen = context.extra["aggregation"] or AGGREGATIONS[0]
    if chosen not in AGGREGATIONS:
        raise TestbedError(f"--aggregation: expected {', '.join(AGGREGATIONS)}, got '{chosen}'")
    return str(chosen)


# ---- references ------------------------------------------------------------------------------------------


def check_references(context: Context) -> None:
    """Stored results beside published ones; what is outside its tolerance is looked into, and is a failure."""
    from testbed.entries.registry import registry_folders
    from testbed.store import queries
    from testbed.studies.references import table

    references = table.read_references(registry_folders(context.registry_folders))
    checks, missing = table.check(references, queries.results(context.store), context.extra["models"])
    if not checks:
        raise TestbedError(
            f"nothing to check: none of {len(missing)} published numbers has a stored result; eval.py makes them"
        )
    context.print([_row(c) for c in checks], [*_CHECK_COLUMNS, "source"])
    if context.style == "table":
        _print_breakdowns(context, checks)
        _print_missing(missing)
    outside = [c for c in checks if not c.inside]
    if not outside:
        click.echo(f"\nall {len(checks)} stored numbers agree with the references", err=context.style != "table")
        return
    for diagnosis in _diagnoses(context, checks):
        _print_diagnosis(diagnosis)
    raise TestbedError(f"{len(outside)} of {len(checks)} stored numbers do not agree with the references")


def _row(check: Check) -> dict[str, Any]:
    reference = check.reference
    return {
        "model": check.model,
        "eval_setting": reference.eval_setting,
        "metric": reference.metric,
        "measured": check.value,
        "expected": reference.value,
        "difference": check.difference,
        "tolerance": reference.tolerance,
        "verdict": "ok" if check.inside else "OUTSIDE",
        "source": reference.source,
    }


def _print_breakdowns(context: Context, checks: list[Check]) -> None:
    """Shape, texture and neither of every checked model, beside the published counts where there are some."""
    from testbed.store import queries

    published = {(c.model, c.reference.eval_setting, c.reference.metric): c.reference.value for c in checks}
    for model, setting in dict.fromkeys((c.model, c.reference.eval_setting) for c in checks):
        stored = {r["metric"]: r for r in queries.results(context.store, [model], [setting])}
        suffixes = [s for s in ("", "_sum", "_max") if (model, setting, f"shape_bias{s}") in published]
        for suffix in suffixes:
            names = [f"{name}{suffix}" for name in _BREAKDOWN]
            lines = [
                [_spelled(name), _number(stored[name]["value"]), _number(published.get((model, setting, name)))]
                for name in names
                if name in stored
            ]
            lines.insert(3, ["total evaluated", _number(stored[names[0]]["n"]), ""])
            click.echo(f"\n{model} on {setting}{' (' + suffix[1:] + ' aggregation)' if suffix else ''}")
            click.echo(text_table(lines, ["", "measured", "expected"]))


def _spelled(metric: str) -> str:
    word = next(name for name in _BREAKDOWN if metric.startswith(name)).replace("_", " ")
    return {"shape bias": "shape bias (%)", "neither": "neither correct"}.get(word, word)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if float(value).is_integer() else f"{value:.2f}"


def _print_missing(missing: list[Reference]) -> None:
    if not missing:
        return
    pairs = list(dict.fromkeys(f"{r.models[0]} on {r.eval_setting}" for r in missing))
    more = f" and {len(pairs) - _MOST_MISSING} more" if len(pairs) > _MOST_MISSING else ""
    click.echo(f"\nnot run yet: {', '.join(pairs[:_MOST_MISSING])}{more}")


def _diagnoses(context: Context, checks: list[Check]) -> list[Diagnosis]:
    """What explains each pair with a number outside; the images to try it on are --diagnose-images, 0 tries none."""
    from testbed.engine.pools import keep_freed_memory
    from testbed.studies.references import diagnose

    n_images = _images(context, diagnose.IMAGES)
    if n_images == 0:
        return []
    keep_freed_memory()  # trials run in this process
    found = []
    for pair in dict.fromkeys((c.model, c.reference.eval_setting) for c in checks if not c.inside):
        its = [c for c in checks if (c.model, c.reference.eval_setting) == pair]
        try:
            found.append(
                diagnose.diagnose(
                    context.store,
                    context.registry,
                    its,
                    n_images,
                    [Path(root) for root in context.extra["data_root"]],
                    tell=lambda text, pair=pair: click.echo(f"{' on '.join(pair)}: {text}", err=True),  # type: ignore[misc]
                )
            )
        except TestbedError as error:
            click.echo(f"\n{' on '.join(pair)} cannot be looked into: {error}", err=True)
    return found


def _images(context: Context, default: int) -> int:
    given = context.extra["diagnose_images"]
    if given is None:
        return default
    if not given.isdecimal():
        raise TestbedError(f"--diagnose-images: expected a number of images, got '{given}'")
    return int(given)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    """What was tried, the best explanation first, with what the metrics would be on the whole set."""
    click.echo(f"\n{diagnosis.model} on {diagnosis.eval_setting}: one thing changed at a time")
    metrics = list(next((f.guesses for f in diagnosis.findings if f.guesses), {}))
    rows = []
    for f in diagnosis.findings:
        if f.error:
            rows.append([f.title, *("" for _ in metrics), "", "", f"not tried: {f.error}"])
            continue
        guesses = [f.guesses[m] for m in metrics]
        cells = [f"{g.value:.1f}" + (f" ± {g.margin:.1f}" if g.margin else "") for g in guesses]
        rows.append([f.title, *cells, f"{f.images:,}", f"{100 * f.left:.0f} %", "explains it" if f.explains else ""])
    click.echo(text_table(rows, ["what was changed", *metrics, "images", "difference left", ""]))
    if diagnosis.likely:
        click.echo(f"Most likely cause: {diagnosis.likely[0].title}.")
    else:
        click.echo("None of these explains the published numbers: compare the weights and the images themselves.")


ACTIONS = (
    Action(
        "import-decisions",
        import_decisions,
        "Take in decisions of people or networks (published CSV format); needs --setting, --source names networks.",
        ("DIR",),
    ),
    Action(
        "export-decisions",
        export_decisions,
        "Write decisions among 16 categories in that format; needs --setting.",
        ("DIR",),
    ),
    Action(
        "compare-people",
        compare_people,
        "Accuracy difference and error consistency with people; needs --setting, several as A,B.",
        (),
        (
            ("setting", "NAME", "Eval setting of the decisions."),
            ("people", "GLOB", "Which observers are people.  [default: subject-*]"),
            ("aggregation", "NAME", "From 1000 classes to 16 categories: mean, sum or max.  [default: mean]"),
        ),
    ),
    Action(
        "check-references",
        check_references,
        "Compare stored results with published ones; exit code 1 where one is outside its tolerance.",
        (),
        (
            ("models", "GLOB...", "Only these models, for --check-references and decisions."),
            ("diagnose-images", "N", "Images to look for causes on; 0 looks for none.  [default: 320]"),
            ("data-root", "DIR...", "Folders with datasets.  [default: $TESTBED_DATA or ./data]"),
        ),
    ),
)
