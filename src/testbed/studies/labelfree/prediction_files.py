"""Agreement from files of hard predictions: one file per model and set, no logits, no database.

The test sets of others often come with predictions only (CIFAR-10.1: a JSON list of class numbers per model). Models
are the files of the same name in the two folders.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from testbed.data.array_files import UNREADABLE, array_names, load_npy, load_npz
from testbed.data.labels import checked_labels
from testbed.data.regular import regular
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError
from testbed.stats.fits import LineFit
from testbed.studies.labelfree.agreement import AgreementEstimate, accuracies_of, accuracy_line, labelled_only
from testbed.studies.labelfree.answers import NO_CHANGE, Answer, SetEstimate, are_all, chosen_methods, described_models
from testbed.studies.labelfree.outputs import LabelFreeError
from testbed.studies.labelfree.pairs import for_so_many
from testbed.studies.labelfree.scores import Method

_ENDINGS = (".json", ".npy", ".npz", ".txt", ".csv")


def answer_from_files(
    source: Path,
    test: Path,
    labels: Path,
    test_labels: Path | None = None,
    models: Sequence[str] = (),
    methods: Sequence[str] = (),
) -> tuple[Answer, list[str]]:
    """What the agreement methods say of the set in folder `test`, and the lines they rest on, in words."""
    chosen = chosen_methods(methods, kinds=("pairs",))
    names = _shared_names(source, test, models)
    on_source, known = labelled_only(*_read_set(source, names, labels))
    on_test, truth = _read_set(test, names, test_labels)
    before, after = accuracies_of(on_source, known), accuracies_of(on_test, truth)
    if before is None:
        raise LabelFreeError(f"{labels} has no labels, all are below 0: the source set needs them")
    answer, lines = Answer(named=not are_all(methods)), []
    for method in for_so_many(len(names), chosen, answer):
        attempted = answer.attempt(method, test.name, method.function, on_source, on_test, before)
        if attempted is None:
            continue
        estimate: AgreementEstimate = attempted[0]
        answer.estimates += _estimates(names, test, method, estimate, after)
        if estimate.line is not None:
            lines = [f"agreement line: {_in_words(estimate.line)}"]  # both methods fit the same one
    if after is not None:
        lines += _accuracy_line(before, after, on_source.shape[1], int((truth >= 0).sum()))
    answer.estimates += _estimates(names, test, None, AgreementEstimate(100 * before), after)
    return answer, lines


def _accuracy_line(before: np.ndarray, after: np.ndarray, n_source: int, n_test: int) -> list[str]:
    """In words, where there is one: models that are equally accurate on the source have none."""
    if len(np.unique(before)) < 2:
        return []
    return [f"accuracy line, which needs the labels: {_in_words(accuracy_line(before, after, n_source, n_test))}"]


def read_numbers(path: Path) -> np.ndarray:
    """Class numbers from a JSON list, an array, or a text file with one per line."""
    try:
        if path.suffix == ".json":
            values = np.asarray(json.loads(regular(path).read_text(encoding="utf-8")))
        elif path.suffix == ".npz":
            names = array_names(path)
            if not names:
                raise ValueError("it holds no array")
            chosen = "labels" if "labels" in names else names[0]
            values = load_npz(path, (chosen,))[chosen]
        elif path.suffix == ".npy":
            values = load_npy(path)
        else:
            values = np.loadtxt(regular(path), dtype=np.int64, ndmin=1)
    except UNREADABLE as error:
        raise LabelFreeError(f"{path} cannot be read as class numbers: {error}") from error
    if values.ndim != 1 or not len(values) or not np.issubdtype(values.dtype, np.integer):
        raise LabelFreeError(f"{path}: expected a list of class numbers, got {values.dtype} of shape {values.shape}")
    try:
        return checked_labels(values, str(path))
    except DataError as error:
        raise LabelFreeError(str(error)) from error


def _shared_names(source: Path, test: Path, models: Sequence[str]) -> list[str]:
    for folder in (source, test):
        if not folder.is_dir():
            raise LabelFreeError(f"--predictions: expected two folders with a file per model, {folder} is none")
    # Only names in both folders: published folders do not always hold the same models.
    both = {p.name for p in source.iterdir()} & {p.name for p in test.iterdir()}
    names = sorted(n for n in both if n.endswith(_ENDINGS))
    chosen = [n for n in names if not models or any(fnmatchcase(Path(n).stem, m) for m in models)]
    if not chosen:
        of = f" of {', '.join(models)}" if models and names else ""
        raise LabelFreeError(f"{source} and {test} share no file{of} ({', '.join(_ENDINGS)}): expected one per model")
    return chosen


def _read_set(folder: Path, names: Sequence[str], labels: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """(models, n) predictions, and the labels, -1 where unknown."""
    rows = [read_numbers(folder / name) for name in names]
    n = len(rows[0])
    for name, row in zip(names, rows, strict=True):
        if len(row) != n:
            raise LabelFreeError(f"{folder / name}: expected {n} predictions as in {names[0]}, got {len(row)}")
    targets = np.full(n, UNKNOWN) if labels is None else read_numbers(labels)
    if len(targets) != n:
        raise LabelFreeError(f"{labels} has {len(targets)} labels, the predictions in {folder} {n}")
    return np.stack(rows), targets


def _estimates(
    names: Sequence[str], test: Path, method: Method | None, estimate: AgreementEstimate, true: np.ndarray | None
) -> list[SetEstimate]:
    """One per model, by a method or, without one, by assuming that nothing changes."""
    stems = [Path(name).stem for name in names]
    return [
        SetEstimate(
            model=stem,
            eval_setting=test.name,
            group=test.name,
            method=NO_CHANGE if method is None else method.name,
            kind="baseline" if method is None else method.kind,
            value=float(estimate.accuracies[row]),
            accuracy=None if true is None else 100 * float(true[row]),
            evaluation_id=-1,  # nothing of it is stored
            assumes="" if method is None else described_models(stems),
            r2=None if estimate.line is None else estimate.line.r2,
        )
        for row, stem in enumerate(stems)
    ]


def _in_words(line: LineFit) -> str:
    r2 = "" if line.r2 is None else f", R2 {line.r2:.3f}"
    return f"slope {line.slope:.3f}, intercept {line.intercept:.3f}{r2} (probit axes)"
