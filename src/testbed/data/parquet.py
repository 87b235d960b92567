"""Datasets that are parquet files with pictures in them, as the Hugging Face hub keeps them; nothing is unpacked."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.data.hub_layout import files_of_split, readme_head
from testbed.data.images import FileState, file_state, packed_samples
from testbed.data.locate import MissingData
from testbed.data.parquet_columns import Columns, find_columns
from testbed.data.parquet_labels import LABEL_RULES, Cells, Labels, cells_of, labels_of
from testbed.data.parquet_reading import Part, PictureReader, in_one_line, open_parquet
from testbed.data.regular import regular
from testbed.data.samples import Dataset, Samples, fingerprint_of
from testbed.errors import DataError, EntryError

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
    split, config: of a folder that holds several, told by its README.md or the names of its files.
    """

    path: str | os.PathLike[str]
    image: str | None = None
    label: str | None = None
    labels: str = "auto"
    split: str | None = None
    config: str | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.labels not in LABEL_RULES:
            raise EntryError(f"ParquetDataset: labels must be one of {', '.join(LABEL_RULES)}, got {self.labels!r}")

    def describe(self) -> str:
        return (
            f"parquet {self.path}{f', {self.config}' if self.config else ''}{f', {self.split}' if self.split else ''}"
        )

    def open(self, data_roots: Sequence[Path]) -> Samples:
        return samples_of_files(self._files(), self.image, self.label, self.labels)

    def several_labels(self) -> dict[str, tuple[int, ...]]:
        """Image -> all of its labels, for the pictures that have more than one."""
        return several_labels_in(self._files(), self.image, self.label, self.labels)

    def _files(self) -> list[Path]:
        return files_at(Path(self.path).expanduser(), self.config, self.split)


def files_at(path: Path, config: str | None = None, split: str | None = None) -> list[Path]:
    """The parquet files that a path means, in the order of their names."""
    if path.is_dir():
        below = sorted(p.relative_to(path).as_posix() for p in path.rglob("*.parquet"))
        files = [path / p for p in files_of_split(below, readme_head(path), config, split, f"parquet {path}")]
    elif config or split:
        raise DataError(f"parquet {path}: config= and split= are for folders, name the files of one split alone")
    elif path.exists():
        return [path]  # one of several shards, if that is what was named
    else:
        files = sorted(Path(p) for p in glob.glob(str(path), recursive=True) if not Path(p).is_dir())
    if not files:
        raise MissingData(f"parquet {path} does not exist: expected a file, a folder of parquet files or a glob")
    refuse_missing_shards(files)
    return files


def samples_of_files(files: Sequence[Path], image: str | None, label: str | None, labels: str) -> Samples:
    """The Samples of pictures in parquet files, in the order of the files and of the rows in them."""
    tables = _read_tables(files, image, label, labels != "none")
    ids, made = _ids_and_labels(tables, labels)
    if not ids:
        raise DataError(f"parquet {_place(files)}: holds no images")
    samples = packed_samples(
        ids,
        made.targets,
        # Sizes of what holds the pictures, which the files tell at their ends: their own sizes would have to be read.
        [size for table in tables for size in table.sizes],
        PictureReader([table.part for table in tables], tables[0].columns.image),
        {table.part.path: table.state for table in tables},
        label_space=made.space,
        num_classes=made.num_classes,
    )
    several = made.several(ids)
    return replace(samples, fingerprint=fingerprint_of(samples.fingerprint, repr(several))) if several else samples


def several_labels_in(
    files: Sequence[Path], image: str | None, label: str | None, labels: str
) -> dict[str, tuple[int, ...]]:
    """Image -> all of its labels, for the pictures in these files that have more than one."""
    ids, made = _ids_and_labels(_read_tables(files, image, label, labels != "none"), labels)
    return made.several(ids)


@dataclass(frozen=True)
class _Table:
    """What is known of one file without reading a picture."""

    part: Part
    state: FileState
    columns: Columns
    ids: list[str]
    labels: Cells
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
        raise DataError(f"{path} is damaged: {in_one_line(error).rstrip('.')}; fetch or write it again") from error
    groups = [file.metadata.row_group(g) for g in range(file.metadata.num_row_groups)]
    part = Part(path, tuple(group.num_rows for group in groups))
    sizes = [state.size]
    for group in groups:
        sizes += [group.num_rows, *_picture_bytes(group, columns.image, path)]
    ids = [_id(name, row, own and own["path"]) for row, own in enumerate(paths or [None] * part.rows)]
    cells = (
        cells_of(table.column(columns.label), f"{path}, column {columns.label}") if columns.label else [()] * part.rows
    )
    return _Table(part, state, columns, ids, cells, sizes)


def _ids_and_labels(tables: Sequence[_Table], rule: str) -> tuple[list[str], Labels]:
    ids = [id_ for table in tables for id_ in table.ids]
    cells = [cell for table in tables for cell in table.labels]
    columns, place = tables[0].columns, _place([table.part.path for table in tables])
    return ids, labels_of(cells, ids, columns.names, rule, f"parquet {place}, column {columns.label}")


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


def _place(files: Sequence[Path]) -> Path:
    return files[0] if len(files) == 1 else Path(os.path.commonpath([file.parent for file in files]))


def refuse_missing_shards(files: Sequence[Path]) -> None:
    """Names like validation-00003-of-00014.parquet tell how many there should be."""
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
