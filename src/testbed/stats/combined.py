"""Intervals of weighted sums of estimates, from the interval of each and the correlations between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike


def combined_interval(
    weights: ArrayLike, values: ArrayLike, lows: ArrayLike, highs: ArrayLike, correlations: ArrayLike | None = None
) -> tuple[float, float]:
    """(low, high) of sum(weights * values): the sides of the intervals, added like correlated standard errors.

    This is MOVER (Zou and Donner 2008); of two paired shares it is Newcombe's method 10 (1998) without continuity
    correction. An unknown correlation (NaN, or None for all) is taken as 1 between terms of the same sign and as 0
    between terms of opposite sign. Outcomes on related images agree more often than not, so this is never too narrow.
    """
    w, v, low, high = (np.asarray(a, dtype=np.float64) for a in (weights, values, lows, highs))
    known = np.full((len(w), len(w)), np.nan) if correlations is None else np.asarray(correlations, dtype=np.float64)
    same_sign = (w > 0)[:, None] == (w > 0)
    r = np.where(np.isnan(known), same_sign.astype(np.float64), known)
    np.fill_diagonal(r, 1)
    # A term with a negative weight pulls the sum down by its upper side.
    down = w * np.where(w > 0, v - low, high - v)
    up = w * np.where(w > 0, high - v, v - low)
    value = float(w @ v)
    # A matrix with filled-in correlations may have a slightly negative form.
    below, above = (float(np.sqrt(max(float(side @ r @ side), 0.0))) for side in (down, up))
    return value - below, value + above


@dataclass(frozen=True, eq=False)
class PerImage:
    """One value for each image of a setting, such as right or wrong; images of two settings are matched by id."""

    ids: np.ndarray
    labels: np.ndarray
    values: np.ndarray


def image_correlations(settings: Sequence[PerImage | None]) -> np.ndarray:
    """(settings, settings) correlations of the mean values, which come from the images that two settings share.

    NaN where it is unknown: a setting without values, or whose values are all equal, and two settings without a shared
    id or with another label under the same id, which are not known to show the same images.
    """
    result = np.full((len(settings), len(settings)), np.nan)
    scaled: list[PerImage | None] = [_scaled(s) if s is not None else None for s in settings]
    for i, first in enumerate(scaled):
        result[i, i] = 1.0
        for j, second in enumerate(scaled[:i]):
            if first is not None and second is not None:
                result[i, j] = result[j, i] = _correlation(first, second)
    return result


def _scaled(setting: PerImage) -> PerImage | None:
    """Distances from the mean, in units in which their squares add up to 1; None if all are 0."""
    distance = np.asarray(setting.values, dtype=np.float64) - np.mean(setting.values)
    length = float(np.sqrt(distance @ distance))
    return PerImage(setting.ids, setting.labels, distance / length) if length > 1e-12 else None


def _correlation(first: PerImage, second: PerImage) -> float:
    same = first.ids is second.ids or np.array_equal(first.ids, second.ids)
    if same:
        agree, product = np.array_equal(first.labels, second.labels), float(first.values @ second.values)
        return product if agree else float("nan")
    _, of_first, of_second = np.intersect1d(first.ids, second.ids, return_indices=True)
    if not len(of_first) or not np.array_equal(first.labels[of_first], second.labels[of_second]):
        return float("nan")
    return float(first.values[of_first] @ second.values[of_second])
