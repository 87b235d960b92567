"""Rows as aligned text, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.data.writing import csv_text

if TYPE_CHECKING:
    from testbed.store.evaluation import Number

NO_LABELS = "no labels"  # the metric name of an evaluation whose images have no labels, and so no metric


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Aligned columns under one header line: numbers to the right, words to the left."""
    return _aligned([header], rows)


def _aligned(headers: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> str:
    """As text_table, with one or more header lines."""
    table = [*headers, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(headers[0]))]
    right = [bool(rows) and all(_numeric(r[i]) for r in rows) for i in range(len(headers[0]))]
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in table
    ]
    lines.insert(len(headers), "  ".join("-" * w for w in widths))
    return "\n".join(lines)


def _numeric(cell: str) -> bool:
    # The first character decides: `71.3 [70.1, 72.5]` is a number too, and an empty cell fits any column.
    return not cell or cell[0].isdigit() or cell[0] in "-+."


def formatted(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], style: str) -> str:
    """The rows in the style of --format."""
    if style == "json":
        return json.dumps([{c: row[c] for c in columns} for row in rows], indent=1, default=str)
    if style == "csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(map(csv_text, columns))
        writer.writerows([csv_text(row[c]) for c in columns] for row in rows)
        return buffer.getvalue().rstrip("\n")  # click.echo adds the last line break
    return text_table([[cell(row[c]) for c in columns] for row in rows], columns)


def cell(value: Any) -> str:
    """A value as the text of a table cell; empty for None."""
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """`71.30 [70.90, 71.70]`; the value alone where it has no interval, - where it is missing."""
    if value is None:
        return "-"
    if low is None or high is None:
        return f"{value:.{_decimals(abs(value), few=1.0)}f}"
    digits = _decimals(max(high - value, value - low))
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _decimals(scale: float, few: float = 0.05) -> int:
    """Decimals to print: two, as suits percentages; three digits of an interval, or of a number, below `few`."""
    return 2 if scale >= few or scale == 0 else min(2 - math.floor(math.log10(scale)), 8)


def results_table(rows: Sequence[Number], width: int, marked: Collection[int] = ()) -> str:
    """A grid of settings (rows) and models (columns) where that fits in `width`, else one line per result.

    Numbers of the evaluations in `marked` are followed by a star.

    A cell of the grid is the first metric of the evaluation with its interval or, in a narrower grid, with ± the longer
    side of the interval. There is no grid where evaluations differ in their first metric.
    """
    models = list(dict.fromkeys(r.model for r in rows))
    settings = list(dict.fromkeys(r.eval_setting for r in rows))
    first: dict[tuple[str, str], Number] = {}
    for row in rows:
        first.setdefault((row.eval_setting, row.model), row)
    headings = {_heading(r) for r in first.values() if r.metric != NO_LABELS}
    if len(headings) == 1 and len(models) > 1:
        heading = headings.pop()
        grid = [[s, *(_grid_cell(first.get((s, m)), marked) for m in models)] for s in settings]
        table = text_table(grid, [heading, *models])
        if max(map(len, table.splitlines())) <= width:
            return table
        # A second try with shorter cells and broken headings.
        grid = [[s, *(_short_cell(first.get((s, m)), marked) for m in models)] for s in settings]
        table = text_table_under([heading, *models], grid)
        if max(map(len, table.splitlines())) <= width:
            return f"{table}\n\n± is the longer side of the 95 % interval."
    lines = [[r.model, r.eval_setting, r.metric, _grid_cell(r, marked, ""), cell(r.n)] for r in rows]
    return text_table(lines, ["model", "eval setting", "metric", "value [95 % interval]", "n"])


def text_table_under(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose column names are broken over several lines where they are longer than the cells."""
    broken = [_broken(name, max(len(r[i]) for r in rows)) for i, name in enumerate(names)]
    height = max(map(len, broken))
    # Short names stand at the bottom, next to their cells.
    columns = [[""] * (height - len(b)) + b for b in broken]
    return _aligned([[column[line] for column in columns] for line in range(height)], rows)


def _broken(name: str, width: int) -> list[str]:
    """The name in pieces of about `width` characters. It is cut only after _ - : and /, so a piece may be longer."""
    lines = [""]
    for piece in re.findall(r"[^_\-:/]+[_\-:/]*|[_\-:/]+", name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def _grid_cell(row: Number | None, marked: Collection[int], without_labels: str = NO_LABELS) -> str:
    if row is None:
        return ""
    if row.metric == NO_LABELS and without_labels:
        return without_labels
    return with_interval(row.value, row.ci_low, row.ci_high) + _star(row, marked)


def _short_cell(row: Number | None, marked: Collection[int]) -> str:
    if row is None or row.value is None:
        return "" if row is None or row.metric != NO_LABELS else NO_LABELS
    star = _star(row, marked)
    if row.ci_low is None or row.ci_high is None:
        return f"{row.value:.1f}{star}"
    return f"{row.value:.1f} ±{max(row.value - row.ci_low, row.ci_high - row.value):.1f}{star}"


def _star(row: Number, marked: Collection[int]) -> str:
    return "*" if row.evaluation_id in marked else ""


def _heading(row: Number) -> str:
    return f"{row.metric} ({row.unit}) on" if row.unit else f"{row.metric} on"
