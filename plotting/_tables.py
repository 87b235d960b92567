"""Tables as text: Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

Lines = Sequence[Sequence[str]]


def markdown(header: Sequence[str], lines: Lines) -> str:
    """The first two columns are names, the rest numbers, which stand to the right."""

    def row(cells: Sequence[str]) -> str:
        # A name may hold the sign that ends a cell.
        return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |"

    rule = ["---", "---", *["---:"] * (len(header) - 2)]
    return "\n".join([row(header), "| " + " | ".join(rule) + " |", *map(row, lines)])


def as_csv(header: Sequence[str], lines: Lines) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *lines])
    return text.getvalue().rstrip("\n")
