"""Flags of db.py that take results in, write them out, measure and check them again."""

from __future__ import annotations

from pathlib import Path

import click

from testbed.commands.action import Action, Context
from testbed.errors import TestbedError


def save_logits(context: Context, target: tuple[str, str]) -> None:
    from testbed.store.formats.exchange import save_logits as save

    setting, folder = target
    written = save(context.store, context.registry, setting, Path(folder))
    click.echo(f"wrote {len(written)} file(s) and manifest.json to {folder}")


def import_logits(context: Context, folder: str) -> None:
    from testbed.store.formats.exchange import import_logits as take_in

    taken = take_in(context.new_store, context.registry, Path(folder), context.override)
    click.echo(f"took in {len(taken)} evaluation(s) from {folder}")


def import_csv(context: Context, file: str) -> None:
    """Published accuracies, kept under --source beside own results; --types gives the models' types."""
    from testbed.store.formats import published

    source, types_file = context.extra["source"], context.extra["types"]
    if not source:
        raise TestbedError("--import-csv needs --source NAME, where the numbers were published")
    table = published.read_csv(Path(file))
    types = published.read_types(Path(types_file)) if types_file else {}
    sizes = {name: entry.size for name, entry in context.registry.eval_settings.entries.items() if entry.size}
    done = published.import_published(context.new_store, table, types, source, sizes)
    untyped = f", {done.without_type} of them without a type" if done.without_type else ""
    click.echo(f"{source}: {done.results:,} results of {done.models} models{untyped} on {done.settings} eval settings")


def recompute_metrics(context: Context) -> None:
    from testbed.store.formats.exchange import recompute_metrics as recompute

    done, problems = recompute(context.store, context.registry, context.pattern)
    for problem in problems:
        click.echo(f"not measured: {problem}", err=True)
    click.echo(f"measured {done} evaluation(s) again from stored logits")


def verify(context: Context) -> None:
    from testbed.store import manage

    checked = [(evaluation, problem) for evaluation, problem in manage.verify(context.store)]
    bad = [(e, p) for e, p in checked if p]
    for evaluation, problem in bad:
        click.echo(f"{evaluation.model} on {evaluation.eval_setting}: {problem}", err=True)
    if bad:
        raise TestbedError(
            f"{len(bad)} of {len(checked)} evaluations are not whole: eval.py --overwrite runs them again"
        )
    click.echo(f"all {len(checked)} logits files are as they were written")


def export(context: Context, file: str) -> None:
    from testbed.store.formats.exchange import export_results

    click.echo(f"wrote {export_results(context.store, Path(file))} results to {file}")


ACTIONS = (
    Action("import-logits", import_logits, "Take in what --save-logits wrote elsewhere.", ("DIR",)),
    Action(
        "import-csv",
        import_csv,
        "Take in published accuracies, models x settings; needs --source.",
        ("FILE",),
        (
            ("types", "FILE", "CSV with the columns model and type, for --import-csv."),
            ("source", "NAME", "Where the numbers of --import-csv were published."),
        ),
    ),
    Action(
        "recompute-metrics",
        recompute_metrics,
        "Measure stored logits again, without any model; --filter chooses settings.",
    ),
    Action(
        "save-logits",
        save_logits,
        "Write logits, targets and image paths of all models, one .npz each.",
        ("SETTING", "DIR"),
    ),
    Action("export", export, "Write all results to FILE.csv, .json or .parquet.", ("FILE",)),
    Action("verify", verify, "Check every logits file against its checksum."),
)
