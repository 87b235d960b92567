"""The answer of autoeval.py as text, CSV, JSON, Markdown or LaTeX; and the table of methods."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.latex import latex_table
from testbed.commands.options import say
from testbed.commands.tables import formatted, text_table_within
from testbed.data.writing import write_text, writing_to
from testbed.studies.labelfree.recommended import recommended
from testbed.studies.labelfree.report import (
    ErrorTable,
    error_details,
    error_tables,
    estimate_rows,
    legend,
    models_table,
    recommended_table,
    sets_table,
    without_columns,
)
from testbed.studies.labelfree.scores import METHODS

if TYPE_CHECKING:
    from testbed.studies.labelfree.answers import Answer

SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}
_MOST_SETS = 100  # a longer table of sets goes into a file


def progress_bar(total: int, unit: str) -> Any:
    from tqdm import tqdm

    # In a log file every update would be a line.
    return tqdm(total=total, unit=f" {unit}", leave=False, disable=not sys.stderr.isatty())


@dataclass(frozen=True)
class Display:
    """How an answer is shown."""

    style: str
    summary: bool
    out: Path | None

    # Checked when it is made, before anything is estimated.
    def __post_init__(self) -> None:
        if self.out is not None and self.out.suffix not in SUFFIXES:
            raise click.UsageError(f"--out: expected a name that ends in {', '.join(SUFFIXES)}, got {self.out}")

    def show(self, answer: Answer, remarks: list[str]) -> None:
        lines = remarks + left_out(answer)
        say(formatted_answer(answer, lines, self.style, self.summary))
        if self.out is not None:
            with writing_to(self.out):
                write_text(self.out, formatted_answer(answer, lines, SUFFIXES[self.out.suffix]) + "\n")
            click.echo(f"written to {self.out}", err=True)


def left_out(answer: Answer) -> list[str]:
    """The methods that could not be used, and why."""
    return [f"left out: {', '.join(names)}: {reason}" for reason, names in answer.left_out.items()]


def formatted_answer(answer: Answer, remarks: list[str], style: str, summary: bool = False) -> str:
    rows = estimate_rows(answer.estimates)
    if style == "csv":
        return formatted(rows, list(rows[0]), "csv")
    if style == "json":
        details = error_details(answer.estimates)
        first = [vars(one) for one in recommended(answer.estimates)]
        return json.dumps(
            {
                "recommended": first,
                "estimates": rows,
                "errors": details,
                "remarks": [*legend(answer.estimates), *remarks],
            },
            indent=1,
        )
    tables, remarks = error_tables(answer.estimates), remarks + without_columns(answer.estimates)
    if style in ("markdown", "latex"):
        return _marked_up(tables, style, remarks)
    return _text(answer, tables, remarks, summary)


def _text(answer: Answer, tables: list[ErrorTable], remarks: list[str], summary: bool) -> str:
    parts = [] if summary else [*_recommended(answer), *_set_tables(answer)]
    if summary:
        tables = tables[-1:]  # over all models, without the groups of each
    parts += [f"{table.title}\n\n{_in_terminal(*_cells(table))}" for table in tables]
    lines = remarks if summary else [*legend(answer.estimates), *remarks]
    if lines:
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _recommended(answer: Answer) -> list[str]:
    """The estimate to begin with, of each model and set."""
    answers = recommended(answer.estimates)
    if not answers or len(answers) > _MOST_SETS:
        return []
    models = {a.model for a in answers}
    of = f" of {answers[0].model}" if len(models) == 1 else ""
    rows, header = recommended_table(answers)
    return [f"Recommended estimate of the accuracy{of} (%)\n\n{_in_terminal(header, rows, kept=len(header))}"]


def _set_tables(answer: Answer) -> list[str]:
    """A table of each model's sets; of several models on one set, one table of the models."""
    models = list(dict.fromkeys(e.model for e in answer.estimates))
    sets = list(dict.fromkeys(e.eval_setting for e in answer.estimates))
    if len(models) > 1 and len(sets) == 1:
        rows, header = models_table(answer.estimates)
        return [f"Accuracy on {sets[0]} (%) by each method\n\n{_in_terminal(header, rows, kept=2)}"]
    parts = []
    for model in models:
        rows, header = sets_table(answer.estimates, model)
        if len(rows) <= _MOST_SETS:
            parts.append(f"Accuracy of {model} (%) by each method\n\n{_in_terminal(header, rows, kept=2)}")
        else:
            parts.append(f"{len(rows)} sets of {model}: `--format csv` or `--out FILE.csv` holds them all")
    return parts


def _in_terminal(header: list[str], rows: list[list[str]], kept: int = 1) -> str:
    return text_table_within(shutil.get_terminal_size((160, 24)).columns, header, rows, kept)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _cells(table: ErrorTable) -> tuple[list[str], list[list[str]]]:
    return list(table.rows[0]), [[_cell(v) for v in row.values()] for row in table.rows]


def _marked_up(tables: list[ErrorTable], style: str, remarks: list[str]) -> str:
    """The tables of errors for a paper or a page; several of them with their titles."""
    if not tables:
        raise click.UsageError("no set has labels, so there are no errors to tabulate: use --format csv")
    if style == "markdown":
        parts = [([f"**{t.title}**", ""] if len(tables) > 1 else []) + markdown_table(*_cells(t)) for t in tables]
        return "\n".join([*(line for part in parts for line in [*part, ""]), *remarks])
    parts = [([f"% {t.title}"] if len(tables) > 1 else []) + [latex_table(*_cells(t))] for t in tables]
    return "\n".join([*(f"% {line}" for line in remarks), *(line for part in parts for line in part)])


def markdown_table(header: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table whose first two columns are words and the others numbers."""
    lines = [header, ["---"] * 2 + ["---:"] * (len(header) - 2), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def methods_table(style: str) -> str:
    """The methods, and what each needs."""
    rows = [
        {
            "method": m.name,
            "kind": m.kind,
            "needs": " ".join(["logits", *sorted(m.needs)]) if m.kind != "pairs" else f"{m.fewest_models} models",
            "what": m.title,
        }
        for m in METHODS.values()
    ]
    return formatted(rows, list(rows[0]), style if style in ("csv", "json") else "table")
