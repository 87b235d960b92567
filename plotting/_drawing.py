"""What every figure is drawn with: percent axes, points with intervals, the line and its band, titles, files."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np
from _labels import place_labels
from _lines import FEWEST_FOR_BAND, Line
from _model_types import TYPES
from _results import Column, Results

from testbed.data.writing import write_aside, write_text, writing_to
from testbed.errors import TestbedError
from testbed.metrics.estimate import ACCURACY, MetricKind
from testbed.stats.axes import axis_grid, from_axis, to_axis
from testbed.stats.fits import LineDraws, LineFit, TwoPieceFit

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
    "text.parse_math": False,  # a name with a $ is text, not mathematics
}
FORMATS = (".pdf", ".png")
CROWD = 60  # more points are drawn smaller and paler
FEW = 12  # so many models are named unasked
PERCENT_TICKS = (range(0, 101, 20), [f"{tick}%" for tick in range(0, 101, 20)])
# Without red, which is the colour of lines and of people.
_TABLEAU = ("blue", "orange", "green", "purple", "brown", "pink", "olive", "cyan")
PALETTE = (*(f"tab:{name}" for name in _TABLEAU), "0.35")
_STEPS = (10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


# ---- figures and files -----------------------------------------------------------------------------------


def new_figure(
    width: float = 7.2, height: float = 5.6, rows: int = 1, columns: int = 1, **more: Any
) -> tuple[Any, Any]:
    """A figure that finds room for its titles and legends by itself, and its axes."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(STYLE)
    # Not by pyplot, which keeps every figure and looks for a screen.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **more)


class Panels(NamedTuple):
    """A figure of several axes: those in use, and which of them stand at the left and at the bottom."""

    figure: Any
    each: list[Any]
    left: list[Any]
    bottom: list[Any]


def new_panels(count: int, across: int, size: tuple[float, float], room: tuple[float, float], **more: Any) -> Panels:
    """`count` panels of a size in inches, at most `across` in a row; `room` is the least width and the height added."""
    columns = min(count, across)
    rows = -(-count // columns)
    width, height = max(size[0] * columns, room[0]), size[1] * rows + room[1]
    figure, axes = new_figure(width, height, rows, columns, squeeze=False, **more)
    for ax in axes.flat[count:]:
        ax.set_visible(False)
    bottom = list(axes.flat[max(0, count - columns) : count])
    for ax in bottom:
        ax.tick_params(labelbottom=True)  # shared axes have them in the last row only, which may have a gap
    return Panels(figure, list(axes.flat[:count]), list(axes[:, 0]), bottom)


def color_of(i: int) -> str:
    """The colour of the i-th of several things."""
    return PALETTE[i % len(PALETTE)]


def head(figure: Figure, title: str, notes: Sequence[str] = (), variant: str = "") -> None:
    """The title, and in smaller letters what is drawn; partial results are told."""
    width = figure.get_figwidth()
    lines = [line for note in (*notes, *variant_notes(variant)) for line in wrapped(note, int(width * 16))]
    room = 0.2 + 0.16 * len(lines)  # inches
    height = figure.get_figheight()
    # The layout engine knows no text outside the axes, so its room is taken from the rectangle.
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - (room + 0.08) / height))
    figure.text(0.012, 1 - 0.06 / height, title, ha="left", va="top", fontsize=11, fontweight="bold")
    for i, line in enumerate(lines):
        top = 1 - (0.27 + 0.16 * i) / height
        figure.text(0.012, top, line, ha="left", va="top", fontsize=8, color=QUIET)


def counts(n: np.ndarray) -> str:
    """How many images stand behind numbers: one count, or the least and the most; 0 where it is not known."""
    known = np.asarray(n)[np.asarray(n) > 0]
    if not known.size:
        return "unknown numbers of"
    low, high = int(known.min()), int(known.max())
    return f"{high:,}" if low == high else f"{low:,} to {high:,}"


def variant_notes(variant: str) -> list[str]:
    """What must be said of results that are not those of whole settings."""
    return [f"partial results: {variant}"] if variant else []


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines that fit."""
    import textwrap

    return textwrap.wrap(text, width, break_long_words=False) or [""]


def save(figure: Figure, out: Path, dpi: int = 150) -> list[Path]:
    """Write the figure as PATH.pdf and PATH.png, or as what the ending says, and say so."""
    # A dot may be a part of the name (digits.contrast), but the ending of another kind of file is a mistake.
    if out.suffix not in FORMATS and mimetypes.guess_type(out.name)[0] is not None:
        raise TestbedError(f"--out: expected a path ending in {' or '.join(FORMATS)}, or in neither, got {out.name}")
    paths = [out] if out.suffix in FORMATS else [out.with_name(out.name + ending) for ending in FORMATS]
    for path in paths:
        # No date in the file: the same results give the same bytes.
        metadata = {"CreationDate": None} if path.suffix == ".pdf" else {"Software": None}
        # The name that is written aside has no ending to tell the format by.
        how = dict(format=path.suffix[1:], dpi=dpi, metadata=metadata)
        with writing_to(path):
            write_aside(path, lambda aside, how=how: figure.savefig(aside, **how))
    click.echo(f"wrote {' and '.join(map(str, paths))}")
    return paths


def beside(out: Path, part: str) -> Path:
    """The path of one of several figures: `part` goes before an ending that `out` has."""
    ending = out.suffix if out.suffix in FORMATS else ""
    return out.with_name(f"{out.name.removesuffix(ending)}-{part}{ending}")


def save_text(path: Path, text: str) -> None:
    """Write a text file with a final line break, and say so."""
    with writing_to(path):
        write_text(path, text.rstrip("\n") + "\n")
    click.echo(f"wrote {path}")


def legend_below(figure: Figure, handles: Sequence[Any], columns: int = 3) -> None:
    """A legend under the axes, where it hides no point."""
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)), fontsize=8)


def dot(color: str, label: str, line: bool = False) -> Any:
    """A legend entry: a point, with a line through it where asked for."""
    from matplotlib.lines import Line2D

    style = "-" if line else ""
    return Line2D([], [], marker="o", linestyle=style, linewidth=1.2, color=color, label=label, markersize=5)


def patch(color: str, label: str, alpha: float = 1.0) -> Any:
    """A legend entry: an area."""
    from matplotlib.patches import Patch

    return Patch(color=color, alpha=alpha, label=label)


def reach(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """How far intervals go down and up from their values, as error bars want it; 0 where there is none."""
    return np.nan_to_num(np.maximum([value - low, high - value], 0))


# ---- percent axes ----------------------------------------------------------------------------------------


def percent_ticks(low: float, high: float, axis: str, gap: float = 0.09) -> list[float]:
    """Round percentages from low to high, none nearer to another than `gap` of the axis.

    The roundest come first; finer ones are added where more than a quarter of the axis has none.
    """
    start, stop = to_axis([low, high], axis)
    chosen: dict[float, float] = {}
    # Numbers of other units may span less than a percentage does.
    finer = 10.0 ** min(0, np.ceil(np.log10((high - low) / 0.05))) if high > low else 1.0
    for step in (finer * step for step in _STEPS):
        edges = [0.0, *sorted(chosen.values()), 1.0]
        bare = [(a, b) for a, b in pairwise(edges) if b - a > 0.25]
        if not bare:
            break
        for i in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1):
            tick = round(i * step, 12)
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
    ax: Axes, which: str, bounds: tuple[float, float], axis: str, label: str, kind: MetricKind = ACCURACY
) -> None:
    """One axis in positions of the scale: percentages at their ticks, any other unit behind the label."""
    ticks = percent_ticks(*bounds, axis, gap=0.09 if which == "x" else 0.075)
    places = to_axis(ticks, axis)
    sign = "%" if kind.unit == "%" else ""
    label = f"{label} ({kind.unit})" if kind.unit and not sign else label
    getattr(ax, f"set_{which}ticks")(places, [f"{tick:g}{sign}" for tick in ticks])
    getattr(ax, f"set_{which}lim")(*to_axis(bounds, axis))
    getattr(ax, f"set_{which}label")("\n".join(wrapped(label, 64)))


# ---- points, lines, names --------------------------------------------------------------------------------


def draw_points(
    ax: Axes,
    results: Results,
    x: Column,
    y: Column,
    *,
    rows: np.ndarray,
    strong: np.ndarray,
    axis: str | None = None,
    bounds: Any = None,
) -> list[Any]:
    """A marker with both intervals for each point; returns one legend entry per type, with its count.

    `strong` points get a ring. Models at 0 or 100 % stand at the edge of a logit axis. No axis: plain numbers.
    """
    many = rows.sum() > CROWD
    size = 14 if many else 42
    # Bars of a crowd would hide its points.
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
    return value, reach(value, low, high)


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
    # A linear band may leave the percentages, which to_axis refuses.
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


def named_rows(rows: np.ndarray, strong: np.ndarray, names: bool | None) -> np.ndarray:
    """Which points get their names: all where asked for or where they are few, else the highlighted ones."""
    every = rows.sum() <= FEW if names is None else names
    return (rows if every else rows & strong).nonzero()[0]


def draw_names(
    ax: Axes,
    results: Results,
    x: Column,
    y: Column,
    *,
    named: Iterable[int],
    axis: str | None = None,
    bounds: Any = None,
) -> None:
    """Names beside these points, without overlap, and a word about those for which there is no room."""
    rows = np.array(list(named), dtype=np.int64)
    everything = np.isfinite(x.value) & np.isfinite(y.value)
    places, bars = [], []
    for column, bound in zip((x, y), bounds or (None, None), strict=True):
        place, (down, up) = _places(column, everything, axis, bound)
        places.append(place)
        bars += [place - down, place + up]
    order = {int(row): i for i, row in enumerate(everything.nonzero()[0])}
    labels = [(results.points[row].label, order[int(row)]) for row in rows]
    # In a crowd no name could keep clear of every bar.
    unplaced = place_labels(
        ax, np.column_stack(places), labels, np.column_stack(bars) if everything.sum() <= CROWD else None
    )
    if unplaced:
        click.echo(f"{unplaced} of {len(labels)} names have no room", err=True)
