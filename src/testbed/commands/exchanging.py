"""Flags of db.py that import and export results, recompute metrics and verify stored files."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.commands.action import BRING_IN, LOOK_AFTER, TAKE_OUT, Action, Context
from testbed.commands.options import say
from testbed.errors import TestbedError, counted


def save_logits(context: Context, target: tuple[str, str]) -> None:
    from testbed.store.formats.logits import save_logits as save

    setting, folder = target
    written = save(
        context.store, context.registry, setting, Path(folder), variant=context.variant, version=context.version
    )
    # save_logits raises an error rather than writing nothing, so there is a first one.
    partial = f" of {written[0].variant}" if written[0].variant else ""
    say(f"wrote {len(written)} file(s){partial} and manifest.json to {folder}")


def import_logits(context: Context, folder: str) -> None:
    from testbed.data.locate import data_roots
    from testbed.store.formats.logits import import_logits as take_in

    imported = take_in(
        context.new_store,
        context.registry,
        Path(folder),
        context.override,
        data_roots(context.data_root),
        tell=lambda text: click.echo(f"note: {text}", err=True),
    )
    say(f"took in {len(imported)} evaluation(s) from {folder}")


def import_predictions(context: Context, file: str, *, model: str | None, missing: str | None) -> None:
    """Take in answers that were made elsewhere. Images without one are refused, or wrong if that is said."""
    from testbed.data.locate import data_roots
    from testbed.store.formats import predictions_import as predictions

    source, setting = context.source, context.setting
    if not source or not setting:
        raise TestbedError(
            "--import-predictions needs --setting NAME, what was asked about, and --source NAME, who answered"
        )
    missing = missing or predictions.REFUSE
    if missing not in (predictions.REFUSE, predictions.WRONG):
        raise TestbedError(f"--missing: expected {predictions.REFUSE} or {predictions.WRONG}, got {missing}")
    done = predictions.import_predictions(
        context.new_store,
        context.registry,
        Path(file),
        setting,
        source,
        model=model or "",
        missing=missing,
        override=context.override,
        data_roots=data_roots(context.data_root),
    )
    what = "probabilities" if done.with_probabilities else "classes alone"
    wrong = f", {done.unanswered} of them without one, which count as wrong" if done.unanswered else ""
    say(f"{done.model}: answers ({what}) to {done.images:,} images of {setting}{wrong}")
    say(f"measured: {', '.join(done.metrics) or 'nothing, since no image has a label'}")


def import_csv(context: Context, file: str, *, types: str | None) -> None:
    """Import published accuracies. They are stored under --source, apart from own results; --types has model types."""
    from testbed.store.formats import published

    source = context.source
    if not source:
        raise TestbedError("--import-csv needs --source NAME, where the numbers were published")
    table = published.read_csv(Path(file))
    model_types = published.read_types(Path(types)) if types else {}
    # Intervals need the number of images; where it was not published, the registry's is used.
    sizes = {name: entry.size for name, entry in context.registry.eval_settings.entries.items() if entry.size}
    done = published.import_published(context.new_store, table, model_types, source, sizes)
    untyped = f" ({done.without_type} of them without a type)" if done.without_type else ""
    results, settings = counted(done.results, "result"), counted(done.settings, "eval setting")
    say(f"{source}: {results} of {counted(done.models, 'model')}{untyped} on {settings}")


def recompute_metrics(context: Context) -> None:
    from testbed.store.write import recompute_metrics as recompute

    done, problems = recompute(context.store, context.registry, context.pattern)
    for problem in problems:
        say(f"not measured: {problem}", err=True)
    click.echo(f"measured {done} evaluation(s) again from stored logits")
    if problems:
        raise TestbedError(f"{len(problems)} of {done + len(problems)} evaluations were not measured: see above")


def verify(context: Context) -> None:
    from testbed.store import manage

    checked = list(manage.verify(context.store))
    bad = [(e, p) for e, p in checked if p]
    for evaluation, problem in bad:
        say(f"{evaluation.model} on {evaluation.eval_setting}: {problem}", err=True)
    if bad:
        raise TestbedError(
            f"{len(bad)} of {len(checked)} evaluations are damaged: eval.py makes them again, see --status"
        )
    click.echo(f"all {len(checked)} logits files are as they were written")


def export(context: Context, file: str) -> None:
    from testbed.store.formats.tables import export_results
    from testbed.store.mixed import lines, mixed_data

    for line in lines(mixed_data(context.store)):
        say(line, err=True)
    click.echo(f"wrote {export_results(context.store, Path(file))} results to {file}")


ACTIONS = (
    Action(
        "import-logits",
        import_logits,
        "Take in what --save-logits wrote elsewhere, checked and measured anew.",
        ("DIR",),
        purpose=BRING_IN,
        reads=("override", "data_root"),
    ),
    Action(
        "import-predictions",
        import_predictions,
        "Take in answers made elsewhere (CSV, JSON Lines, Parquet); needs --setting, --source.",
        ("FILE",),
        (
            ("model", "NAME", "Who of the source answered; stored as NAME@SOURCE, else as SOURCE."),
            ("missing", "WORD", "Images without an answer: refuse, or wrong to count them so.  [default: refuse]"),
        ),
        purpose=BRING_IN,
        reads=("override", "data_root", "setting", "source"),
    ),
    Action(
        "import-csv",
        import_csv,
        "Take in published accuracies, models x settings; needs --source.",
        ("FILE",),
        (("types", "FILE", "CSV with the columns model and type."),),
        purpose=BRING_IN,
        reads=("source",),
    ),
    Action(
        "recompute-metrics",
        recompute_metrics,
        "Measure stored logits again, without any model; --filter chooses settings.",
        purpose=LOOK_AFTER,
        reads=("pattern",),
    ),
    Action(
        "save-logits",
        save_logits,
        "Write logits, targets and image paths of all models, one .npz each.",
        ("SETTING", "DIR"),
        purpose=TAKE_OUT,
        reads=("variant", "version"),
        refuses={"source": "published results have no logits"},
    ),
    Action("export", export, "Write all results to FILE.csv, .json or .parquet.", ("FILE",), purpose=TAKE_OUT),
    Action("verify", verify, "Check every logits file against its checksum.", purpose=LOOK_AFTER),
)
