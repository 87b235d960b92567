"""Flags of db.py that compare stored results with people's decisions and with published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import BRING_IN, COMPARE, TAKE_OUT, Action, Context
from testbed.commands.options import say
from testbed.commands.tables import text_table
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.metrics.estimate import Estimate
    from testbed.studies.references.diagnose import Diagnosis, Guess
    from testbed.studies.references.table import Check, Reference

_CHECK_COLUMNS = ["model", "eval_setting", "metric", "measured", "expected", "difference", "tolerance", "verdict"]
_BREAKDOWN = ("shape_correct", "texture_correct", "neither", "shape_bias")
_MOST_MISSING = 8  # pairs that are named; the others are counted


# ---- decisions -------------------------------------------------------------------------------------------


def import_decisions(context: Context, folder: str) -> None:
    from testbed.studies.people import observers

    setting = _setting(context, "--import-decisions")
    imported = observers.import_decisions(
        context.new_store, context.registry, Path(folder), setting, context.source or "", context.override
    )
    names = ", ".join(observer.name for observer in imported)
    say(f"took in {len(imported)} observer(s) on {setting}: {names}")
    expected = context.registry.eval_setting(setting).size
    for observer in imported:
        if expected is not None and observer.trials != expected:
            say(f"warning: {observer.name}: expected {expected} trials, found {observer.trials}", err=True)


def export_decisions(context: Context, folder: str) -> None:
    from testbed.studies.people import observers

    setting = _setting(context, "--export-decisions")
    written = observers.export_decisions(
        context.store, context.registry, setting, Path(folder), context.models or None, _aggregation(context)
    )
    say(f"wrote the decisions of {len(written)} observer(s) on {setting} to {folder}")


def compare_people(context: Context, *, people: str | None) -> None:
    """Accuracy difference, observed and error consistency of every model with people, over one or more settings."""
    from testbed.studies.people import observers

    settings = _setting(context, "--compare-people").split(",")
    people = people or observers.PEOPLE
    # Models are compared with people, so people are always part of the panel.
    chosen = [*context.models, people] if context.models else None
    panels = [
        observers.panel(context.store, context.registry, name, chosen, _aggregation(context)) for name in settings
    ]
    rows = [
        {
            "observer": comparison.model or f"people ({people})",
            "accuracy16": comparison.accuracy,
            "accuracy_difference": _interval(comparison.consistency.accuracy_difference, context.style),
            "observed_consistency": _interval(comparison.consistency.observed, context.style),
            "error_consistency": _interval(comparison.consistency.error, context.style),
        }
        for comparison in observers.compare_with_people(panels, people)
    ]
    context.print(rows, list(rows[0]))


def _interval(estimate: Estimate, style: str) -> Any:
    """With its interval in a table; a plain number in JSON and CSV, for programs to read."""
    if style != "table":
        return estimate.value
    return f"{estimate.value:.3f} [{estimate.ci_low:.3f}, {estimate.ci_high:.3f}]"


def _setting(context: Context, flag: str) -> str:
    if not context.setting:
        raise TestbedError(f"{flag} needs --setting NAME, such as cue-conflict")
    return context.setting


def _aggregation(context: Context) -> str:
    from testbed.metrics.categories16 import AGGREGATIONS

    chosen = context.aggregation or AGGREGATIONS[0]
    if chosen not in AGGREGATIONS:
        raise TestbedError(f"--aggregation: expected {', '.join(AGGREGATIONS)}, got '{chosen}'")
    return chosen


# ---- references ------------------------------------------------------------------------------------------


def check_references(context: Context, *, diagnose_images: str | None) -> None:
    """Compare stored results with published ones; diagnose values outside their tolerance, and exit with code 1."""
    from testbed.entries.registry import registry_folders
    from testbed.store.evaluation import OWN
    from testbed.store.find import numbers
    from testbed.studies.references import table

    # Published numbers are of whole settings, so partial results (other variants) are not compared.
    references = table.read_references(registry_folders(context.registry_folders))
    checks, missing = table.check(references, numbers(context.store, variant="", source=OWN), context.models)
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
    for diagnosis in _diagnoses(context, checks, diagnose_images):
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
    """For every checked model the counts of shape, texture and neither, with the published counts where known.

    Two set-ups may agree in the ratio, the shape bias, and still differ in many decisions (docs/shape-bias.md).
    """
    from testbed.store.evaluation import OWN
    from testbed.store.find import numbers

    published = {(c.model, c.reference.eval_setting, c.reference.metric): c.reference.value for c in checks}
    for model, setting in dict.fromkeys((c.model, c.reference.eval_setting) for c in checks):
        stored = {n.metric: n for n in numbers(context.store, [model], [setting], variant="", source=OWN)}
        # Only the aggregations that were checked: "" is the mean.
        suffixes = [s for s in ("", "_sum", "_max") if (model, setting, f"shape_bias{s}") in published]
        for suffix in suffixes:
            names = [f"{name}{suffix}" for name in _BREAKDOWN]
            lines = [
                [_spelled(name), _number(stored[name].value), _number(published.get((model, setting, name)))]
                for name in names
                if name in stored
            ]
            # After the three counts, whose sum it is, and before the ratio.
            lines.insert(3, ["total evaluated", _number(stored[names[0]].n), ""])
            say(f"\n{model} on {setting}{' (' + suffix[1:] + ' aggregation)' if suffix else ''}")
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
    say(f"\nnot run yet: {', '.join(pairs[:_MOST_MISSING])}{more}")


def _diagnoses(context: Context, checks: list[Check], diagnose_images: str | None) -> list[Diagnosis]:
    """A diagnosis for each pair with a number outside its tolerance; none where --diagnose-images is 0."""
    from testbed.engine.processes import keep_freed_memory
    from testbed.studies.references import diagnose

    n_images = diagnose.IMAGES if diagnose_images is None else _images(diagnose_images)
    if n_images == 0:
        return []
    keep_freed_memory()  # trials run in this process
    diagnoses = []
    for pair in dict.fromkeys((c.model, c.reference.eval_setting) for c in checks if not c.inside):
        checks_of_pair = [c for c in checks if (c.model, c.reference.eval_setting) == pair]
        try:
            diagnoses.append(
                diagnose.diagnose(
                    context.store,
                    context.registry,
                    checks_of_pair,
                    n_images,
                    [Path(root) for root in context.data_root],
                    tell=lambda text, pair=pair: click.echo(f"{' on '.join(pair)}: {text}", err=True),  # type: ignore[misc]
                )
            )
        except TestbedError as error:
            say(f"\n{' on '.join(pair)} cannot be looked into: {error}", err=True)
    return diagnoses


def _images(text: str) -> int:
    if not text.isdecimal():
        raise TestbedError(f"--diagnose-images: expected a number of images, got '{text}'")
    return int(text)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    """One row per change that was tried, the best explanation first, with the metrics expected on the whole set."""
    say(f"\n{diagnosis.model} on {diagnosis.eval_setting}: one thing changed at a time")
    # Failed trials have no guesses; all others have the same metrics.
    metrics = list(next((f.guesses for f in diagnosis.findings if f.guesses), {}))
    rows = []
    for f in diagnosis.findings:
        if f.error:
            rows.append([f.title, *("" for _ in metrics), "", "", f"not tried: {f.error}"])
            continue
        cells = [_guess(f.guesses[m]) for m in metrics]
        rows.append([f.title, *cells, f"{f.images:,}", f"{100 * f.left:.0f} %", f.verdict])
    click.echo(text_table(rows, ["what was changed", *metrics, "images", "difference left", ""]))
    say(_conclusion(diagnosis))


def _guess(guess: Guess) -> str:
    """`23.9`, or with its interval `23.9 [21.0, 26.4]` where not all images were tried."""
    width = guess.high - guess.low
    if width < 1e-9:
        return f"{guess.value:.1f}".removesuffix(".0")
    digits = 1 if width < 20 else 0  # counts of images need no fractions
    return f"{guess.value:.{digits}f} [{guess.low:.{digits}f}, {guess.high:.{digits}f}]"


def _conclusion(diagnosis: Diagnosis) -> str:
    likely, undecided = ([f.title for f in found] for found in (diagnosis.likely, diagnosis.undecided))
    tried = min((f.images for f in diagnosis.findings if not f.error), default=0)
    more = f"--diagnose-images {min(4 * tried, diagnosis.n_all)}"
    if likely:
        others = [*likely[1:], *undecided]
        rest = [f"These images do not rule out, {more} may:", *others] if others else []
        return "\n  ".join([f"Most likely cause: {likely[0]}.", *rest])
    if undecided:
        return "\n  ".join([f"Undecided, more images needed ({more}). Each of these may be the cause:", *undecided])
    return "None of these explains the published numbers: compare the weights and the images themselves."


ACTIONS = (
    Action(
        "import-decisions",
        import_decisions,
        "Take in decisions of people or networks (published CSV format); needs --setting, --source names networks.",
        ("DIR",),
        purpose=BRING_IN,
        reads=("setting", "source", "override"),
    ),
    Action(
        "export-decisions",
        export_decisions,
        "Write decisions among 16 categories in that format; needs --setting.",
        ("DIR",),
        purpose=TAKE_OUT,
        reads=("setting", "models", "aggregation"),
    ),
    Action(
        "compare-people",
        compare_people,
        "Accuracy difference and error consistency with people; needs --setting, several as A,B.",
        (),
        (("people", "GLOB", "Which observers are people.  [default: subject-*]"),),
        purpose=COMPARE,
        reads=("setting", "models", "aggregation", "style"),
    ),
    Action(
        "check-references",
        check_references,
        "Compare stored results with published ones; exit code 1 where one is outside its tolerance.",
        (),
        (
            (
                "diagnose-images",
                "N",
                "Images on which causes are looked for, at least 64; 0 looks for none.  [default: 320]",
            ),
        ),
        purpose=COMPARE,
        reads=("models", "data_root", "style"),
    ),
)
