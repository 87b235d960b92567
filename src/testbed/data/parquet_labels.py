"""Labels out of a column of a parquet file: numbers or text, one of each picture, several or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.data.class_lists import NUMBERED_RULES, class_indices_of_numbers
from testbed.data.labels import RULES, checked_labels, class_indices
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError

LABEL_RULES = (*RULES, *NUMBERED_RULES, "none")

Cells = list[tuple[Any, ...]]  # what a file has as labels of each row


@dataclass(frozen=True)
class Labels:
    """All labels of every row, as class indices; label space and number of classes as in Samples."""

    of_rows: list[tuple[int, ...]]
    space: str = "own"
    num_classes: int | None = None

    @property
    def targets(self) -> np.ndarray:
        return np.array([own[0] if own else UNKNOWN for own in self.of_rows], dtype=np.int64)

    def several(self, ids: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Image -> all of its labels, for the pictures that have more than one."""
        return {id_: own for id_, own in zip(ids, self.of_rows, strict=True) if len(own) > 1}


def cells_of(column: Any, where: str) -> Cells:
    """The labels of each row of a pyarrow column; an empty cell is no label."""
    import pyarrow.types as types

    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    inner = kind.value_type if listed else kind
    fits = (types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_null)
    if not any(fit(inner) for fit in fits):
        raise DataError(f"{where}: expected labels as whole numbers or text, or lists of them, got {column.type}")
    rows = column.to_pylist()
    if listed:
        return [tuple(label for label in row or () if label is not None) for row in rows]
    return [() if label is None else (label,) for label in rows]


def labels_of(cells: Cells, ids: Sequence[str], names: Sequence[str], rule: str, where: str) -> Labels:
    """names: what numbers are called; rule: as in ParquetDataset."""
    text = [isinstance(label, str) for own in cells for label in own]
    if not text:
        return Labels(cells)
    if not any(text):
        return _from_numbers(cells, names, rule, where)
    if not all(text):
        raise DataError(f"{where}: expected labels of one kind, got numbers in one file and text in another")
    if rule in NUMBERED_RULES:
        raise DataError(f"{where}: labels={rule} is for numbers, got text")
    listed: dict[str, str] = {}
    for id_, own in zip(ids, cells, strict=True):
        for name in own:
            listed.setdefault(name, f"{where}, image {id_}")
    indices, space, num_classes = class_indices(list(listed), rule, where, listed)
    return Labels([tuple(indices[name] for name in own) for own in cells], space, num_classes)


def _from_numbers(cells: Cells, names: Sequence[str], rule: str, where: str) -> Labels:
    rows = [own or (UNKNOWN,) for own in cells]
    flat = checked_labels([number for own in rows for number in own], where, len(names) or None)
    indices, space, num_classes = class_indices_of_numbers(names, rule, where, int(flat.max(initial=UNKNOWN)))
    if indices is not None:
        flat = np.where(flat == UNKNOWN, UNKNOWN, np.asarray(indices, dtype=np.int64)[flat])
    labels = iter(flat.tolist())
    made = [[next(labels) for _ in own] for own in rows]
    return Labels([tuple(label for label in own if label != UNKNOWN) for own in made], space, num_classes)
