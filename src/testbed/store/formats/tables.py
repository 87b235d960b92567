"""All results as one table in a file: CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from testbed.data import writing
from testbed.errors import StoreError
from testbed.store.database import Store
from testbed.store.find import EVERY, numbers

COLUMNS = (
    *("model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n"),
    *("unit", "better", "variant", "version", "source", "finished_at"),
)


def export_results(store: Store, path: Path) -> int:
    """Every number of every variant, version and source, told apart by its columns. Returns how many."""
    writers = {".csv": _csv, ".json": _json, ".parquet": _parquet}
    if path.suffix not in writers:
        raise StoreError(f"--export: expected a file ending in .csv, .json or .parquet, got {path.name}")
    rows = [{c: getattr(n, c) for c in COLUMNS} for n in numbers(store, variant=EVERY, version=EVERY, source=EVERY)]
    with writing.writing_to(path):
        writing.write_aside(path, lambda aside: writers[path.suffix](aside, rows))
    return len(rows)


def _csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pandas as pd

    try:
        pd.DataFrame(rows, columns=list(COLUMNS)).to_parquet(path, index=False)
    except ImportError as error:
        raise StoreError("--export to .parquet needs the package pyarrow: pip install pyarrow") from error
