"""The published numbers in registry/references/*.csv, and their comparison with stored results."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.data.regular import regular
from testbed.errors import StoreError, UnknownName, near_or_some
from testbed.store.evaluation import Number
from testbed.store.names import matches

COLUMNS = ("model", "eval_setting", "metric", "value", "tolerance", "source")
FOLDER = "references"


@dataclass(frozen=True)
class Reference:
    """A published number. `models` are all names under which the same weights can be run."""

    models: tuple[str, ...]
    eval_setting: str
    metric: str
    value: float
    tolerance: float
    source: str


@dataclass(frozen=True)
class Check:
    """A stored result and the published one."""

    reference: Reference
    model: str
    value: float | None  # None for a stored result without a number

    @property
    def difference(self) -> float:
        return math.nan if self.value is None else self.value - self.reference.value

    @property
    def inside(self) -> bool:
        # The tolerance is a decimal such as 0.1: rounding of binary fractions must not put a value outside.
        return abs(self.difference) <= self.reference.tolerance + 1e-9


def read_references(registry_folders: Iterable[Path]) -> list[Reference]:
    """The references of all these registry folders; a folder without any is skipped."""
    return [r for folder in registry_folders for path in sorted((folder / FOLDER).glob("*.csv")) for r in read(path)]


def read(path: Path) -> list[Reference]:
    """The references of one file; lines that begin with # are comments."""
    try:
        with regular(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row and not row[0].startswith("#")]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    if not rows or tuple(rows[0]) != COLUMNS:
        raise StoreError(f"{path}: expected the columns {','.join(COLUMNS)}, got {','.join(rows[0]) if rows else ''}")
    return [_reference(row, f"{path}, row {i}") for i, row in enumerate(rows[1:], start=1)]


def _reference(row: Sequence[str], where: str) -> Reference:
    if len(row) != len(COLUMNS):
        raise StoreError(f"{where}: expected {len(COLUMNS)} cells, got {len(row)}")
    cells = dict(zip(COLUMNS, row, strict=True))
    try:
        value, tolerance = float(cells["value"]), float(cells["tolerance"])
    except ValueError:
        value, tolerance = math.nan, -1.0
    if math.isnan(value) or tolerance < 0:
        raise StoreError(
            f"{where}: expected a number and a tolerance from 0 on, got '{cells['value']}' and '{cells['tolerance']}'"
        )
    models = tuple(name for name in cells["model"].split(";") if name)
    return Reference(models, cells["eval_setting"], cells["metric"], value, tolerance, cells["source"])


def check(
    references: Sequence[Reference], results: Sequence[Number], models: Sequence[str] = ()
) -> tuple[list[Check], list[Reference]]:
    """(checks of stored results, references without a stored result).

    `models` are names or globs; if empty, all models are checked.
    """
    known = {name for r in references for name in r.models}
    for pattern in models:
        if not any(matches(name, [pattern]) for name in known):
            raise UnknownName(f"no published numbers of model '{pattern}'{near_or_some(pattern, known)}")
    stored = {(r.model, r.eval_setting, r.metric): r.value for r in results}
    checks: list[Check] = []
    missing: list[Reference] = []
    for reference in references:
        asked = [name for name in reference.models if matches(name, models or None)]
        with_result = [name for name in asked if (name, reference.eval_setting, reference.metric) in stored]
        checks += [Check(reference, n, stored[n, reference.eval_setting, reference.metric]) for n in with_result]
        if asked and not with_result:
            missing.append(reference)
    return checks, missing
