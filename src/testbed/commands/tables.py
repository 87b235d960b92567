"""Rows as aligned text, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.data.writing import csv_text
from testbed.errors import printable, printable_lines

_LABEL = 21  # where the text begins after a label


def text_table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> str:
    """Aligned columns under one header line: numbers to the right, words to the left."""
    return _aligned([header], rows)


def _aligned(headers: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> str:
    """As text_table, with one or more header lines."""
    table = [[printable(cell) for cell in row] for row in (*headers, *rows)]
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
        # click.echo adds the last line break. A terminal obeys no name in it.
        return printable_lines(buffer.getvalue().rstrip("\n"))
    return text_table([[cell(row[c]) for c in columns] for row in rows], columns)


def cell(value: Any) -> str:
    """A value as the text of a table cell; empty for None."""
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def in_plain_words(value: Any) -> str:
    """A value that was kept as JSON, as people write it: `a, b` for a list, `a 1, b 2` for a table, yes and no."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {in_plain_words(v)}" for name, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(in_plain_words, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else cell(value)


def labelled_lines(width: int, facts: Sequence[tuple[str, str]]) -> str:
    """A label and a text in each line; a text that has no room goes on below itself. No word is cut or left out."""
    room = max(width - _LABEL, 20)
    lines = []
    for label, text in facts:
        pieces = textwrap.wrap(printable(text), room, break_long_words=False, break_on_hyphens=False) or [""]
        # A word as long as a checksum begins further left, as far as its label leaves room.
        starts = [max(len(label) + 2, min(_LABEL, width - len(piece))) for piece in pieces]
        lines += [
            f"{'' if i else label:<{start}}{piece}" for i, (start, piece) in enumerate(zip(starts, pieces, strict=True))
        ]
    return "\n".join(lines)


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


def text_table_within(width: int, names: Sequence[str], rows: Sequence[Sequence[str]], kept: int = 1) -> str:
    """As text_table_under; columns that have no room beside each other stand below, each time after the first `kept`.

    A table is wider than asked where one column has no room beside the kept ones.
    """
    first, later = list(range(kept)), list(range(kept, len(names)))
    tables: list[str] = []
    while later or not tables:
        for count in range(len(later), -1, -1):
            taken = [*first, *later[:count]]
            table = text_table_under([names[i] for i in taken], [[row[i] for i in taken] for row in rows])
            if count <= 1 or max(map(len, table.splitlines())) <= width:
                break
        tables.append(table)
        later = later[count:]
    return "\n\n".join(tables)


def text_table_under(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose column names are broken over several lines where they are longer than the cells."""
    broken = [_broken(name, max(len(r[i]) for r in rows)) for i, name in enumerate(names)]
    height = max(map(len, broken))
    # Short names stand at the bottom, next to their cells.
    columns = [[""] * (height - len(b)) + b for b in broken]
    return _aligned([[column[line] for column in columns] for line in range(height)], rows)


def _broken(name: str, width: int) -> list[str]:
    """The name in pieces of about `width` characters. It is cut only after one of _-:/. so a piece may be longer."""
    lines = [""]
    for piece in re.findall(r"[^_\-:/.]+[_\-:/.]*|[_\-:/.]+", name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines
