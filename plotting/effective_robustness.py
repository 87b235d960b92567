"""Who stands above the line, and does it carry over? Effective robustness under one shift against another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import counts, draw_names, draw_points, head, legend_below, named_rows, new_figure, save, wrapped
from _lines import Choice, fit_line, robustness, shown, with_lower_end
from _options import figure_command, line_options, point_options, read_choice, read_results, source_options
from _results import Column, Results
from _settings import reference_of

from testbed.errors import TestbedError, counted
from testbed.stats.effective_robustness import robustness_correlation

OUTER = 8  # directions in which the outermost model is named unasked, where there are too many to name all
FEWEST_FOR_CORRELATION = 10  # the interval of r from fewer covers most of -1 to 1


@figure_command()
@click.option(
    "--x", "x_name", required=True, metavar="SETTING", help="One shift: a setting, an average, a glob, a list."
)
@click.option("--y", "y_name", required=True, metavar="SETTING", help="Another shift.")
@click.option("--reference", metavar="SETTING", help="Accuracy without shift.  [default: by the shift, mostly val]")
@click.option("--reference-x", metavar="SETTING", help="The same for x alone.")
@click.option("--reference-y", metavar="SETTING", help="The same for y alone.")
@source_options
@click.option("--standard/--no-standard", default=False, help="Show the models of the line too.")
@line_options
@point_options("figures/effective_robustness")
def main(
    *,
    x_name: str,
    y_name: str,
    reference: str | None,
    reference_x: str | None,
    reference_y: str | None,
    models: tuple[str, ...],
    types: tuple[str, ...],
    standard: bool,
    highlight: tuple[str, ...],
    names: bool | None,
    title: str | None,
    out: Path,
    **options: Any,
) -> None:
    """Draw effective robustness under one shift against that under another, in percentage points.

    \b
        python plotting/effective_robustness.py --x avg_corruptions --y imagenetv2-matched-frequency-format-val
    """
    results = read_results(options, models, (x_name, y_name))
    choice = read_choice(results, options)
    named = (*models, *highlight)
    x = rho_column(results, x_name, reference_x or reference, choice, named)
    y = rho_column(results, y_name, reference_y or reference, choice, named)
    rows = np.isfinite(x.value) & np.isfinite(y.value) & results.chosen(models, types)
    # The models of the line lie around 0 because the line goes through them.
    if not standard:
        rows &= np.array([p.type != choice.type for p in results.points])
    save(rho_against_rho(results, x, y, rows, choice, highlight=highlight, names=names, title=title), out)


def rho_column(
    results: Results, shift: str, reference: str | None, choice: Choice, named: Sequence[str] = ()
) -> Column:
    """Effective robustness of every point under a shift, in percentage points."""
    reference = reference or reference_of(shift, results.settings)
    if reference is None:
        raise TestbedError(f"no reference is known for '{shift}': name one with --reference")
    base = results.column(reference)
    shifted = results.column(shift)
    choice = with_lower_end(choice, results, (reference, shift), base, named)
    line = fit_line(results, base, shifted, choice)
    if line is None:
        raise TestbedError(f"fewer than 3 {choice.words} models have both {base.label} and {shifted.label}: no line")
    # Below --min-x no line was fitted, and a distance to it means nothing.
    values = [np.where(shown(base, shifted, choice), v, np.nan) for v in robustness(line, base, shifted)]
    return Column(f"{shifted.label}, points above the line on {base.label}", shifted.settings, *values, shifted.n)


def rho_against_rho(
    results: Results,
    x: Column,
    y: Column,
    rows: np.ndarray,
    choice: Choice,
    *,
    highlight: tuple[str, ...] = (),
    names: bool | None = None,
    title: str | None = None,
) -> Any:
    """The figure."""
    if not rows.any():
        raise TestbedError(f"no model has effective robustness under both {x.label} and {y.label}{results.instead}")
    strong = results.highlighted(highlight)
    figure, ax = new_figure()
    handles = draw_points(ax, results, x, y, rows=rows, strong=strong)
    ax.axhline(0, color="0.3", linewidth=0.9, zorder=1)
    ax.axvline(0, color="0.3", linewidth=0.9, zorder=1)
    ax.set_xlabel(x.label)
    ax.set_ylabel("\n".join(wrapped(y.label, 56)))
    ax.margins(0.06)
    legend_below(figure, handles)
    head(figure, title or "Effective robustness under two shifts", notes(x, y, rows, choice), results.variant)
    # Last: legend and title move the axes, and names are placed in pixels.
    outer = np.isin(np.arange(len(rows)), outer_rows(x, y, rows)) if names is None else False
    draw_names(ax, results, x, y, named=named_rows(rows, strong | outer, names))
    return figure


def outer_rows(x: Column, y: Column, rows: np.ndarray, most: int = OUTER) -> np.ndarray:
    """The points that stand farthest out, in each of the directions around the middle: those one wants the names of."""
    places = np.stack([(c.value - c.value[rows].mean()) / (c.value[rows].std() or 1.0) for c in (x, y)])[:, rows]
    angles = np.linspace(0, 2 * np.pi, most, endpoint=False)
    outermost = (np.stack([np.cos(angles), np.sin(angles)], axis=1) @ places).argmax(axis=1)
    return np.unique(rows.nonzero()[0][outermost])


def notes(x: Column, y: Column, rows: np.ndarray, choice: Choice) -> list[str]:
    """What the axes are, and how far one tells the other."""
    images = f"{counts(x.n[rows])} (x) and {counts(y.n[rows])} (y) images each"
    bars = f"{100 * choice.confidence:g} % intervals over models and images"
    what = f"Percentage points above the line through {choice.words} models; bars: {bars}."
    models = counted(rows.sum(), "model")
    if rows.sum() < FEWEST_FOR_CORRELATION:
        return [what, f"{models}, {images}; no correlation of fewer than {FEWEST_FOR_CORRELATION}."]
    try:
        r = robustness_correlation(x.value[rows], y.value[rows], choice.confidence)
    except ValueError:  # all models stand at one place
        return [what, f"{models}, {images}."]
    level = f"{100 * choice.confidence:g} % interval"
    return [what, f"{models}, {images}; Pearson's r = {r.r:.2f} [{r.low:.2f}, {r.high:.2f}] ({level})."]


if __name__ == "__main__":
    main()
