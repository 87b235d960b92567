"""Tables for LaTeX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.errors import printable

# Replaced in one pass over the text: the braces of \textbackslash{} must not be escaped again.
_ESCAPED = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is."""
    return "".join(_ESCAPED.get(character, character) for character in printable(text))


def latex_table(
    header: Sequence[str], lines: Iterable[Sequence[str]], caption: str | None = None, label: str | None = None
) -> str:
    """A booktabs table: the first two columns are left-aligned, all others, the numbers, right-aligned.

    With a caption or a label it floats; without, it is the bare tabular.
    """

    def row(cells: Sequence[str]) -> str:
        return " & ".join(map(escaped, cells)) + r" \\"

    start = [rf"\begin{{tabular}}{{ll{'r' * (len(header) - 2)}}}", r"\toprule", row(header), r"\midrule"]
    tabular = [*start, *map(row, lines), r"\bottomrule", r"\end{tabular}"]
    if caption is None and label is None:
        return "\n".join(tabular)
    named = [rf"\caption{{{escaped(caption)}}}"] if caption is not None else []
    # A label is a name that \ref repeats: LaTeX takes it as it is.
    named += [rf"\label{{{label}}}"] if label is not None else []
    return "\n".join([r"\begin{table}", r"\centering", *named, *tabular, r"\end{table}"])
