"""Datasets whose labels are in a text file beside the pictures."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.data.folders import walk_images
from testbed.data.images import left_out_in_words, picture_samples
from testbed.data.locate import find
from testbed.data.regular import regular
from testbed.data.samples import Dataset, Samples
from testbed.errors import DataError

_MOST_DIGITS = 9


@dataclass(frozen=True)
class ListedDataset(Dataset):
    """Pictures anywhere below a folder, with labels from `listing`, a CSV file in that folder.

    columns: those of the picture and of the label, by name in a file with a header line, by number in one without.
    A line names a picture by its path relative to the folder. A picture whose path is not listed takes the line with
    the same file name, folder and ending aside, so that several edits of one picture share a line. Pictures without a
    line are left out.
    classes: class name -> label, for a file with class names; otherwise the file must have class numbers.
    """

    name: str
    listing: str
    columns: tuple[str, str] | tuple[int, int] = (0, 1)
    separator: str = ","
    classes: Mapping[str, int] | tuple[tuple[str, int], ...] | None = None
    also: Sequence[str] = ()
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "also", tuple(self.also))
        if isinstance(self.classes, Mapping):  # as pairs, since a dataset must be hashable
            object.__setattr__(self, "classes", tuple(self.classes.items()))

    def describe(self) -> str:
        return f"pictures listed in {self.name}/{self.listing}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        root = find(self.name, self.also, data_roots, f"a folder with pictures and {self.listing}", self.source)
        label = self._labels(root / self.listing)
        others: Counter[str] = Counter()
        files = [file for file in sorted(walk_images(root, others)) if _label_of(file[0], label) is not None]
        if not files:
            raise DataError(f"{root}: none of the pictures listed in {self.listing} is there")
        ids = [path for path, _ in files]
        targets = np.array([_label_of(path, label) for path in ids], dtype=np.int64)
        states = [state for _, state in files]
        return picture_samples(root, ids, targets, states, left_out=left_out_in_words(others))

    def _labels(self, path: Path) -> dict[str, int]:
        """Labels by the path in the listing, and by its file name without the ending."""
        try:
            with regular(path).open(newline="", encoding="utf-8-sig") as file:
                rows = [row for row in csv.reader(file, delimiter=self.separator) if row]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"list of labels {path} cannot be read: {getattr(error, 'strerror', error)}") from error
        picture, word = self.columns
        if isinstance(picture, str) and isinstance(word, str):
            head = rows.pop(0) if rows else []
            if picture not in head or word not in head:
                raise DataError(f"{path}: expected the columns {picture} and {word}, got {', '.join(head)}")
            picture, word = head.index(picture), head.index(word)
        known = dict(self.classes) if self.classes is not None else None
        labels: dict[str, int] = {}
        for row in rows:
            try:
                label = _number(row[word]) if known is None else known[row[word]]  # type: ignore[index]
                named = row[picture]  # type: ignore[index]
            except (IndexError, ValueError, KeyError):
                what = "a picture and the number of its class" if known is None else "a picture and one of the classes"
                raise DataError(f"{path}: expected {what}, got {self.separator.join(row)!r}") from None
            labels[named] = labels[_stem(named)] = label
        return labels


def _number(text: str) -> int:
    """A class number. int() alone would take -5 and 1_0, and fail on thousands of digits with another error."""
    word = text.strip()
    if not word.isdecimal() or len(word) > _MOST_DIGITS:
        raise ValueError(word)
    return int(word)


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def _label_of(path: str, label: Mapping[str, int]) -> int | None:
    return label.get(path, label.get(_stem(path)))
