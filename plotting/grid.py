"""All models on all eval settings at a glance: a grid of accuracies, models in groups of their type."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import counts, head, legend_below, new_figure, patch, save
from _model_types import TYPES
from _options import figure_command, read_results, source_options, table_options
from _results import Column, Results
from _settings import AVERAGES, without_severity

from testbed.errors import TestbedError, counted

MOST_ROWS, MOST_COLUMNS = 70, 45  # more are drawn without names, or with severities averaged
MOST_NUMBERS = 700  # cells that are written out


@figure_command()
@source_options
@click.option("--sort", metavar="SETTING", help="Order models by this setting.  [default: by their mean]")
@click.option(
    "--severities/--mean-severities", default=None, help="All severities, or their mean.  [default: mean if many]"
)
@click.option("--names/--no-names", default=None, help="Name all models.  [default: up to 70]")
@table_options("figures/grid")
def main(
    *,
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    types: tuple[str, ...],
    sort: str | None,
    severities: bool | None,
    names: bool | None,
    title: str | None,
    out: Path,
    **options: Any,
) -> None:
    """Draw a grid of models x eval settings.

    \b
        python plotting/grid.py --models 'digits_*' --eval-settings 'digits*'
    """
    results = read_results(options, models, eval_settings)
    results = results.keep(results.chosen(models, types))
    columns = chosen_columns(results, eval_settings, severities)
    order = ordered_rows(results, columns, results.column(sort) if sort else None)
    save(grid(results, columns, order, names, title), out)


def chosen_columns(results: Results, patterns: tuple[str, ...], severities: bool | None = None) -> list[Column]:
    """The settings' columns; severities of a corruption become one column where there would be too many."""
    names = list(dict.fromkeys(n for p in patterns for n in ([p] if p in AVERAGES else results.column(p).settings)))
    if not patterns:  # corruptions last
        names = sorted(results.settings, key=lambda name: (without_severity(name) is not None, name))
    if severities is None:
        severities = len(names) <= MOST_COLUMNS
    if severities:
        return [results.column(name, label=name) for name in names]
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(without_severity(name) or name, []).append(name)
    return [results.column(",".join(g), label=pattern.replace(".[1-9]", "")) for pattern, g in groups.items()]


def ordered_rows(results: Results, columns: list[Column], by: Column | None) -> np.ndarray:
    """Points that have anything to show, grouped by type, the best first.

    The best are those that stand highest among all on average, over the settings they were run on.
    """
    values = np.column_stack([c.value for c in columns])
    some = np.isfinite(values).any(axis=1)
    if not some.any():
        raise TestbedError(f"no model has results on these settings{results.instead}")
    score = np.zeros(len(values)) if by is None else np.nan_to_num(results.sign * by.value, nan=-np.inf)
    if by is None:
        score[some] = np.nanmean([_standing(results.sign * column) for column in values.T], axis=0)[some]
    types = list(TYPES)
    rank = np.array([types.index(p.type) for p in results.points])
    # The last key counts first: by type, and by score within a type.
    order = np.lexsort((-score, rank))
    return order[some[order]]


def _standing(values: np.ndarray) -> np.ndarray:
    """The share of known values that each is not below; NaN where it is missing."""
    known = np.sort(values[np.isfinite(values)])
    return np.where(np.isfinite(values), np.searchsorted(known, values, side="right") / max(len(known), 1), np.nan)


def grid(
    results: Results, columns: list[Column], order: np.ndarray, names: bool | None = None, title: str | None = None
) -> Any:
    """The figure."""
    from matplotlib import colormaps

    values = np.column_stack([c.value for c in columns])[order]
    names = len(order) <= MOST_ROWS if names is None else names
    numbers = values.size <= MOST_NUMBERS
    cell = (0.34, 0.2) if numbers else (0.2, 0.13)
    height = cell[1] * len(order) if names else 6.0
    beside = max(len(results.points[i].label) for i in order) if names else 26
    # Upright names of one line would take a third of the figure; as many lines as a column has room for do not.
    names_below = [broken(c.label, 3 if numbers else 2) for c in columns]
    below = max(len(line) for name in names_below for line in name.split("\n"))
    figure, ax = new_figure(max(6.5, cell[0] * len(columns) + 0.06 * beside + 1.4), height + 0.055 * below + 1)
    image = ax.imshow(
        values,
        aspect="auto",
        cmap=colormaps["viridis"].with_extremes(bad="0.9"),
        # Accuracies have the same colours in every grid. Others would all be one colour in their whole range.
        vmin=results.kind.lowest,
        vmax=100 if results.is_accuracy else None,
        interpolation="nearest",
    )
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_xticks(range(len(columns)), names_below, rotation=90, fontsize=7 if numbers else 5.5, linespacing=1)
    ax.tick_params(length=0)
    if names:
        ax.set_yticks(range(len(order)), [results.points[i].label for i in order], fontsize=7)
    else:
        ax.set_yticks([])
    # More numbers would be too small to read, and slow to draw.
    if numbers:
        _write_numbers(ax, image, values, results.is_accuracy)
    _mark_types(ax, [results.points[i].type for i in order], names)
    figure.colorbar(image, ax=ax, shrink=min(1.0, 3 / (height + 0.5)), pad=0.015, label=results.axis_label)
    if names:  # else each type is named beside its rows
        types = dict.fromkeys(results.points[i].type for i in order)
        legend_below(figure, [patch(TYPES[name].color, TYPES[name].label) for name in types], columns=4)
    missing = int(np.isnan(values).sum())
    n = np.column_stack([c.n for c in columns])[order]
    images = f"{counts(n[np.isfinite(values)])} images each"
    note = f"{results.axis_label}, {images}; models in groups of their type, best first within each"
    note += "; severities averaged" if any(len(c.settings) > 1 and "*" not in c.label for c in columns) else ""
    note += f"; {missing:,} of {values.size:,} cells without a result are grey." if missing else "."
    head(
        figure,
        title or f"{counted(len(order), 'model')} on {counted(len(columns), 'setting')}",
        [note],
        results.variant,
    )
    return figure


def broken(label: str, lines: int) -> str:
    """The name in so many lines of about the same length, broken after dots, dashes and underscores."""
    pieces = re.findall(r"[^._-]*[._-]?", label)[:-1] or [label]
    best = [label]
    for longest in range(len(label), 0, -1):
        made = [""]
        for piece in pieces:
            made = [*made[:-1], made[-1] + piece] if len(made[-1] + piece) <= longest else [*made, piece]
        made = [line for line in made if line]
        if len(made) > lines:
            break
        best = made
    return "\n".join(best)


def _write_numbers(ax: Any, image: Any, values: np.ndarray, percent: bool) -> None:
    """Each number in its cell, dark on the light colours of the map."""
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            color = "black" if image.norm(value) > 0.6 else "white"
            text = f"{value:.2g}" if not percent else f"{value:.0f}" if value < 99.5 or value == 100 else "99+"
            ax.text(j, i, text, ha="center", va="center", fontsize=6, color=color)


def _mark_types(ax: Any, types: list[str], names: bool) -> None:
    """Where each type begins, and what it is called: beside the grid, or in the place of names."""
    starts = [i for i, name in enumerate(types) if i == 0 or types[i - 1] != name]
    for start, stop in zip(starts, [*starts[1:], len(types)], strict=True):
        kind = TYPES[types[start]]
        if start:
            ax.axhline(start - 0.5, color="white", linewidth=2 if names else 0.7)
        ax.plot([-0.5, -0.5], [start - 0.5, stop - 0.5], color=kind.color, linewidth=5, clip_on=False, zorder=5)
        if not names and stop - start >= 0.02 * len(types):
            text = f"{kind.label}\n({stop - start})"
            ax.annotate(
                text,
                (-0.5, (start + stop) / 2),
                xytext=(-8, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=8,
                color=kind.color,
            )
    ax.set_xlim(-0.5, None)


if __name__ == "__main__":
    main()
