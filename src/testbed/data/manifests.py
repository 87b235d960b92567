"""Datasets that are a CSV file of images and labels."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from testbed.data.images import file_state, picture_samples
from testbed.data.labels import class_indices
from testbed.data.regular import regular
from testbed.data.samples import UNKNOWN, Dataset, Samples, fingerprint_of
from testbed.errors import DataError

_JOINT = re.compile(r"[;+]")
# A column with such a name was meant as labels: read as unlabelled, the set would silently have no accuracy.
_NEARLY_LABEL = frozenset(("label", "labels", "class", "target", "category"))


@dataclass(frozen=True)
class ManifestDataset(Dataset):
    """A CSV with the columns `image` (a path relative to the CSV's folder) and, if there are labels, `label`.

    A picture may have several labels joined by ; or +, or none (an empty cell). The first one is its target; the
    metric testbed.metrics.multilabel.SeveralLabels counts all of them. `labels` is a rule of labels.class_indices.
    """

    csv: str | os.PathLike[str]
    labels: str = "auto"
    source: str = ""

    def describe(self) -> str:
        return f"manifest {self.csv}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        path = Path(self.csv).expanduser()
        rows = _read_rows(path)
        ids, base = [row.image for row in rows], path.parent
        missing = next((i for i in ids if not os.path.isfile(base / i)), None)
        if missing is not None:
            there = "it is no regular file" if os.path.exists(base / missing) else f"there is no such file below {base}"
            raise DataError(f"{path}: lists {missing}, but {there}")
        indices, space, num_classes = _indices(rows, self.labels, path)
        targets = np.array([indices[row.labels[0]] if row.labels else UNKNOWN for row in rows], dtype=np.int64)
        states = [file_state(base / i) for i in ids]
        samples = picture_samples(base, ids, targets, states, listing=path, label_space=space, num_classes=num_classes)
        several = {row.image: [indices[n] for n in row.labels] for row in rows if len(row.labels) > 1}
        if not several:
            return samples
        # The metric counts further labels too. Earlier programs knew only the first of each picture.
        first = samples.fingerprint
        return replace(samples, fingerprint=fingerprint_of(first, repr(several)), older_fingerprints=(first,))

    def several_labels(self) -> dict[str, tuple[int, ...]]:
        """Image -> all of its labels, for the pictures that have more than one."""
        path = Path(self.csv).expanduser()
        rows = _read_rows(path)
        indices, _, _ = _indices(rows, self.labels, path)
        return {row.image: tuple(indices[n] for n in row.labels) for row in rows if len(row.labels) > 1}


@dataclass(frozen=True)
class _Row:
    line: int
    image: str
    labels: tuple[str, ...]


def _indices(rows: Sequence[_Row], rule: str, path: Path) -> tuple[dict[str, int], str, int | None]:
    # Backwards, so that the first line with a name is the one that remains, for error messages.
    lines = {name: row.line for row in reversed(rows) for name in row.labels}
    if not lines:
        return {}, "own", None
    listed = {name: f"manifest {path}, line {line}" for name, line in lines.items()}
    return class_indices(list(lines), rule, f"manifest {path}", listed)


def _read_rows(path: Path) -> list[_Row]:
    head, *table = _read_cells(path) or [(1, [])]
    columns = head[1]
    if not table:
        raise DataError(f"manifest {path} lists no images: expected a header line and one line per image")
    if "image" not in columns:
        raise DataError(f"manifest {path}: expected a column 'image', got {', '.join(columns)}")
    if "label" not in columns and any(c.lower() in _NEARLY_LABEL for c in columns):
        raise DataError(f"manifest {path}: expected a column 'label', got {', '.join(columns)}")
    rows = [_row(columns, cells, line, path) for line, cells in table]
    _refuse_differing(rows, path)
    return rows


def _read_cells(path: Path) -> list[tuple[int, list[str]]]:
    """(line number, cells) of each line that is not blank."""
    try:
        # utf-8-sig: spreadsheet programs write a byte order mark, which would become part of the first column's name.
        with regular(path).open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            return [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"manifest {path} cannot be read: {getattr(error, 'strerror', error)}") from error


def _row(columns: Sequence[str], cells: Sequence[str], line: int, path: Path) -> _Row:
    where = f"manifest {path}, line {line}"
    if len(cells) != len(columns):
        raise DataError(f"{where}: expected {len(columns)} cells, got {len(cells)}")
    by_column = dict(zip(columns, cells, strict=True))
    if not by_column["image"]:
        raise DataError(f"{where}: expected the path of an image, got an empty cell")
    cell = by_column.get("label", "")
    labels = tuple(name.strip() for name in _JOINT.split(cell)) if cell else ()
    if "" in labels:
        raise DataError(f"{where}: expected a label or several joined by ; or +, got {cell!r}")
    return _Row(line, by_column["image"], labels)


def _refuse_differing(rows: Sequence[_Row], path: Path) -> None:
    """Refuse an image that is listed twice with different labels."""
    first: dict[str, _Row] = {}
    for row in rows:
        other = first.setdefault(row.image, row)
        if other.labels != row.labels:
            raise DataError(
                f"manifest {path}, line {row.line}: expected the labels that {row.image} has in line {other.line}, "
                f"got others; several labels of a picture are joined in one line, as in 3;5"
            )
