"""Agreement from files of hard predictions: one file per model and set, no logits, no database.

The test sets of others often come with predictions only (CIFAR-10.1: a JSON list of class numbers per model). Models
are the files of the same name in the two folders.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np

from testbed.labelfree.agreement import AgreementEstimate, accuracy_line
from testbed.labelfree.estimate import NO_CHANGE, Answer, SetEstimate
from testbed.labelfree.outputs import LabelFreeError, LabelFreeNote
from testbed.labelfree.scores import METHODS
from testbed.stats.fits import LineFit

_ENDINGS = (".json", ".npy", ".npz", ".txt", ".csv")


def answer_from_files(
    source: Path, test: Path, labels: Path, test_labels: Path | None = None, models: Sequence[str] = ()
) -> tuple[Answer, list[str]]:
    """What the agreement methods say of the set in folder `test`, and the lines they rest on, in words."""
    names = _shared_names(source, test, models)
    on_source, on_test = (np.stack([read_numbers(folder / name) for name in names]) for folder in (source, test))
    known = _labels(labels, on_source, source)
    truth = None if test_labels is None else _labels(test_labels, on_test, test)
    before = (on_source == known).mean(axis=1)
    after = None if truth is None else (on_test == truth).mean(axis=1)
    found, said = Answer(), []
    for method in (m for m in METHODS.values() if m.kind == "pairs"):
        if len(names) < method.fewest_models:
            found.left_out.setdefault(f"needs at least {method.fewest_models} models, got {len(names)}", []).append(
                method.name
            )
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LabelFreeNote)  # the line is told in words
            estimate: AgreementEstimate = method.function(on_source, on_test, before)
        r2 = None if estimate.line is None else estimate.line.r2
        found.estimates += _estimates(names, test, method.name, "pairs", estimate.accuracies, after, r2)
        if estimate.line is not None:
            said = [f"agreement line: {_in_words(estimate.line)}"]
    if after is not None and len(names) > 1:
        line = accuracy_line(before, after, on_source.shape[1], on_test.shape[1])
        said.append(f"accuracy line, which needs the labels: {_in_words(line)}")
    found.estimates += _estimates(names, test, NO_CHANGE, "baseline", 100 * before, after)
    return found, said


def read_numbers(path: Path) -> np.ndarray:
    """Class numbers from a JSON list, an array, or a text file with one per line."""
    try:
        if path.suffix == ".json":
            values = np.asarray(json.loads(path.read_text(encoding="utf-8")))
        elif path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                values = arrays["labels"] if "labels" in arrays.files else arrays[arrays.files[0]]
        elif path.suffix == ".npy":
            values = np.load(path, allow_pickle=False)
        else:
            values = np.loadtxt(path, dtype=np.int64, ndmin=1)
    except (OSError, ValueError) as error:
        raise LabelFreeError(f"{path} cannot be read as class numbers: {error}") from error
    if values.ndim != 1 or not len(values) or not np.issubdtype(values.dtype, np.integer):
        raise LabelFreeError(f"{path}: expected a list of class numbers, got {values.dtype} of shape {values.shape}")
    return values.astype(np.int64)


def _shared_names(source: Path, test: Path, models: Sequence[str]) -> list[str]:
    for folder in (source, test):
        if not folder.is_dir():
            raise LabelFreeError(f"--predictions: expected two folders with a file per model, {folder} is none")
    both = {p.name for p in source.iterdir()} & {p.name for p in test.iterdir()}
    names = sorted(n for n in both if n.endswith(_ENDINGS))
    chosen = [n for n in names if not models or any(fnmatchcase(Path(n).stem, m) for m in models)]
    if not chosen:
        of = f" of {', '.join(models)}" if models and names else ""
        raise LabelFreeError(f"{source} and {test} share no file{of} ({', '.join(_ENDINGS)}): expected one per model")
    return chosen


def _labels(path: Path, predictions: np.ndarray, folder: Path) -> np.ndarray:
    labels = read_numbers(path)
    if len(labels) != predictions.shape[1]:
        raise LabelFreeError(f"{path} has {len(labels)} labels, the predictions in {folder} {predictions.shape[1]}")
    return labels


def _estimates(
    names: Sequence[str],
    test: Path,
    method: str,
    kind: str,
    values: np.ndarray,
    accuracies: np.ndarray | None,
    r2: float | None = None,
) -> list[SetEstimate]:
    true = [None] * len(names) if accuracies is None else [100 * float(a) for a in accuracies]
    return [
        SetEstimate(Path(n).stem, test.name, test.name, method, kind, float(v), a, evaluation_id=-1, r2=r2)
        for n, v, a in zip(names, values, true, strict=True)
    ]


def _in_words(line: LineFit) -> str:
    r2 = "" if line.r2 is None else f", R2 {line.r2:.3f}"
    return f"slope {line.slope:.3f}, intercept {line.intercept:.3f}{r2} (probit axes)"
