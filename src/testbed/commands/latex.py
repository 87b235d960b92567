"""Tables for LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Replaced in one pass over the text: the braces of \textbackslash{} must not be escaped again.
_ESCAPED = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_ESCAPED.get(character, character) for character in text)


def latex_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A booktabs table: the first two columns are left-aligned, all others, the numbers, right-aligned."""

    def row(cells: Sequence[str]) -> str:
        return " & ".join(map(escaped, cells)) + r" \\"

    start = [rf"\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}", r"\toprule", row(header), r"\midrule"]
    return "\n".join([*start, *map(row, lines), r"\bottomrule", r"\end{tabular}"])
