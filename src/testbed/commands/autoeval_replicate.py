"""autoeval.py --replicate: the tables of the AutoEval baselines from a folder of their data, in one command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.autoeval import refuse_given, save_answer
from testbed.commands.autoeval_tables import SUFFIXES, Display, left_out, markdown_table, progress_bar
from testbed.commands.latex import latex_table
from testbed.commands.tables import formatted, text_table
from testbed.data.writing import write_text, writing_to
from testbed.errors import DataError, TestbedError
from testbed.studies.labelfree.replication import (
    FROM_TEST_IMAGES,
    FROM_TRAINING_IMAGES,
    OVERALL,
    Cell,
    Layout,
    Published,
    compared,
    other_sets,
    read_published,
)

if TYPE_CHECKING:
    from testbed.data.samples import Dataset
    from testbed.entries.registry import Registry
    from testbed.options import RunOptions
    from testbed.store.database import Store
    from testbed.studies.labelfree.answers import Answer

MODELS = ("cifar10_resnet56", "cifar10_repvgg_a0")
TEST, TRAINING = "cifar10-test", "cifar10-train"
_UNUSED = (
    "source",
    "fit",
    "test",
    "methods",
    "class_prior",
    "variant",
    "summary",
    "labels",
    "test_labels",
    "on",
    "device",
)
_COLUMNS = ("model", "method", "column", "sets", "rmse", "published", "difference")
_INTERRUPTED = 130
_MOST_FAILED = 5  # named; the others are counted


@dataclass(frozen=True)
class _Work:
    """Where everything is, and what is run."""

    entries: Registry
    store: Store
    options: RunOptions
    models: list[str]
    layout: Layout
    training_images: str  # the setting that heads are trained on and Frechet distances are measured from
    devices: list[str]


def replicate(
    folder: Path,
    *,
    models: tuple[str, ...],
    gpus: tuple[str, ...],
    style: str,
    out: Path | None,
    registry: tuple[str, ...],
    checkpoint: str | None,
    **given: Any,
) -> None:
    """Train rotation heads where there are none, evaluate, and print the tables beside the published ones."""
    refuse_given("--replicate knows its settings and methods", *_UNUSED)
    from testbed.entries.registry import registry_folders

    display = Display(style, False, out)
    published = read_published(registry_folders(registry))
    work = _prepare(folder, models or MODELS, gpus, registry, checkpoint, **given)
    _fetch_weights(work)
    _train_heads(work, **given)
    _evaluate(work, [TEST, *work.layout.fit, *work.layout.test], ("features", "rotation"))
    if work.training_images != TEST:
        _evaluate(work, [work.training_images], ("features",))
    answers = [
        _ask(work, TEST, tuple(FROM_TEST_IMAGES.values())),
        _ask(work, work.training_images, tuple(FROM_TRAINING_IMAGES.values())),
    ]
    cells = compared([e for answer in answers for e in answer.estimates], published)
    if not cells:
        raise TestbedError(f"no validation set in {folder} has labels, so there are no errors to tabulate")
    remarks = [*_accuracies(answers[0], published), *other_sets(cells, work.layout.n_fit, published), *_notes(work)]
    remarks += [line for answer in answers for line in left_out(answer)]
    click.echo(_rendered(cells, published, remarks, display.style))
    if out is not None:
        with writing_to(out):
            write_text(out, _rendered(cells, published, remarks, SUFFIXES[out.suffix]) + "\n")
        click.echo(f"written to {out}", err=True)


def _prepare(
    folder: Path,
    models: Sequence[str],
    gpus: tuple[str, ...],
    registry: tuple[str, ...],
    checkpoint: str | None,
    *,
    data_root: tuple[str, ...],
    db: str | None,
    **_: Any,
) -> _Work:
    from testbed.data.download import roots_below, with_hint
    from testbed.data.locate import data_roots
    from testbed.engine.devices import chosen_devices
    from testbed.entries.registry import load_registry, registry_folders
    from testbed.options import RunOptions
    from testbed.store.opening import open_store

    layout, entries, devices = Layout.of(folder), load_registry(registry), chosen_devices(gpus)
    names = entries.expand_models(models)
    # CIFAR-10 itself lies beside the sets, or where other data is.
    images = _images(entries, TEST)
    roots = [folder, *roots_below(folder, images), *data_roots(data_root)]
    try:
        images.stamp(roots)
    except DataError as error:
        raise with_hint(error, images, registry_folders(registry)) from error
    store = open_store(db, create=True)
    options = RunOptions(
        data_roots=tuple(map(str, roots)),
        registry=registry,
        cache_folder=str(store.folder / "cache"),
        results_folder=str(store.folder),
        checkpoint=checkpoint,
    )
    training_images = TRAINING if _is_there(entries, TRAINING, roots) else TEST
    return _Work(entries, store, options, names, layout, training_images, devices)


def _is_there(entries: Registry, setting: str, roots: Sequence[Path]) -> bool:
    try:
        return bool(_images(entries, setting).stamp(roots))
    except DataError:
        return False


def _images(entries: Registry, setting: str) -> Dataset:
    dataset = entries.runnable(setting).dataset
    assert dataset is not None
    return dataset


def _fetch_weights(work: _Work) -> None:
    """Published weights that are not on this machine yet; whatever else a model needs, its loader says."""
    from testbed.entries.registry import registry_folders
    from testbed.models import weights

    published = weights.read_published(registry_folders(work.options.registry))
    for name in work.models if work.options.checkpoint is None else ():
        if name in published and weights.find_local(published[name].file, name) is None:
            click.echo(f"{name}: fetching {published[name].file} from {published[name].remote.host}", err=True)
            try:
                weights.download(published[name])
            except DataError as error:
                place = f"{weights.folders()[0]} (or a folder of {weights.WEIGHTS_VARIABLE})"
                raise DataError(f"{error}. Or put the file into {place}") from error


def _train_heads(work: _Work, **given: Any) -> None:
    """Heads of the models that have none, with the options of --train-rotation-head."""
    from testbed.commands.autoeval_training import train
    from testbed.models.rotation import head_path
    from testbed.options import stored_model_name

    given |= {
        "on": work.training_images,
        "device": work.devices[0],
        "data_root": work.options.data_roots,
        "registry": work.options.registry,
        "checkpoint": work.options.checkpoint,
    }
    for name in work.models:
        if not head_path(work.store.folder, stored_model_name(name, work.options.checkpoint)).is_file():
            train(name, **given)


def _evaluate(work: _Work, settings: Sequence[str], record: tuple[str, ...]) -> None:
    from dataclasses import replace

    from testbed.engine.run import run_evaluations

    options = replace(work.options, record=record)
    report = run_evaluations(work.entries, work.store, work.models, settings, options, devices=work.devices)
    if report.interrupted:
        click.echo("\nStopped. What is finished is kept; the same command goes on from there.", err=True)
        raise SystemExit(_INTERRUPTED)
    if report.failed:
        named = "; ".join(f"{pair.label}: {pair.error}" for pair in report.failed[:_MOST_FAILED])
        more = f"; and {len(report.failed) - _MOST_FAILED} more" if len(report.failed) > _MOST_FAILED else ""
        raise TestbedError(f"{len(report.failed)} of {len(report.plan.pairs)} pairs failed: {named}{more}")


def _ask(work: _Work, source: str, methods: tuple[str, ...]) -> Answer:
    from testbed.options import stored_model_name
    from testbed.studies.labelfree.answers import Question
    from testbed.studies.labelfree.estimate import answer_question, sets_to_read
    from testbed.studies.labelfree.sets import StoredModel

    names = [stored_model_name(name, work.options.checkpoint) for name in work.models]
    question = Question(tuple(names), source, work.layout.test, work.layout.fit, methods, must=False)
    stored = [StoredModel(work.store, work.entries, name, "") for name in names]
    with progress_bar(sets_to_read(stored, question), "sets") as bar:
        answer = answer_question(stored, question, bar.update)
    save_answer(work.store, question, answer)
    return answer


# ---- what is told --------------------------------------------------------------------------------------------


def _accuracies(answer: Answer, published: Published) -> list[str]:
    """How accurate each model is on CIFAR-10 itself, by which wrong weights are noticed first."""
    from testbed.studies.labelfree.answers import NO_CHANGE

    lines = []
    for model, value in {e.model: e.value for e in answer.estimates if e.method == NO_CHANGE}.items():
        table = published.of(model)
        there = f" (published: {table.accuracy:.2f})" if table else ""
        lines.append(f"{model} is {value:.2f} % accurate on the test images of CIFAR-10{there}")
    return lines


def _notes(work: _Work) -> list[str]:
    lines = ["ATC has the threshold of the published code; as defined, it lies at another quantile"]
    if work.training_images == TEST:
        lines.append(
            "no training images of CIFAR-10 were found: FID is measured from the test images and rotation heads are "
            "trained on them, unlike published"
        )
    return lines


def _rendered(cells: Sequence[Cell], published: Published, remarks: Sequence[str], style: str) -> str:
    if style in ("csv", "json"):
        return formatted([{name: getattr(cell, name) for name in _COLUMNS} for cell in cells], _COLUMNS, style)
    parts = []
    for model in dict.fromkeys(cell.model for cell in cells):
        own = [cell for cell in cells if cell.model == model]
        table = published.of(model)
        title = f"{table.title} ({model})" if table else model
        header, rows = _grid(own)
        title = f"RMSE of {title}, in percentage points"
        if style == "markdown":
            parts.append("\n".join([f"**{title}**", "", *markdown_table(header, rows)]))
        elif style == "latex":
            parts.append(f"% {title}\n{latex_table(header, rows)}")
        else:
            parts.append(f"{title}\n\n{text_table(rows, header)}")
    mark = "% " if style == "latex" else ""
    return "\n\n".join([*parts, "\n".join(f"{mark}{line}" for line in remarks)])


def _grid(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    """A row for each method; where it was published, three: here, published and the difference."""
    columns = [*dict.fromkeys(cell.column for cell in cells if cell.column != OVERALL), OVERALL]
    rows = []
    for method in dict.fromkeys(cell.method for cell in cells):
        own = {cell.column: cell for cell in cells if cell.method == method}
        line = [own.get(column) for column in columns]
        rows.append([method, "here", *("" if c is None else f"{c.rmse:.3f}" for c in line)])
        if any(c is not None and c.published is not None for c in line):
            there = ["" if c is None or c.published is None else f"{c.published:.3f}" for c in line]
            off = ["" if c is None or c.difference is None else f"{c.difference:+.3f}" for c in line]
            rows += [["", "published", *there], ["", "difference", *off]]
    return ["Method", "", *columns], rows
