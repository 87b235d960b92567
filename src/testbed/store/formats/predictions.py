"""Tables of answers that were made elsewhere: one line per picture, as CSV, JSON Lines or Parquet."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.data.regular import regular
from testbed.data.writing import from_csv_text
from testbed.entries.checks import shortened
from testbed.errors import StoreError

IMAGE, ANSWER, PROBABILITIES = "image", "answer", "probabilities"
_BETWEEN_ANSWERS = ";"
_COLUMNS = f"the column {IMAGE}, and {ANSWER}, {PROBABILITIES} or one column for each class"
_ENDINGS = (".csv", ".jsonl", ".parquet")
_LARGEST_CELL = 1 << 24


@dataclass(frozen=True)
class Prediction:
    """One line: what was said of a picture, in the words of the table."""

    where: str
    image: str
    answers: tuple[str, ...]  # names or numbers of classes, best first; empty for no answer
    probabilities: Sequence[float] | Mapping[str, float] | None  # by number of the class, or by its name


def read_predictions(path: Path) -> list[Prediction]:
    """Every line of the table."""
    lines = list(_lines(path))
    if not lines:
        raise StoreError(f"{path}: expected a table of answers, got one without a line")
    return [_prediction(where, cells) for where, cells in lines]


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    readers = dict(zip(_ENDINGS, (_csv, _jsonl, _parquet), strict=True))
    if path.suffix.lower() not in readers:
        raise StoreError(f"{path}: expected a file ending in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}")
    try:
        yield from readers[path.suffix.lower()](regular(path))
    except (OSError, UnicodeError, csv.Error, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(f"{path} cannot be read: {' '.join(str(reason).split())}") from error


def _csv(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        before = csv.field_size_limit(_LARGEST_CELL)
        try:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            twice = [name for name in header if header.count(name) > 1]
            if twice:
                raise StoreError(f"{path}: expected each column once, got {shortened(twice[0])} twice")
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if row and len(row) != len(header):
                    raise StoreError(f"{where}: expected {len(header)} cells, got {len(row)}")
                if row:
                    yield where, dict(zip(header, map(from_csv_text, row), strict=True))
        finally:
            csv.field_size_limit(before)


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            where = f"{path}, line {number}"
            if not line.strip():
                continue
            try:
                cells = json.loads(line)
            except ValueError as error:
                raise StoreError(f"{where}: expected a JSON object, got {shortened(line)}") from error
            if not isinstance(cells, dict):
                raise StoreError(f"{where}: expected a JSON object, got {shortened(line)}")
            yield where, cells


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise StoreError(f"{path}: Parquet needs the package pyarrow: pip install pyarrow") from error
    try:
        rows = pq.read_table(path).to_pylist()
    except pa.ArrowException as error:
        raise StoreError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}") from error
    yield from ((f"{path}, row {number}", row) for number, row in enumerate(rows, start=1))


def _prediction(where: str, cells: Mapping[str, Any]) -> Prediction:
    image, others = cells.get(IMAGE), [name for name in cells if name not in (IMAGE, ANSWER, PROBABILITIES)]
    by_class = not {ANSWER, PROBABILITIES} & cells.keys()
    if IMAGE not in cells or (by_class and not others):
        raise StoreError(f"{where}: expected {_COLUMNS}, got {shortened(', '.join(map(str, cells)))}")
    if not isinstance(image, str) or not image.strip():
        raise StoreError(f"{where}: expected the path or name of an image, got {shortened(image)}")
    given: Any = {name: cells[name] for name in others} if by_class else cells.get(PROBABILITIES)
    return Prediction(where, image.strip(), _answers(where, cells.get(ANSWER)), _probabilities(where, given))


def _answers(where: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str):
        given = given.split(_BETWEEN_ANSWERS)
    words = given if isinstance(given, list) else [] if given is None else [given]
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | int):
            raise StoreError(f"{where}: expected names or numbers of classes as {ANSWER}, got {shortened(word)}")
    told = [str(word).strip() for word in words]
    if any(told) and not all(told):
        raise StoreError(f"{where}: expected classes separated by {_BETWEEN_ANSWERS}, got an empty one among them")
    return tuple(word for word in told if word)


def _probabilities(where: str, given: Any) -> Sequence[float] | Mapping[str, float] | None:
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            expected = f"{where}: expected a JSON list or object as {PROBABILITIES}"
            raise StoreError(f"{expected}, got {shortened(given)}") from error
    if isinstance(given, dict):
        empty = all(value is None or value == "" for value in given.values())
        return None if empty else {str(name).strip(): _number(where, value) for name, value in given.items()}
    if isinstance(given, list):
        return [_number(where, value) for value in given]
    if given is None or (isinstance(given, str) and not given.strip()):
        return None
    raise StoreError(f"{where}: expected a list or an object as {PROBABILITIES}, got {shortened(given)}")


def _number(where: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= 1:
        raise StoreError(f"{where}: expected probabilities from 0 to 1, got {shortened(value)}")
    return number
