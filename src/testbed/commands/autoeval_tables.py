"""The answer of autoeval.py as text, CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from testbed.commands.tables import formatted, text_table_under
from testbed.labelfree.report import error_details, error_rows, estimate_rows, models_table, sets_table

if TYPE_CHECKING:
    from testbed.labelfree.estimate import Answer

_MOST_SETS = 100  # a longer table of sets goes into a file


def formatted_answer(result: Answer, said: list[str], style: str, summary: bool = False) -> str:
    rows, found = estimate_rows(result.estimates), error_rows(result.estimates)
    if style == "csv":
        return formatted(rows, list(rows[0]), "csv")
    if style == "json":
        details = error_details(result.estimates)
        return json.dumps({"estimates": rows, "errors": details, "remarks": said}, indent=1)
    if style in ("markdown", "latex"):
        return _marked_up(found, style, said)
    return _text(result, found, said, summary)


def _text(result: Answer, found: list[dict[str, object]], said: list[str], summary: bool) -> str:
    parts = [] if summary else _set_tables(result)
    if found:
        cells = [[_cell(v) for v in row.values()] for row in found]
        several = "of each model, then " if any(e.model in found[0] for e in result.estimates) else ""
        title = f"Errors in percentage points: RMSE {several}over all sets"
        parts.append(f"{title}\n\n{text_table_under(list(found[0]), cells)}")
    if said:
        parts.append("\n".join(said))
    return "\n\n".join(parts)


def _set_tables(result: Answer) -> list[str]:
    """A table of each model's sets; of several models on one set, one table of the models."""
    models = list(dict.fromkeys(e.model for e in result.estimates))
    sets = list(dict.fromkeys(e.eval_setting for e in result.estimates))
    if len(models) > 1 and len(sets) == 1:
        rows, header = models_table(result.estimates)
        return [f"Estimated accuracy on {sets[0]} (%)\n\n{text_table_under(header, rows)}"]
    parts = []
    for model in models:
        rows, header = sets_table(result.estimates, model)
        if len(rows) <= _MOST_SETS:
            parts.append(f"Estimated accuracy of {model} (%)\n\n{text_table_under(header, rows)}")
        else:
            parts.append(f"{len(rows)} sets of {model}: `--format csv` or `--out FILE.csv` holds them all")
    return parts


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _marked_up(found: list[dict[str, object]], style: str, said: list[str]) -> str:
    """The table of errors for a paper or a page."""
    if not found:
        raise click.UsageError("no set has labels, so there are no errors to tabulate: use --format csv")
    header = list(found[0])
    cells = [[_cell(v) for v in row.values()] for row in found]
    if style == "markdown":
        lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *cells]
        return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", *said])
    first, *others = (" & ".join(_latex(c) for c in line) + r" \\" for line in [header, *cells])
    columns = "ll" + "r" * (len(header) - 2)
    table = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule", *others, r"\bottomrule"]
    return "\n".join([*(f"% {line}" for line in said), *table, r"\end{tabular}"])


def _latex(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, f"\\{character}")
    return text
