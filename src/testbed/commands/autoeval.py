"""autoeval.py: accuracy without labels, from what eval.py has stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from testbed.commands.options import (
    CONTEXT_SETTINGS,
    ManyValues,
    ManyValuesCommand,
    WholeNumber,
    db_option,
    one_line_errors,
    registry_option,
    say,
)

if TYPE_CHECKING:  # everything else is imported where it is used: --help must stay quick
    from testbed.entries.registry import Registry
    from testbed.store.database import Store
    from testbed.studies.labelfree.answers import Answer, Question
    from testbed.studies.labelfree.sets import StoredModel


@click.command(cls=ManyValuesCommand, context_settings=CONTEXT_SETTINGS)
@click.option("--models", cls=ManyValues, metavar="NAME...", help="Models with stored results: names, globs, groups.")
@click.option("--source", metavar="SETTING", help="The labelled clean setting that estimates start from.")
@click.option("--fit", cls=ManyValues, metavar="NAME...", help="Labelled settings to fit a line of each score on.")
@click.option("--test", cls=ManyValues, metavar="NAME...", help="Settings to estimate; each word is a group of them.")
@click.option(
    "--methods", cls=ManyValues, metavar="NAME...", help="Methods, or all that what is stored allows.  [default: all]"
)
@click.option(
    "--class-prior",
    default="source",
    show_default=True,
    metavar="source|uniform|FILE",
    help="The class shares that optimal transport (cot) assumes of every set; a file has one number per class.",
)
@click.option(
    "--variant", metavar="NAME", help="Partial results, such as limit=500.  [default: whole settings, if any]"
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "csv", "json", "markdown", "latex"]),
    default="table",
    show_default=True,
    help="How estimates are printed.",
)
@click.option(
    "--summary", is_flag=True, help="Only one table of errors: not every set, nor the groups of each of several models."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Also write .csv, .json, .md or .tex.")
@click.option(
    "--predictions",
    nargs=2,
    type=click.Path(path_type=Path),
    metavar="SOURCE TEST",
    help="Instead of the database: two folders with a file of hard predictions per model (agreement methods).",
)
@click.option("--labels", type=click.Path(path_type=Path), metavar="FILE", help="Labels of --predictions' SOURCE.")
@click.option("--test-labels", type=click.Path(path_type=Path), metavar="FILE", help="Labels of TEST, if known.")
@click.option(
    "--replicate",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="DIR",
    help="The tables of the AutoEval baselines from a folder with their data: evaluates, trains rotation heads where "
    "there are none, prints errors beside the published ones.  [default models: cifar10_resnet56 cifar10_repvgg_a0]",
)
@click.option("--list-methods", is_flag=True, help="The methods, and what each needs.")
@click.option(
    "--train-rotation-head", metavar="MODEL", help="Train the four-way head that `eval.py --record rotation` uses."
)
@click.option("--on", metavar="SETTING", help="The images the rotation head is trained on; their labels are not used.")
@click.option("--checkpoint", metavar="FILE", help="Weights of the model that the head is trained for.")
@click.option(
    "--epochs", type=WholeNumber(min=1), default=20, show_default=True, metavar="N", help="Passes over the images."
)
@click.option("--limit", type=WholeNumber(min=1), metavar="N", help="Train the head on N of the images.")
@click.option(
    "--seed", type=WholeNumber(min=0), default=0, show_default=True, metavar="N", help="Of crops, flips and turns."
)
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="cpu or cuda:0, for the training.")
@click.option(
    "--gpus",
    cls=ManyValues,
    metavar="ID...",
    help="Devices of --replicate: GPU numbers, or cpu.  [default: all GPUs, else cpu]",
)
@click.option(
    "--data-root", cls=ManyValues, metavar="DIR...", help="Folders with datasets, for --replicate and the training."
)
@db_option
@registry_option
@one_line_errors
def main(
    train_rotation_head: str | None,
    list_methods: bool,
    predictions: tuple[Path, Path] | None,
    replicate: Path | None,
    **given: Any,
) -> None:
    """Estimate accuracy without labels from stored logits. Example:

    \b
        python eval.py --models digits_cnn --eval-settings digits digits-meta digits-corruptions --record features
        python autoeval.py --models digits_cnn --source digits --fit digits-meta --test digits-corruptions

    With --replicate DIR everything is done at once, as run.sh of the AutoEval baselines does.

    Scores (confidence, entropy, features) are turned into accuracies by a line fitted on labelled --fit settings;
    direct methods (atc-ne, cot, doc, ...) need --source and --test alone; agreement methods need several models.
    """
    if list_methods:
        from testbed.commands.autoeval_tables import methods_table

        click.echo(methods_table(given["style"]))
    elif train_rotation_head is not None:
        from testbed.commands.autoeval_training import train

        train(train_rotation_head, **given)
    elif replicate is not None:
        from testbed.commands.autoeval_replicate import replicate as replicate_tables

        replicate_tables(replicate, **given)
    elif predictions is not None:
        _estimate_from_files(predictions, **given)
    else:
        _estimate(**given)


# ---- estimating ----------------------------------------------------------------------------------------------


def _estimate(
    *,
    variant: str | None,
    style: str,
    summary: bool,
    out: Path | None,
    db: str | None,
    registry: tuple[str, ...],
    **words: Any,
) -> None:
    question = _question(**words)
    from testbed.commands.autoeval_tables import Display, progress_bar
    from testbed.entries.registry import load_registry
    from testbed.store.opening import open_store
    from testbed.studies.labelfree.estimate import answer_question, sets_to_read
    from testbed.studies.labelfree.report import remarks

    display = Display(style, summary, out)
    entries, store = load_registry(registry), open_store(db)
    options = [*(("--db", db) if db else ()), *(("--registry", *registry) if registry else ())]
    models = _stored_models(store, entries, question, variant, options)
    with progress_bar(sets_to_read(models, question), "sets") as bar:
        answer = answer_question(models, question, bar.update)
    save_answer(store, question, answer)
    partial = _partial(models[0].variant, named=variant is not None)
    if style == "csv" and partial:
        say(partial[0], err=True)  # a CSV has no place for remarks
    display.show(answer, partial + answer.remarks + remarks(answer.estimates, question.class_prior))


def _question(
    *,
    models: tuple[str, ...],
    source: str | None,
    fit: tuple[str, ...],
    test: tuple[str, ...],
    methods: tuple[str, ...],
    class_prior: str,
    **_: Any,
) -> Question:
    for option, value, what in (
        ("--models", models, "models with stored results"),
        ("--source", source, "the labelled clean setting that estimates start from"),
        ("--test", test, "the settings to estimate"),
    ):
        if not value:
            raise click.UsageError(f"{option} is missing: {what}")
    from testbed.studies.labelfree.answers import Question

    return Question(models, str(source), test, fit, methods, _shares(class_prior))


def _stored_models(
    store: Store, entries: Registry, question: Question, variant: str | None, options: Sequence[str]
) -> list[StoredModel]:
    """The models of the question, all read with one variant: sets of different size are not to be compared.

    options: --db and --registry as the user gave them, for messages that tell what to type.
    """
    from testbed.store.evaluation import OWN
    from testbed.store.find import meant_variant
    from testbed.studies.labelfree.sets import Asked, StoredModel, meant_settings, stored_models

    names = stored_models(store, entries, question.models, options)
    asked = Asked(question.models, tuple(options))
    if variant is None:
        variant = meant_variant(store, names, meant_settings(entries, question.settings), OWN)
    return [StoredModel(store, entries, name, variant, asked) for name in names]


def _partial(variant: str, named: bool) -> list[str]:
    """A line that says so where the results are not of whole settings."""
    if not variant:
        return []
    return [f"results with {variant}" + ("" if named else ": there are none of the whole settings")]


def _estimate_from_files(
    folders: tuple[Path, Path],
    *,
    labels: Path | None,
    test_labels: Path | None,
    models: tuple[str, ...],
    methods: tuple[str, ...],
    style: str,
    summary: bool,
    out: Path | None,
    **_: Any,
) -> None:
    refuse_given(
        "--predictions reads two folders and no database", "source", "fit", "test", "class_prior", "variant", "gpus"
    )
    if labels is None:
        raise click.UsageError(f"--labels is missing: the labels of {folders[0]}")
    from testbed.commands.autoeval_tables import Display
    from testbed.studies.labelfree.prediction_files import answer_from_files
    from testbed.studies.labelfree.report import remarks

    display = Display(style, summary, out)
    answer, lines = answer_from_files(*folders, labels, test_labels, models, methods)
    display.show(answer, lines + remarks(answer.estimates))


def refuse_given(reason: str, *names: str) -> None:
    """Options that another one makes meaningless are refused rather than passed over."""
    context = click.get_current_context()
    given = [n for n in names if context.get_parameter_source(n) is not ParameterSource.DEFAULT]
    if given:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{reason}: leave out {options}")


def _shares(given: str) -> str | tuple[float, ...]:
    """The class prior as a word, or the numbers of a file."""
    if given in ("source", "uniform"):
        return given
    import json

    import numpy as np

    from testbed.data.regular import regular

    try:
        path = regular(given)
        values = json.loads(path.read_text()) if path.suffix == ".json" else np.loadtxt(path, ndmin=1, delimiter=",")
        return tuple(float(v) for v in np.ravel(values))
    except (OSError, ValueError, TypeError) as error:
        raise click.UsageError(
            f"--class-prior: expected source, uniform or a file with one number per class, got {given} ({error})"
        ) from error


def save_answer(store: Store, question: Question, answer: Answer) -> None:
    """Keep the estimates beside the evaluations they were made from."""
    from testbed.store.estimates import save_estimates

    save_estimates(
        store,
        [
            dict(
                evaluation_id=e.evaluation_id,
                method=e.method,
                source=question.source,
                fit=e.fit,
                assumes=e.assumes,
                set_group=e.group,
                value=e.value,
                accuracy=e.accuracy,
                extrapolates=e.extrapolates,
                r2=e.r2,
                notes=list(e.notes),
            )
            for e in answer.estimates
        ],
    )
