"""The published tables of the AutoEval baselines, and the same tables from estimates made here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.data import autoeval
from testbed.data.download import read_json
from testbed.errors import DataError
from testbed.studies.labelfree.answers import SetEstimate
from testbed.studies.labelfree.regression import errors

CATALOGUE = "metadata/autoeval_baselines.json"
OVERALL = "Overall"
# The rows of the published tables and the method behind each. Their ATC has its threshold at another quantile than
# the definition (docs/label-free.md), which stands in a row of its own without published numbers.
FROM_TEST_IMAGES = {
    "Rotation": "rotation",
    "ConfScore": "confscore",
    "Entropy": "entropy",
    "ATC": "atc-compat",
    "ATC as defined": "atc",
}
FROM_TRAINING_IMAGES = {"FID": "fid"}
METHODS = FROM_TEST_IMAGES | FROM_TRAINING_IMAGES
# Column -> folder names that mean it, without case and punctuation: cifar-10.1, cifar10.1_v6, CIFAR-10-F-32.
_FOLDERS = {"CIFAR-10.1": r"cifar101(v\d)?", "CIFAR-10.1-C": r"cifar101c", "CIFAR-10-F": r"cifar10f\d*"}


@dataclass(frozen=True)
class Layout:
    """The sets of a published folder, as words for settings."""

    fit: tuple[str, ...]  # folders of sets with common labels
    test: tuple[str, ...]  # a word for each group
    n_fit: int

    @classmethod
    def of(cls, folder: Path) -> Layout:
        """Everything below a folder, at any depth. Raises DataError where a part is missing."""
        paths, _ = autoeval.find_sets(str(folder))
        fit = [path for path in paths if autoeval.is_numbered(path)]
        test = [path for path in paths if not autoeval.is_numbered(path)]
        for found, what in (
            (fit, "training sets new_data_000.npy, ... with labels.npy"),
            (test, "validation sets <group>/<set>/data.npy with labels.npy"),
        ):
            if not found:
                raise DataError(f"{folder} holds no {what}")
        return cls(_words(fit), _words(test), len(fit))


def _words(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"autoeval:{autoeval.group_folder(path)}" for path in paths))


@dataclass(frozen=True)
class PublishedTable:
    """What was published of one model: RMSE by method and column."""

    title: str
    names: tuple[str, ...]
    accuracy: float  # on the test images of CIFAR-10
    rmse: Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Published:
    """All published tables, and the sets they were made with."""

    tables: tuple[PublishedTable, ...]
    sets: Mapping[str, int]  # by column
    fit_sets: int

    def of(self, model: str) -> PublishedTable | None:
        return next((table for table in self.tables if model in table.names), None)


def read_published(registry_folders: Iterable[Path]) -> Published:
    """The published tables of the first registry folder that has any."""
    catalogue = next((content for folder in registry_folders if (content := read_json(folder / CATALOGUE))), None)
    if catalogue is None:
        return Published((), {}, 0)
    columns = (*catalogue["columns"], OVERALL)
    return Published(
        tuple(_table(model, columns) for model in catalogue["models"]), catalogue["columns"], catalogue["fit_sets"]
    )


def _table(model: Mapping[str, Any], columns: Sequence[str]) -> PublishedTable:
    rmse = {
        (method, column): value
        for method, values in model["rmse"].items()
        for column, value in zip(columns, values, strict=True)
    }
    return PublishedTable(model["title"], tuple(model["names"]), model["accuracy"], rmse)


@dataclass(frozen=True)
class Cell:
    """One number of a table, beside the published one if there is any."""

    model: str
    method: str
    column: str
    sets: int
    rmse: float
    published: float | None

    @property
    def difference(self) -> float | None:
        return None if self.published is None else self.rmse - self.published


def compared(estimates: Sequence[SetEstimate], published: Published) -> list[Cell]:
    """The numbers of every model, in the order of the published rows and columns; other groups have their own columns.

    Overall is over all sets alike, as published: not the mean of the columns.
    """
    names = {method: title for title, method in METHODS.items()}
    labelled = [e for e in estimates if e.accuracy is not None and e.method in names]
    columns = _columns({column_of(e.group) for e in labelled})
    cells = []
    for model in dict.fromkeys(e.model for e in labelled):
        table = published.of(model)
        for title, method in METHODS.items():
            own = [e for e in labelled if (e.model, e.method) == (model, method)]
            for column in columns:
                part = [e for e in own if column in (OVERALL, column_of(e.group))]
                if part:
                    rmse = errors([e.value for e in part], [float(e.accuracy or 0) for e in part]).rmse
                    there = table.rmse.get((title, column)) if table else None
                    cells.append(Cell(model, title, column, len(part), rmse, there))
    return cells


def column_of(group: str) -> str:
    """The published column that a group of sets is, or the group itself."""
    plain = re.sub(r"[^a-z0-9]", "", group.lower())
    return next((column for column, names in _FOLDERS.items() if re.fullmatch(names, plain)), group)


def _columns(present: set[str]) -> list[str]:
    return [*(c for c in _FOLDERS if c in present), *sorted(present - _FOLDERS.keys()), OVERALL]


def other_sets(cells: Sequence[Cell], n_fit: int, published: Published) -> list[str]:
    """A line that says so where the numbers here and the published ones are of other sets."""
    here = {cell.column: cell.sets for cell in cells if cell.column != OVERALL}
    if not any(cell.published for cell in cells) or (here == dict(published.sets) and n_fit == published.fit_sets):
        return []

    def told(fit: int, sets: Mapping[str, int]) -> str:
        return f"{fit:,} to fit lines on, " + " + ".join(f"{n} of {column}" for column, n in sets.items())

    return [f"sets here: {told(n_fit, here)}; published: {told(published.fit_sets, published.sets)}"]
