"""Results as a table to paste: Markdown, CSV or LaTeX, models down and eval settings across."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import save_text, variant_notes
from _lines import Choice
from _options import (
    figure_command,
    line_options,
    read_choice,
    read_results,
    settings_option,
    source_options,
    types_option,
)
from _results import Column, Results
from _settings import AVERAGES, reference_of
from _tables import as_csv, markdown
from effective_robustness import rho_column

from testbed.commands.families import shared_base, shared_beginning
from testbed.commands.latex import latex_table
from testbed.commands.options import WholeNumber, say
from testbed.errors import TestbedError, counted

STYLES = ("markdown", "csv", "latex")
_BY_ENDING = {".md": "markdown", ".csv": "csv", ".tex": "latex"}


@figure_command()
@source_options
@settings_option
@types_option
@click.option("--rho", is_flag=True, help="Add the effective robustness under each setting.")
@click.option("--reference", metavar="SETTING", help="Accuracy without shift for --rho.  [default: by the shift]")
@line_options
@click.option("--sort", metavar="SETTING", help="Order models by this setting.  [default: the first]")
@click.option("--intervals/--no-intervals", default=True, show_default=True, help="With intervals.")
@click.option("--digits", type=WholeNumber(0, 6), default=2, show_default=True, help="After the point.")
@click.option(
    "--format", "style", type=click.Choice(STYLES), help="Of the table.  [default: by the file's ending, or markdown]"
)
@click.option("--caption", metavar="TEXT", help="Of a LaTeX or Markdown table.  [default: made from what it shows]")
@click.option("--label", default="tab:results", show_default=True, metavar="NAME", help="Of a LaTeX table, for \\ref.")
@click.option(
    "--full-names",
    is_flag=True,
    help="Names as they are, where LaTeX and Markdown else leave out beginnings that all of them share.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="FILE.md, .csv or .tex.  [default: print]")
def main(
    *,
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    types: tuple[str, ...],
    rho: bool,
    reference: str | None,
    sort: str | None,
    intervals: bool,
    digits: int,
    style: str | None,
    caption: str | None,
    label: str,
    full_names: bool,
    out: Path | None,
    **options: Any,
) -> None:
    """Write results as a table.

    \b
        python plotting/table.py --eval-settings val imagenet-a avg_pgd --rho --out table.md
    """
    results = read_results(options, models, eval_settings)
    choice = read_choice(results, options)
    # Refused before anything is computed.
    if style is None and out is not None and out.suffix not in _BY_ENDING:
        raise TestbedError(f"--out: expected a file ending in {', '.join(_BY_ENDING)}, or --format, got {out.name}")
    style = style or (_BY_ENDING[out.suffix] if out is not None else "markdown")
    columns = chosen_columns(results, eval_settings, choice, rho, reference)
    by = results.column(sort) if sort else columns[0]
    rows = sorted_rows(columns, results.sign * by.value, results.chosen(models, types))
    for note in variant_notes(results.variant):
        say(note, err=True)  # beside the table, which is to be pasted as it is
    header, lines = as_cells(results, columns, rows, intervals, digits, split=style == "csv")
    if style == "csv":
        text = as_csv(header, lines)
    else:
        left_out = "" if full_names else shorten(header, lines)
        caption = caption if caption is not None else made_caption(results, intervals, left_out)
        text = latex_table(header, lines, caption, label) if style == "latex" else markdown(header, lines, caption)
    if out is None:
        click.echo(text)
        return
    save_text(out, text)
    click.echo(f"{counted(len(rows), 'model')} x {counted(len(columns), 'column')}")


def chosen_columns(
    results: Results, patterns: Sequence[str], choice: Choice, rho: bool, reference: str | None
) -> list[Column]:
    """A column for each setting or average, and for its effective robustness where asked for and defined."""
    names = dict.fromkeys(n for p in patterns or ("*",) for n in ([p] if p in AVERAGES else results.column(p).settings))
    columns = [results.column(name, label=name) for name in names]
    for name in names if rho else ():
        if name != reference and (reference or reference_of(name, results.settings)):
            columns.append(replace(rho_column(results, name, reference, choice), label=f"rho {name}"))
    return columns


def sorted_rows(columns: list[Column], quality: np.ndarray, chosen: np.ndarray) -> list[int]:
    """Points with any number, the best first, those without the sorting number last."""
    some = np.isfinite([c.value for c in columns]).any(axis=0) & chosen
    order = np.argsort(-np.nan_to_num(quality, nan=-np.inf), kind="stable")
    rows = [int(i) for i in order if some[i]]
    if not rows:
        raise TestbedError("no model has results on these settings")
    return rows


def as_cells(
    results: Results, columns: list[Column], rows: list[int], intervals: bool, digits: int, split: bool
) -> tuple[list[str], list[list[str]]]:
    """Header and lines as text; with `split`, the ends of an interval are columns of their own."""
    header = ["model", "type"]
    for column in columns:
        ends = [f"{column.label} low", f"{column.label} high"] if split and intervals else []
        header += [column.label, *ends]
    lines = []
    for i in rows:
        line = [results.points[i].label, results.points[i].type]
        for c in columns:
            value, low, high = (_number(a[i], digits) for a in (c.value, c.low, c.high))
            # Programs read a CSV: one number in each cell.
            if split:
                line += [value, low, high] if intervals else [value]
            else:
                line.append(f"{value} [{low}, {high}]" if intervals and low and high else value)
        lines.append(line)
    return header, lines


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else ""


def shorten(header: list[str], lines: list[list[str]]) -> str:
    """Leave out beginnings that names share, in place. Returns the sentences that say so."""
    base, beginning = shared_base(header[2:]), shared_beginning([line[0] for line in lines])
    # A column of effective robustness is named `rho SETTING`.
    header[2:] = [re.sub(rf"^(rho )?{re.escape(base)}\.", r"\1.", name) if base else name for name in header[2:]]
    for line in lines:
        line[0] = line[0].removeprefix(beginning)
    told = f" Settings that begin with a dot are of {base}." if base else ""
    return told + (f" Models are named without {beginning}." if beginning else "")


def made_caption(results: Results, intervals: bool, left_out: str) -> str:
    unit = f" ({results.kind.unit})" if results.kind.unit else ""
    variant = f", {results.variant}" if results.variant else ""
    shown = f" with {100 * results.confidence:g} % intervals" if intervals else ""
    return f"{results.metric}{unit}{shown}{variant}.{left_out}"


if __name__ == "__main__":
    main()
