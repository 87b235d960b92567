"""The answer of autoeval.py as text, CSV, JSON, Markdown or LaTeX."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.tables import formatted, text_table_under
from testbed.studies.labelfree.report import (
    ErrorTable,
    error_details,
    error_tables,
    estimate_rows,
    models_table,
    sets_table,
    without_columns,
)

if TYPE_CHECKING:
    from testbed.studies.labelfree.answers import Answer

_MOST_SETS = 100  # a longer table of sets goes into a file


def progress_bar(total: int, unit: str) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, unit=f" {unit}", leave=False, disable=not sys.stderr.isatty())


def formatted_answer(result: Answer, said: list[str], style: str, summary: bool = False) -> str:
    rows = estimate_rows(result.estimates)
    if style == "csv":
        return formatted(rows, list(rows[0]), "csv")
    if style == "json":
        details = error_details(result.estimates)
        return json.dumps({"estimates": rows, "errors": details, "remarks": said}, indent=1)
    tables, said = error_tables(result.estimates), said + without_columns(result.estimates)
    if style in ("markdown", "latex"):
        return _marked_up(tables, style, said)
    return _text(result, tables, said, summary)


def _text(result: Answer, tables: list[ErrorTable], said: list[str], summary: bool) -> str:
    parts = [] if summary else _set_tables(result)
    if summary:
        tables = tables[-1:]  # over all models, without the groups of each
    parts += [f"{table.title}\n\n{text_table_under(*_cells(table))}" for table in tables]
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


def _cells(table: ErrorTable) -> tuple[list[str], list[list[str]]]:
    return list(table.rows[0]), [[_cell(v) for v in row.values()] for row in table.rows]


def _marked_up(tables: list[ErrorTable], style: str, said: list[str]) -> str:
    """The tables of errors for a paper or a page; several of them with their titles."""
    if not tables:
        raise click.UsageError("no set has labels, so there are no errors to tabulate: use --format csv")
    if style == "markdown":
        parts = [([f"**{t.title}**", ""] if len(tables) > 1 else []) + _markdown_table(t) for t in tables]
        return "\n".join([*(line for part in parts for line in [*part, ""]), *said])
    parts = [([f"% {t.title}"] if len(tables) > 1 else []) + _latex_table(t) for t in tables]
    return "\n".join([*(f"% {line}" for line in said), *(line for part in parts for line in part)])


def _markdown_table(table: ErrorTable) -> list[str]:
    header, cells = _cells(table)
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *cells]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _latex_table(table: ErrorTable) -> list[str]:
    header, cells = _cells(table)
    first, *others = (" & ".join(_latex(c) for c in line) + r" \\" for line in [header, *cells])
    columns = "ll" + "r" * (len(header) - 2)
    start = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule"]
    return [*start, *others, r"\bottomrule", r"\end{tabular}"]


def _latex(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, f"\\{character}")
    return text
