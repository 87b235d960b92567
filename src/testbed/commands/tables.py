"""Rows as aligned text, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Columns aligned: numbers to the right, words to the left."""
    table = [list(header), *(list(r) for r in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(header))]
    right = [bool(rows) and all(_numeric(r[i]) for r in rows) for i in range(len(header))]
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in table
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join(lines)


def _numeric(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] in "-+."


def formatted(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], style: str) -> str:
    """The rows in the style of --format."""
    if style == "json":
        return json.dumps([{c: row[c] for c in columns} for row in rows], indent=1, default=str)
    if style == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([row[c] for c in columns] for row in rows)
        return buffer.getvalue().rstrip("\n")
    return text_table([[cell(row[c]) for c in columns] for row in rows], columns)


def cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if low is None or high is None else f"{value:.2f} [{low:.2f}, {high:.2f}]"


def results_table(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    """Settings down and models across where that fits, one line per result otherwise.

    In the grid each cell is the first metric of the evaluation, with its interval.
    """
    models = list(dict.fromkeys(r["model"] for r in rows))
    first: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in rows:
        first.setdefault((row["eval_setting"], row["model"]), row)
    settings = list(dict.fromkeys(r["eval_setting"] for r in rows))
    metrics = {r["metric"] for r in first.values()}
    if len(metrics) == 1 and len(models) > 1:
        grid = [[s, *(_grid_cell(first.get((s, m))) for m in models)] for s in settings]
        table = text_table(grid, [f"{metrics.pop()} (%) on", *models])
        if max(map(len, table.splitlines())) <= width:
            return table
    lines = [
        [r["model"], r["eval_setting"], r["metric"], with_interval(r["value"], r["ci_low"], r["ci_high"]), cell(r["n"])]
        for r in rows
    ]
    return text_table(lines, ["model", "eval setting", "metric", "value [95 % interval]", "n"])


def _grid_cell(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else with_interval(row["value"], row["ci_low"], row["ci_high"])
