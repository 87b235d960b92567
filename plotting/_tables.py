"""Tables as text: Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from testbed.data.writing import csv_text
from testbed.errors import printable

Lines = Sequence[Sequence[str]]


def markdown(header: Sequence[str], lines: Lines, caption: str = "") -> str:
    """The first two columns are names, the rest numbers, which stand to the right; the caption is a line below.

    A name may hold the sign that ends a cell, one that begins a tag of HTML, or an address to follow: all are escaped.
    """

    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(re.sub(r"[\\|<]|\](?=\()", r"\\\g<0>", printable(cell)) for cell in cells) + " |"

    rule = ["---", "---", *["---:"] * (len(header) - 2)]
    below = ["", f"Table: {caption}"] if caption else []
    return "\n".join([row(header), "| " + " | ".join(rule) + " |", *map(row, lines), *below])


def as_csv(header: Sequence[str], lines: Lines) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([map(csv_text, line) for line in (header, *lines)])
    return text.getvalue().rstrip("\n")
