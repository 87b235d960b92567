"""Datasets that are parquet files with pictures in them, as the Hugging Face hub keeps them; nothing is unpacked."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.class_lists import NUMBERED_RULES, class_indices_of_numbers
from testbed.data.images import FileState, file_state, packed_samples
from testbed.data.labels import RULES, checked_labels, class_indices
from testbed.data.locate import MissingData
from testbed.data.parquet_columns import Columns, find_columns
from testbed.data.parquet_reading import Part, PictureReader, in_one_line, open_parquet
from testbed.data.regular import regular
from testbed.data.samples import UNKNOWN, Dataset, Samples, fingerprint_of
from testbed.errors import DataError, EntryError

LABELS = (*RULES, *NUMBERED_RULES, "none")
_SHARD = re.compile(r"(?P<before>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<after>.*)")


@dataclass(frozen=True)
class ParquetDataset(Dataset):
    """Pictures in parquet files at `path`: a file, a folder with all files below it, or a glob.

    image, label: the columns; None: those that the file's features, its README.md or their types tell.
    labels: how labels become indices.
    - text and named numbers as in labels.class_indices: "auto", "imagenet", "integer", "sorted";
    - "imagenet-a", "imagenet-r": numbers 0 to 199 are the places of the set's classes in the order of their wnids;
    - "none": no labels.
    A picture may have a list of labels: the first one is its target.
    """

    path: str | os.PathLike[str]
    image: str | None = None
    label: str | None = None
    labels: str = "auto"
    source: str = ""

    def __post_init__(self) -> None:
        if self.labels not in LABELS:
            raise EntryError(f"ParquetDataset: labels must be one of {', '.join(LABELS)}, got {self.labels!r}")

    def describe(self) -> str:
        return f"parquet {self.path}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        return samples_of_files(files_at(Path(self.path).expanduser()), self.image, self.label, self.labels)

    def several_labels(self) -> dict[str, tuple[int, ...]]:
        """Image -> all of its labels, for the pictures that have more than one."""
        return several_labels_in(files_at(Path(self.path).expanduser()), self.image, self.label, self.labels)


def files_at(path: Path) -> list[Path]:
    """The parquet files that a path means, in the order of their names."""
    if path.is_dir():
        found = [p for p in path.rglob("*.parquet") if p.name[0] != "."]
    elif path.exists():
        found = [path]
    else:
        found = [Path(p) for p in glob.glob(str(path), recursive=True) if not Path(p).is_dir()]
    if not found and not path.exists():
        raise MissingData(f"parquet {path} does not exist: expected a file, a folder of parquet files or a glob")
    if not found:
        raise DataError(f"no parquet files in {path}: expected files ending in .parquet")
    return sorted(found)


def samples_of_files(files: Sequence[Path], image: str | None, label: str | None, labels: str) -> Samples:
    """The Samples of pictures in parquet files, in the order of the files and of the rows in them."""
    _refuse_missing_shards(files)
    tables = _read_tables(files, image, label, labels != "none")
    columns, where = tables[0].columns, f"parquet {_place(files)}"
    ids = [id_ for table in tables for id_ in table.ids]
    if not ids:
        raise DataError(f"{where}: holds no images")
    made = _labels(tables, columns, labels, where)
    samples = packed_samples(
        ids,
        np.array([own[0] if own else UNKNOWN for own in made.of_rows], dtype=np.int64),
        # Sizes of what holds the pictures, which the files tell at their ends: their own sizes would have to be read.
        [size for table in tables for size in table.sizes],
        PictureReader([table.part for table in tables], columns.image),
        {table.part.path: table.state for table in tables},
        label_space=made.space,
        num_classes=made.num_classes,
    )
    several = _several(ids, made)
    return replace(samples, fingerprint=fingerprint_of(samples.fingerprint, repr(several))) if several else samples


def several_labels_in(
    files: Sequence[Path], image: str | None, label: str | None, labels: str
) -> dict[str, tuple[int, ...]]:
    """Image -> all of its labels, for the pictures in these files that have more than one."""
    tables = _read_tables(files, image, label, labels != "none")
    made = _labels(tables, tables[0].columns, labels, f"parquet {_place(files)}")
    return _several([id_ for table in tables for id_ in table.ids], made)


@dataclass(frozen=True)
class _Table:
    """What is known of one file without reading a picture."""

    part: Part
    state: FileState
    columns: Columns
    ids: list[str]
    labels: Any  # a pyarrow ChunkedArray; None where there are none
    sizes: list[int]


def _read_tables(files: Sequence[Path], image: str | None, label: str | None, labelled: bool) -> list[_Table]:
    root = Path(os.path.commonpath([file.parent for file in files]))
    tables = [_read_table(file, file.relative_to(root).as_posix(), image, label, labelled) for file in files]
    for table in tables[1:]:
        if table.columns != tables[0].columns:
            raise DataError(
                f"{table.part.path}: expected the columns and class names of {files[0].name}, got others: "
                "these files are not of one set"
            )
    return tables


def _read_table(path: Path, name: str, image: str | None, label: str | None, labelled: bool) -> _Table:
    try:
        state = file_state(regular(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    file = open_parquet(path)
    columns = find_columns(file.schema_arrow, image, label, labelled, path)
    wanted = [column for column in (columns.label, columns.path) if column]
    try:
        table = file.read(wanted, use_threads=False)
        paths = table.column(columns.path.partition(".")[0]).to_pylist() if columns.path else []
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged: {in_one_line(error)}; fetch or write it again") from error
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    part = Part(path, tuple(group.num_rows for group in groups))
    sizes = [state.size]
    for group in groups:
        sizes += [group.num_rows, *_picture_bytes(group, columns.image, path)]
    ids = [_id(name, row, own and own["path"]) for row, own in enumerate(paths or [None] * part.rows)]
    return _Table(part, state, columns, ids, table.column(columns.label) if columns.label else None, sizes)


def _picture_bytes(group: Any, column: str, path: Path) -> tuple[int]:
    """The bytes of a row group's pictures, from the end of the file."""
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    nulls = chunk.statistics.null_count if chunk.statistics is not None else 0
    if nulls and nulls == group.num_rows:
        raise DataError(
            f"{path}: expected pictures in {column}, got empty cells: only the paths of pictures are stored here; "
            "write the file with the bytes in it, as push_to_hub of the datasets library does"
        )
    return (chunk.total_uncompressed_size,)


def _id(file: str, row: int, path: str | None) -> str:
    """File, row, and the name of the picture where it has one: that alone may occur in every class."""
    name = re.split(r"[/\\]", path)[-1] if path else ""
    return f"{file}/{row}/{name}" if name else f"{file}/{row}"


@dataclass(frozen=True)
class _Labels:
    of_rows: list[tuple[int, ...]]
    space: str = "own"
    num_classes: int | None = None


def _labels(tables: Sequence[_Table], columns: Columns, rule: str, where: str) -> _Labels:
    """All labels of every row."""
    import pyarrow as pa
    import pyarrow.types as types

    if columns.label is None:
        return _Labels([()] * sum(table.part.rows for table in tables))
    column = pa.chunked_array([chunk for table in tables for chunk in table.labels.chunks], tables[0].labels.type)
    where = f"{where}, column {columns.label}"
    kind, rows = column.type, column.to_pylist()
    if types.is_dictionary(kind):
        kind = kind.value_type
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    inner = kind.value_type if listed else kind
    every = [tuple(row or ()) if listed else () if row is None else (row,) for row in rows]
    every = [tuple(label for label in row if label is not None) for row in every]
    if types.is_string(inner) or types.is_large_string(inner):
        return _from_text(every, rule, where)
    if types.is_null(inner):
        return _Labels([()] * len(every))
    if types.is_integer(inner) or types.is_floating(inner):
        return _from_numbers(every, columns.names, rule, where)
    raise DataError(f"{where}: expected labels as whole numbers or text, or lists of them, got {kind}")


def _from_text(rows: Sequence[tuple[str, ...]], rule: str, where: str) -> _Labels:
    if rule in NUMBERED_RULES:
        raise DataError(f"{where}: labels={rule} is for numbers, got text such as {_first(rows)!r}")
    first_rows: dict[str, str] = {}
    for row, names in enumerate(rows):
        for name in names:
            first_rows.setdefault(name, f"{where}, row {row}")
    if not first_rows:
        return _Labels([()] * len(rows))
    indices, space, num_classes = class_indices(list(first_rows), rule, where, first_rows)
    return _Labels([tuple(indices[name] for name in names) for names in rows], space, num_classes)


def _from_numbers(rows: Sequence[tuple[float, ...]], names: Sequence[str], rule: str, where: str) -> _Labels:
    flat = checked_labels([number for row in rows for number in row], where, len(names) or None)
    known = flat[flat != UNKNOWN]
    indices, space, num_classes = class_indices_of_numbers(names, rule, where, int(known.max(initial=UNKNOWN)))
    table = np.asarray(indices, dtype=np.int64) if indices is not None else None
    labels = iter((flat if table is None else np.where(flat == UNKNOWN, UNKNOWN, table[flat])).tolist())
    made = [tuple(next(labels) for _ in row) for row in rows]
    return _Labels([tuple(label for label in row if label != UNKNOWN) for row in made], space, num_classes)


def _first(rows: Iterable[tuple[str, ...]]) -> str:
    return next((name[:40] for row in rows for name in row), "")


def _several(ids: Sequence[str], labels: _Labels) -> dict[str, tuple[int, ...]]:
    return {id_: own for id_, own in zip(ids, labels.of_rows, strict=True) if len(own) > 1}


def _place(files: Sequence[Path]) -> Path:
    return files[0] if len(files) == 1 else Path(os.path.commonpath([file.parent for file in files]))


def _refuse_missing_shards(files: Sequence[Path]) -> None:
    """Files named like validation-00003-of-00014.parquet tell how many there should be."""
    shards: dict[tuple[Path, str, str], set[int]] = {}
    for file in files:
        if match := _SHARD.fullmatch(file.name):
            key = (file.parent, match["before"], match["count"])
            shards.setdefault(key, set()).add(int(match["number"]))
    for (folder, before, count), numbers in shards.items():
        missing = sorted(set(range(int(count))) - numbers)
        if missing:
            raise DataError(
                f"{folder}: expected {int(count)} files {before}-00000-of-{count} and so on, "
                f"{len(missing)} of them are missing: number {', '.join(map(str, missing[:4]))}"
            )
