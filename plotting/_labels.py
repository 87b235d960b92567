"""Names beside points: each takes the nearest free place around its point, a thin line leading there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = 7.5  # points
_RADII = (7, 11, 16, 22, 29, 37)  # from the point, in points
_FAR = (*_RADII, 50, 66, 84, 104, 126)  # for a few names, which must be found
_FEW = 25
_ANGLES = np.deg2rad([20, 160, -20, -160, 55, 125, -55, -125, 90, -90, 0, 180])
Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels


def place_labels(
    ax: Axes, points: np.ndarray, labels: Sequence[tuple[str, int]], bars: np.ndarray | None = None
) -> int:
    """Write (text, index of its point) beside the points; returns how many found no free place.

    `points` are all points of the figure, in data coordinates: names keep clear of every one, and of `bars`, the
    left, right, lower and upper end of each point's intervals.
    """
    figure = ax.figure
    figure.canvas.draw()  # settles where the axes stand
    pixels = ax.transData.transform(points)
    window = ax.get_window_extent()
    inside: Box = (window.x0, window.y0, window.x1, window.y1)
    unit = figure.dpi / 72
    avoided = (
        pixels if bars is None else np.concatenate([pixels, *(ax.transData.transform(b) for b in _along(points, bars))])
    )
    taken: list[Box] = []
    unplaced = 0
    for text, index in sorted(labels, key=lambda label: -pixels[label[1]][1]):
        width, height = (0.56 * SIZE * len(text) + 2) * unit, 1.25 * SIZE * unit
        for box in _boxes(pixels[index], width, height, unit, _FAR if len(labels) <= _FEW else _RADII):
            if _within(box, inside) and not any(_overlap(box, other) for other in taken) and not _hits(box, avoided):
                _write(ax, text, pixels[index], box, unit)
                taken.append(box)
                break
        else:
            unplaced += 1
    return unplaced


def _boxes(point: np.ndarray, width: float, height: float, unit: float, radii: Sequence[float]) -> Iterator[Box]:
    """Places around a point, near ones first."""
    for radius in radii:
        for angle in _ANGLES:
            across, up = np.cos(angle), np.sin(angle)
            x, y = point[0] + radius * unit * across, point[1] + radius * unit * up
            left = x - width / 2 + across * width / 2
            yield left, y - height / 2, left + width, y + height / 2


def _along(points: np.ndarray, bars: np.ndarray) -> Iterator[np.ndarray]:
    """Places on the bars of all points, near enough to each other that no name fits between."""
    for share in np.linspace(0, 1, 25):
        across, up = points.copy(), points.copy()
        across[:, 0] = bars[:, 0] + share * (bars[:, 1] - bars[:, 0])
        up[:, 1] = bars[:, 2] + share * (bars[:, 3] - bars[:, 2])
        yield across
        yield up


def _within(box: Box, outer: Box) -> bool:
    return box[0] >= outer[0] and box[1] >= outer[1] and box[2] <= outer[2] and box[3] <= outer[3]


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _hits(box: Box, pixels: np.ndarray, room: float = 3.0) -> bool:
    x, y = pixels[:, 0], pixels[:, 1]
    return bool(((x > box[0] - room) & (x < box[2] + room) & (y > box[1] - room) & (y < box[3] + room)).any())


def _write(ax: Axes, text: str, point: np.ndarray, box: Box, unit: float) -> None:
    from matplotlib.patheffects import withStroke

    middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
    offset = ((middle[0] - point[0]) / unit, (middle[1] - point[1]) / unit)
    written = ax.annotate(
        text,
        ax.transData.inverted().transform(point),
        xytext=offset,
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=SIZE,
        color="0.15",
        zorder=6,
        arrowprops=dict(arrowstyle="-", color="0.35", linewidth=0.7, shrinkA=0, shrinkB=2),
    )
    written.set_path_effects([withStroke(linewidth=2, foreground="white", alpha=0.8)])
    written.set_in_layout(False)  # the axes must stay where the place was found
