"""What every figure is drawn with: percent axes, points with intervals, the line and its band, titles, files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from _labels import place_labels
from _lines import FEWEST_FOR_BAND, Line
from _results import Column, Results
from _types import TYPES

from testbed.stats.axes import axis_grid, from_axis, to_axis
from testbed.stats.fits import LineDraws, LineFit, TwoPieceFit
from testbed.store.files import write_aside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_COLOR = "tab:red"
QUIET = "0.45"
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "figure.dpi": 100,
}
FORMATS = (".pdf", ".png")
CROWD = 60  # more points are drawn smaller and paler
_STEPS = (10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


# ---- figures and files -----------------------------------------------------------------------------------


def new_figure(
    width: float = 7.2, height: float = 5.6, rows: int = 1, columns: int = 1, **more: Any
) -> tuple[Any, Any]:
    """A figure that finds room for its titles and legends by itself, and its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(STYLE)
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **more)


def head(figure: Figure, title: str, notes: Sequence[str] = ()) -> None:
    """The title, and in smaller letters what is drawn."""
    width = figure.get_figwidth()
    lines = [line for note in notes for line in wrapped(note, int(width * 17))]
    room = 0.2 + 0.16 * len(lines)  # inches
    height = figure.get_figheight()
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - (room + 0.08) / height))
    figure.text(0.012, 1 - 0.06 / height, title, ha="left", va="top", fontsize=11, fontweight="bold")
    for i, line in enumerate(lines):
        top = 1 - (0.27 + 0.16 * i) / height
        figure.text(0.012, top, line, ha="left", va="top", fontsize=8, color=QUIET)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines that fit."""
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False) or [""]


def save(figure: Figure, out: Path, dpi: int = 150) -> list[Path]:
    """Write the figure as PATH.pdf and PATH.png, or as what the ending says, and say so."""
    chosen = [out] if out.suffix in FORMATS else [out.with_name(out.name + ending) for ending in FORMATS]
    out.parent.mkdir(parents=True, exist_ok=True)
    for path in chosen:
        # No date in the file: the same results give the same bytes.
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
        figure.savefig(path, dpi=dpi, metadata=metadata)
    click.echo(f"wrote {' and '.join(map(str, chosen))}")
    return chosen


def write_text(path: Path, text: str) -> None:
    """A text file that is whole where it is there."""

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    write_aside(path, write)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int = 3) -> None:
    """A legend under the axes, where it hides no point."""
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), fontsize=8)


# ---- percent axes ----------------------------------------------------------------------------------------


def percent_ticks(low: float, high: float, axis: str, gap: float = 0.09) -> list[float]:
    """Round percentages from low to high, none nearer to another than `gap` of the axis.

    The roundest come first; finer ones are added where more than a quarter of the axis has none.
    """
    start, stop = to_axis([low, high], axis)
    chosen: dict[float, float] = {}
    for step in _STEPS:
        edges = [0.0, *sorted(chosen.values()), 1.0]
        bare = [(a, b) for a, b in pairwise(edges) if b - a > 0.25]
        if not bare:
            break
        for i in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1):
            tick = round(i * step, 6)
            if axis != "linear" and not 0 < tick < 100:
                continue
            place = float((to_axis(tick, axis) - start) / (stop - start))
            far = all(abs(place - other) >= gap for other in chosen.values())
            if far and any(a <= place <= b for a, b in bare):
                chosen[tick] = place
    return sorted(chosen)


def limits(*groups: np.ndarray, axis: str, margin: float = 0.04) -> tuple[float, float]:
    """The percentages an axis goes from and to so that all given ones lie inside."""
    values = np.concatenate([g[np.isfinite(g)] for g in groups])
    places = to_axis(values, axis, clip=None if axis == "linear" else inner(values))
    room = margin * max(float(np.ptp(places)), 0.02)
    low, high = from_axis([places.min() - room, places.max() + room], axis)
    return (max(float(low), 0.0), min(float(high), 100.0)) if axis == "linear" else (float(low), float(high))


def inner(values: np.ndarray) -> float:
    """How far inside an axis 0 and 100 are drawn: beyond all other values."""
    between = values[(values > 0) & (values < 100)]
    return float(min(1.0, *(0.7 * np.minimum(between, 100 - between)))) if len(between) > 1 else 0.1


def percent_axis(
    ax: Axes, which: str, bounds: tuple[float, float], axis: str, label: str, percent: bool = True
) -> None:
    """One axis in positions of the scale, labelled in percent."""
    ticks = percent_ticks(*bounds, axis, gap=0.09 if which == "x" else 0.075)
    places = to_axis(ticks, axis)
    sign = "%" if percent else ""
    getattr(ax, f"set_{which}ticks")(places, [f"{tick:g}{sign}" for tick in ticks])
    getattr(ax, f"set_{which}lim")(*to_axis(bounds, axis))
    getattr(ax, f"set_{which}label")("\n".join(wrapped(label, 64)))


# ---- points, lines, names --------------------------------------------------------------------------------


def draw_points(
    ax: Axes,
    results: Results,
    x: Column,
    y: Column,
    rows: np.ndarray,
    axis: str | None,
    bounds: Any,
    strong: np.ndarray,
) -> list[Any]:
    """A marker with both intervals for each point; returns one legend entry per type, with its count.

    `strong` points get a ring. Models at 0 or 100 % stand at the edge of a logit axis. No axis: plain numbers.
    """
    many = rows.sum() > CROWD
    size = 14 if many else 42
    bars = dict(fmt="none", elinewidth=0.8, alpha=0.35 if many else 0.6, zorder=2)
    handles = []
    for kind in TYPES.values():
        chosen = rows & np.array([p.type == kind.tag for p in results.points])
        if not chosen.any():
            continue
        (px, ex), (py, ey) = (_places(c, chosen, axis, b) for c, b in zip((x, y), bounds or (None, None), strict=True))
        ax.errorbar(px, py, xerr=ex, yerr=ey, ecolor=kind.color, **bars)
        style = dict(color=kind.color, marker=kind.marker, s=size, linewidths=0.4, edgecolors="white", clip_on=False)
        label = f"{kind.label} ({chosen.sum()})"
        handles.append(ax.scatter(px, py, alpha=0.85, zorder=3, label=label, **style))
        ringed = strong[chosen]
        ax.scatter(px[ringed], py[ringed], **style | dict(edgecolors="black", linewidths=1.3, s=1.6 * size), zorder=4)
    return handles


def _places(
    column: Column, rows: np.ndarray, axis: str | None, bounds: tuple[float, float] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of values, and how far their intervals reach down and up, all inside the axis."""
    value, low, high = column.value[rows], column.low[rows], column.high[rows]
    if axis is not None and bounds is not None:
        value, low, high = (to_axis(np.clip(a, *bounds), axis) for a in (value, low, high))
    return value, np.nan_to_num(np.maximum([value - low, high - value], 0))


def draw_line(ax: Axes, line: Line, bounds: tuple[float, float]) -> list[Any]:
    """The fit, each piece over its own side, and its band; returns the legend entries."""
    axis, fitted = line.choice.axis, line.fitted
    pieces = [(bounds, fitted, line.draws)]
    if isinstance(fitted, TwoPieceFit):
        middle = float(np.clip(fitted.pivot, *bounds))
        pieces = [
            ((bounds[0], middle), fitted.below, line.draws.below),
            ((middle, bounds[1]), fitted.above, line.draws.above),
        ]
    handles: list[Any] = []
    for (low, high), piece, draws in pieces:
        if high <= low:
            continue
        grid = np.linspace(low, high, 200) if axis == "linear" else axis_grid(low, high, axis)
        handles = _draw_piece(ax, grid, piece, draws, line)
    return handles


def _draw_piece(ax: Axes, grid: np.ndarray, piece: LineFit, draws: LineDraws, line: Line) -> list[Any]:
    axis = piece.axis
    place = to_axis(grid, axis)
    path = piece.intercept + piece.slope * place
    (drawn,) = ax.plot(place, path, color=LINE_COLOR, linewidth=1.4, zorder=2.5, label="Fit")
    if piece.n < FEWEST_FOR_BAND:
        return [drawn]
    if axis == "linear":
        low, high = (edge / 100 for edge in draws.band(grid, line.choice.confidence))
    else:
        low, high = (to_axis(edge, axis, clip=1e-9) for edge in draws.band(grid, line.choice.confidence))
    band = ax.fill_between(place, low, high, color=LINE_COLOR, alpha=0.18, linewidth=0, zorder=1.5)
    band.set_label(f"{100 * line.choice.confidence:g} % band of the fit")
    return [drawn, band]


def draw_identity(ax: Axes, bounds: Sequence[tuple[float, float]], axis: str) -> list[Any]:
    """y = x where it crosses the view."""
    low, high = max(bounds[0][0], bounds[1][0]), min(bounds[0][1], bounds[1][1])
    if low >= high:
        return []
    ends = to_axis([low, high], axis)
    return ax.plot(ends, ends, color="0.3", linestyle=(0, (4, 3)), linewidth=1, zorder=1.4, label="y = x")


def draw_names(
    ax: Axes, results: Results, x: Column, y: Column, named: Iterable[int], axis: str | None, bounds: Any
) -> None:
    """Names beside these points, without overlap, and a word about those that found no room."""
    rows = np.array(list(named), dtype=np.int64)
    everything = np.isfinite(x.value) & np.isfinite(y.value)
    places, bars = [], []
    for column, bound in zip((x, y), bounds or (None, None), strict=True):
        place, (down, up) = _places(column, everything, axis, bound)
        places.append(place)
        bars += [place - down, place + up]
    order = {int(row): i for i, row in enumerate(everything.nonzero()[0])}
    labels = [(results.points[row].label, order[int(row)]) for row in rows]
    unplaced = place_labels(
        ax, np.column_stack(places), labels, np.column_stack(bars) if everything.sum() <= CROWD else None
    )
    if unplaced:
        click.echo(f"{unplaced} of {len(labels)} names found no room", err=True)
