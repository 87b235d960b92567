"""Clean against shifted accuracy along the way from one network to another (Wortsman et al. 2022, WiSE-FT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import (
    color_of,
    counts,
    dot,
    head,
    legend_below,
    limits,
    new_figure,
    percent_axis,
    reach,
    save,
)
from _labels import place_labels
from _options import figure_command, out_option, read_results, source_options, title_option
from _results import Column, Results

from testbed.errors import TestbedError
from testbed.models.strings.blends import place_of
from testbed.stats.axes import AXES, to_axis

_ENDS = ("s", "D")  # markers of the first and of the second network


@dataclass(frozen=True)
class Way:
    """The blends of two networks that are drawn as one curve, in the order of their shares."""

    members: tuple[str, str]
    bn: str
    rows: np.ndarray  # points of the results
    shares: np.ndarray

    @property
    def label(self) -> str:
        first, second = self.members
        statistics = f", statistics recomputed on {self.bn}" if self.bn else ""
        return f"{first} to {second}{statistics}"


@figure_command()
@click.option("--x", "x_name", required=True, metavar="SETTING", help="Without shift: a setting, an average, a glob.")
@click.option("--y", "y_name", required=True, metavar="SETTING", help="Under shift: likewise; a,b means the mean.")
@source_options
@click.option("--axis", type=click.Choice(AXES), default="linear", show_default=True, help="Scale of both axes.")
@title_option
@out_option("figures/interpolation")
def main(
    *,
    x_name: str,
    y_name: str,
    models: tuple[str, ...],
    axis: str,
    title: str | None,
    out: Path,
    **options: Any,
) -> None:
    """Draw the blends of two networks by their accuracy on two settings, as one curve from the first to the second.

    \b
        python eval.py --models 'blend:A+B@0:1:11' --eval-settings val imagenet-sketch
        python plotting/interpolation.py --x val --y imagenet-sketch
    """
    results = read_results(options, models, (x_name, y_name))
    x, y = results.column(x_name), results.column(y_name)
    found = ways(results, x, y, results.chosen(models))
    save(interpolation(results, x, y, found, axis, title), out)


def ways(results: Results, x: Column, y: Column, chosen: np.ndarray) -> list[Way]:
    """The curves that the results hold, each with at least two points on both settings."""
    grouped: dict[tuple[tuple[str, str], str, str], list[tuple[float, int]]] = {}
    for row in (chosen & np.isfinite(x.value) & np.isfinite(y.value)).nonzero()[0]:
        point = results.points[row]
        place = place_of(point.model)
        if place is not None:
            grouped.setdefault((place.members, place.bn, point.source), []).append((place.share, int(row)))
    found = []
    for (members, bn, _), places in grouped.items():
        if len(places) > 1:
            shares, rows = zip(*sorted(places), strict=True)
            found.append(Way(members, bn, np.array(rows), np.array(shares)))
    if not found:
        raise TestbedError(
            f"no two blends of the same networks have results on both {x.label} and {y.label}{results.instead}: "
            "eval.py --models 'blend:A+B@0:1:11' makes eleven"
        )
    return found


def interpolation(
    results: Results, x: Column, y: Column, found: Sequence[Way], axis: str = "linear", title: str | None = None
) -> Any:
    """The figure."""
    for column in (x, y):
        values = column.value[np.concatenate([way.rows for way in found])]
        if values.min() < 0 or values.max() > 100:
            raise TestbedError(f"interpolation.py draws numbers from 0 to 100; {results.metric} has others")
    rows = np.concatenate([way.rows for way in found])
    bounds = [limits(c.value[rows], c.low[rows], c.high[rows], axis=axis) for c in (x, y)]
    figure, ax = new_figure()
    handles = [_draw(ax, way, x, y, color_of(i), axis, bounds) for i, way in enumerate(found)]
    handles += _end_handles(found)
    for which, column, bound in zip("xy", (x, y), bounds, strict=True):
        percent_axis(ax, which, bound, axis, column.label, results.kind)
    legend_below(figure, handles, columns=1 if max(len(h.get_label()) for h in handles) > 40 else 2)
    head(figure, title or "From one network to another in their weights", notes(results, x, y, found), results.variant)
    # Last: legend and title move the axes, and labels are placed in pixels.
    places = np.column_stack([to_axis(np.clip(c.value[rows], *b), axis) for c, b in zip((x, y), bounds, strict=True)])
    place_labels(ax, places, [(f"{share:g}", i) for i, share in enumerate(np.concatenate([w.shares for w in found]))])
    return figure


def _draw(ax: Any, way: Way, x: Column, y: Column, color: str, axis: str, bounds: Sequence[tuple[float, float]]) -> Any:
    """One curve with the intervals of its points; returns its legend entry."""
    (px, ex), (py, ey) = (_places(c, way.rows, axis, b) for c, b in zip((x, y), bounds, strict=True))
    ax.errorbar(px, py, xerr=ex, yerr=ey, fmt="none", ecolor=color, elinewidth=0.8, alpha=0.3, zorder=2)
    ax.plot(px, py, color=color, linewidth=1.2, zorder=3)
    for share, marker in ((0.0, _ENDS[0]), (1.0, _ENDS[1]), (None, "o")):
        rows = ~np.isin(way.shares, (0, 1)) if share is None else way.shares == share
        size = 26 if share is None else 64
        style = dict(color=color, marker=marker, s=size, edgecolors="white" if share is None else "black")
        ax.scatter(px[rows], py[rows], linewidths=0.6 if share is None else 1.2, zorder=4, clip_on=False, **style)
    return dot(color, way.label, line=True)


def _places(column: Column, rows: np.ndarray, axis: str, bounds: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    value, low, high = (to_axis(np.clip(a[rows], *bounds), axis) for a in (column.value, column.low, column.high))
    return value, reach(value, low, high)


def _end_handles(found: Sequence[Way]) -> list[Any]:
    """Legend entries of the networks at the ends, where a curve reaches them."""
    from matplotlib.lines import Line2D

    handles = []
    for share, marker in enumerate(_ENDS):
        names = dict.fromkeys(way.members[share] for way in found if share in way.shares)
        if names:
            label = f"{share:g}: {', '.join(names)}"
            style = dict(marker=marker, linestyle="", markersize=7, color="0.6", markeredgecolor="black")
            handles.append(Line2D([], [], label=label, **style))
    return handles


def notes(results: Results, x: Column, y: Column, found: Sequence[Way]) -> list[str]:
    """What the numbers at the points are, how many images, and how far a curve rises above its ends."""
    rows = np.concatenate([way.rows for way in found])
    images = f"{counts(x.n[rows])} (x) and {counts(y.n[rows])} (y) images"
    text = [
        f"{results.metric}; a point's number is the share of the second network's weights. {images}; bars: "
        f"{100 * results.confidence:g} % intervals of one point, wider than those of differences along a curve."
    ]
    for way in found:
        best = int(np.argmax(results.sign * y.value[way.rows]))
        row, statistics = way.rows[best], f" (statistics of {way.bn})" if way.bn else ""
        first, last = y.value[way.rows[[0, -1]]]
        text.append(
            f"Best on y{statistics}, chosen on these images: {way.shares[best]:g} with {y.value[row]:.1f} %, where x "
            f"is {x.value[row]:.1f} %; the ends have {first:.1f} and {last:.1f} % on y."
        )
    return text


if __name__ == "__main__":
    main()
