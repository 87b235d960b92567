"""All results as one table in a file: CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from testbed.data import writing
from testbed.errors import StoreError
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import EVERY, find, numbers

COLUMNS = (
    *("model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n"),
    *("unit", "better", "variant", "version", "source", "finished_at"),
)
IMPORTED = "imported"  # the last column: where the logits of a result were imported from


def export_results(store: Store, path: Path) -> int:
    """Every number of every variant, version and source, told apart by its columns. Returns how many."""
    writers = {".csv": _csv, ".json": _json, ".parquet": _parquet}
    if path.suffix not in writers:
        raise StoreError(f"--export: expected a file ending in .csv, .json or .parquet, got {path.name}")
    imported = {e.id: e.imported for e in find(store, None, None, EVERY, EVERY, OWN)}
    rows = [
        {c: getattr(n, c) for c in COLUMNS} | {IMPORTED: imported.get(n.evaluation_id, "")}
        for n in numbers(store, variant=EVERY, version=EVERY, source=EVERY)
    ]
    with writing.writing_to(path):
        writing.write_aside(path, lambda aside: writers[path.suffix](aside, rows))
    return len(rows)


def _csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, (*COLUMNS, IMPORTED), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: writing.csv_text(cell) for name, cell in row.items()} for row in rows)


def _json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    import pandas as pd

    try:
        pd.DataFrame(rows, columns=[*COLUMNS, IMPORTED]).to_parquet(path, index=False)
    except ImportError as error:
        raise StoreError("--export to .parquet needs the package pyarrow: pip install pyarrow") from error
