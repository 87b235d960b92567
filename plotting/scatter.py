"""Accuracy under shift against accuracy without: one point per model, the line through standard ones, its band."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import (
    counts,
    draw_identity,
    draw_line,
    draw_names,
    draw_points,
    head,
    legend_below,
    limits,
    named_rows,
    new_figure,
    percent_axis,
    save,
    save_text,
)
from _lines import FEWEST_FOR_BAND, Choice, Line, described, fit_line, shown, with_lower_end
from _options import figure_command, line_options, point_options, read_choice, read_results, source_options
from _results import Column, Results

from testbed.errors import TestbedError, counted
from testbed.store.evaluation import OWN


@figure_command()
@click.option(
    "--x", "x_name", required=True, metavar="SETTING", help="Reference: a setting, an average, a glob, a list."
)
@click.option("--y", "y_name", required=True, metavar="SETTING", help="Shift: likewise; a glob or a,b means the mean.")
@source_options
@line_options
@point_options("figures/scatter")
@click.option("--fit-json", type=click.Path(path_type=Path), metavar="FILE", help="Write the fit's coefficients here.")
def main(
    *,
    x_name: str,
    y_name: str,
    models: tuple[str, ...],
    types: tuple[str, ...],
    highlight: tuple[str, ...],
    names: bool | None,
    title: str | None,
    out: Path,
    fit_json: Path | None,
    **options: Any,
) -> None:
    """Draw models by their accuracy on two settings.

    \b
        python plotting/scatter.py --x val --y imagenetv2-matched-frequency-format-val
        python plotting/scatter.py --x digits --y 'digits.*' --names
    """
    results = read_results(options, models, (x_name, y_name))
    x, y = results.column(x_name), results.column(y_name)
    choice = with_lower_end(read_choice(results, options), results, (x_name, y_name), x, (*models, *highlight))
    chosen = results.chosen(models, types)
    # Before the fit, which may fail for this very want.
    tell_missing(results, x, y, chosen)
    line = fit_line(results, x, y, choice)
    if fit_json is not None:
        write_fit(fit_json, results, line, x, y)
    figure = scatter(results, x, y, line, choice, chosen=chosen, highlight=highlight, names=names, title=title)
    save(figure, out)


def tell_missing(results: Results, x: Column, y: Column, chosen: np.ndarray) -> None:
    """Models that have results on either side but not all that are needed."""
    places = [results.settings.index(name) for name in (*x.settings, *y.settings)]
    some = np.isfinite(results.value[:, places]).any(axis=1)
    lacking = chosen & some & (np.isnan(x.value) | np.isnan(y.value))
    names = [point.label for point, lacks in zip(results.points, lacking, strict=True) if lacks]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        click.echo(f"left out for want of results on all of x and y: {', '.join(names[:3])}{more}", err=True)


def write_fit(path: Path, results: Results, line: Line | None, x: Column, y: Column) -> None:
    """The fit as JSON, with every model's effective robustness."""
    if line is None:
        raise TestbedError(f"--fit-json: too few standard models have both {x.label} and {y.label} for a line")
    save_text(path, json.dumps(described(results, line, x, y), indent=1, allow_nan=False))


def scatter(
    results: Results,
    x: Column,
    y: Column,
    line: Line | None,
    choice: Choice,
    *,
    chosen: np.ndarray,
    highlight: tuple[str, ...] = (),
    names: bool | None = None,
    title: str | None = None,
) -> Any:
    """The figure."""
    rows = shown(x, y, choice) & chosen
    if not rows.any():
        least = f" with at least {choice.min_x:g} on x" if choice.min_x else ""
        raise TestbedError(f"no model has results on both {x.label} and {y.label}{least}{results.instead}")
    # The axes and the fit are made for percentages (testbed.stats.axes).
    for column in (x, y):
        if column.value[rows].min() < 0 or column.value[rows].max() > 100:
            raise TestbedError(f"scatter.py draws numbers from 0 to 100; {results.metric} on {column.label} has others")
    # A new model among hundreds of published ones would not be seen without a ring.
    strong = results.highlighted(highlight) if highlight else _own_among_published(results)
    axis = choice.axis
    # With the ends of the intervals: no bar may leave the axes.
    bounds = [limits(c.value[rows], c.low[rows], c.high[rows], axis=axis) for c in (x, y)]
    figure, ax = new_figure()
    handles = draw_points(ax, results, x, y, rows=rows, strong=strong, axis=axis, bounds=bounds)
    if line is not None:
        handles += draw_line(ax, line, bounds[0])
    handles += draw_identity(ax, bounds, axis)
    for which, column, bound in zip("xy", (x, y), bounds, strict=True):
        percent_axis(ax, which, bound, axis, column.label, results.kind)
    legend_below(figure, handles)
    head(figure, title or f"{y.label} against {x.label}", notes(results, x, y, rows, line, choice), results.variant)
    # Last: legend and title move the axes, and names are placed in pixels.
    draw_names(ax, results, x, y, named=named_rows(rows, strong, names), axis=axis, bounds=bounds)
    return figure


def _own_among_published(results: Results) -> np.ndarray:
    """Own results are ringed where there are others."""
    own = np.array([p.source == OWN for p in results.points])
    return own if not own.all() else np.zeros_like(own)


def notes(results: Results, x: Column, y: Column, rows: np.ndarray, line: Line | None, choice: Choice) -> list[str]:
    """How many models and images, and what the line is."""
    models = counted(rows.sum(), "model")
    images = f"{counts(x.n[rows])} (x) and {counts(y.n[rows])} (y) images"
    least = f" with at least {choice.min_x:g} % on x" if choice.min_x else ""
    text = [f"{results.metric} of {models}{least}, {images}; bars: {100 * results.confidence:g} % intervals."]
    if line is None:
        return [*text, f"No line: fewer than 3 {choice.words} models."]
    return [*text, line_note(line)]


def line_note(line: Line) -> str:
    """What the line is, in words."""
    data = line.fitted.to_dict()
    methods = {"ols": "least squares", "theil-sen": "Theil-Sen", "huber": "Huber"}
    kind = (
        f"{methods[line.choice.method]} on {line.choice.axis} axes through {line.fitted.n} {line.choice.words} models"
    )
    if data["kind"] == "two-piece":
        return f"Line: {kind}, in two pieces about the model with 0 % (x = {data['pivot']:.2f} %)."
    # Resampled slopes of very few models say little; the note has an interval only where the figure has a band.
    low, high = line.draws.coefficient_intervals(line.choice.confidence)["slope"]
    level = f"{100 * line.choice.confidence:g} % interval"
    interval = f" [{low:.3f}, {high:.3f}] ({level})" if line.fitted.n >= FEWEST_FOR_BAND else ""
    r2 = "" if data["r2"] is None else f", r² = {data['r2']:.3f}"
    return f"Line: {kind}, slope {data['slope']:.3f}{interval}{r2}."


if __name__ == "__main__":
    main()
