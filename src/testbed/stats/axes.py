"""The scales on which accuracies are plotted and fitted: percent to logit, probit or linear positions, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

AXES = ("logit", "probit", "linear")


def to_axis(percent: ArrayLike, axis: str = "logit", clip: float | None = None) -> np.ndarray:
    """Positions of percentages on an axis: logit(p), probit(p) or p itself, with p = percent / 100.

    0 and 100 are infinite on a logit or probit axis and raise an error. With `clip`, in percentage points, all values
    are first moved into [clip, 100 - clip]; half an image, 50 / n, is a usual choice. NaN stays NaN.
    """
    check_axis(axis)
    values = np.asarray(percent, dtype=np.float64)
    # Comparisons with NaN are false, so missing values pass.
    if (values < 0).any() or (values > 100).any():
        low, high = np.nanmin(values), np.nanmax(values)
        raise ValueError(f"expected percentages from 0 to 100, got values from {low:g} to {high:g}")
    if clip is not None:
        if not 0 < clip < 50:
            raise ValueError(f"expected clip above 0 and below 50 percentage points, got {clip}")
        values = np.clip(values, clip, 100 - clip)
    fraction = values / 100
    if axis == "linear":
        return fraction
    edges = values[(values == 0) | (values == 100)]
    if edges.size:
        raise ValueError(
            f"expected percentages strictly between 0 and 100 on the {axis} axis, got {edges[0]:g} "
            f"({edges.size} of {values.size} values at 0 or 100); clip=... pulls them inside"
        )
    # Imported late, like all of scipy here: a linear axis needs none of it.
    from scipy.special import logit, ndtri

    return logit(fraction) if axis == "logit" else ndtri(fraction)


def from_axis(position: ArrayLike, axis: str = "logit") -> np.ndarray:
    """Percentages at positions of an axis: the inverse of to_axis."""
    check_axis(axis)
    values = np.asarray(position, dtype=np.float64)
    if axis == "linear":
        return 100 * values
    from scipy.special import expit, ndtr

    return 100 * (expit(values) if axis == "logit" else ndtr(values))


def axis_grid(low: float, high: float, axis: str = "logit", points: int = 200) -> np.ndarray:
    """Percentages from low to high whose positions on the axis are evenly spaced."""
    start, stop = to_axis([low, high], axis)
    return from_axis(np.linspace(start, stop, points), axis)


def check_axis(axis: str) -> None:
    """Raise an error for an unknown axis."""
    if axis not in AXES:
        raise ValueError(f"expected an axis among {', '.join(AXES)}, got {axis!r}")
