"""Pieces of the figures: ticks, limits, places for names, averages by name."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.stats.axes import to_axis

from . import conftest  # noqa: F401  (puts the scripts' folder on the path)


@pytest.mark.parametrize(
    ("low", "high", "axis", "expected"),
    [
        (54.4, 90.5, "logit", [60, 70, 80, 90]),
        (0.3, 91, "logit", [0.5, 1, 2, 5, 10, 20, 40, 60, 80, 90]),
        (0, 100, "linear", [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]),
    ],
)
def test_ticks_are_round(low, high, axis, expected):
    from _drawing import percent_ticks

    ticks = percent_ticks(low, high, axis)
    assert set(ticks) <= set(expected) | {55, 65, 75, 85, 30, 50, 70}
    assert len(ticks) >= 4


@pytest.mark.parametrize("axis", ["logit", "probit", "linear"])
@pytest.mark.parametrize(("low", "high"), [(0.05, 99.95), (40, 95), (96.1, 99.2), (75.2, 75.9), (1, 3)])
def test_every_axis_has_ticks_that_do_not_crowd(low, high, axis):
    from _drawing import percent_ticks

    ticks = percent_ticks(low, high, axis)
    places = (to_axis(ticks, axis) - to_axis(low, axis)) / (to_axis(high, axis) - to_axis(low, axis))
    assert 3 <= len(ticks) <= 12
    assert np.diff(places).min() >= 0.09
    assert low <= min(ticks) and max(ticks) <= high


def test_limits_hold_all_values_and_0_and_100_stand_beyond_the_rest():
    from _drawing import limits

    low, high = limits(np.array([0.0, 2.0, 50.0, 100.0, np.nan]), axis="logit")
    assert 0 < low < 2
    assert 50 < high < 100
    assert limits(np.array([0.0, 100.0]), axis="linear") == (0, 100)


def test_names_cover_neither_each_other_nor_a_point():
    from _drawing import new_figure
    from _labels import place_labels

    rng = np.random.default_rng(3)
    points = rng.random((40, 2))
    figure, ax = new_figure()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.scatter(*points.T)
    unplaced = place_labels(ax, points, [(f"model_{i}", i) for i in range(40)])
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) + unplaced == 40
    assert len(boxes) > 25
    crossing = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if _core(a).overlaps(_core(b))]
    assert not crossing
    pixels = ax.transData.transform(points)
    assert not any(_core(box).contains(*pixel) for box in boxes for pixel in pixels)


def _core(box):
    """The box of an annotation without the reach of its leader line."""
    from matplotlib.transforms import Bbox

    return Bbox.from_extents(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a.b.1", {"a.b.1": 1}),
        ("a.b.*", {"a.b.1": 0.5, "a.b.2": 0.5}),
        ("val, a.b.2", {"val": 0.5, "a.b.2": 0.5}),
        ("val,*", {"val": 1 / 3, "a.b.1": 1 / 3, "a.b.2": 1 / 3}),
    ],
)
def test_globs_and_lists_mean_the_mean(expression, expected):
    from _settings import weights_of

    assert weights_of(expression, ["a.b.1", "a.b.2", "val"]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("setting", "family"),
    [
        ("imagenet-c.fog.3_on-disk", "imagenet-c.fog.[1-9]_on-disk"),
        ("digits.contrast.1", "digits.contrast.[1-9]"),
        ("pgd.l2.eps0.5", None),
        ("imagenetv2-threshold0.7", None),
        ("val", None),
    ],
)
def test_severities_are_told_by_the_name(setting, family):
    from _settings import without_severity

    assert without_severity(setting) == family


@pytest.mark.parametrize(
    ("shift", "reference"),
    [
        ("imagenet-a", "val-on-imagenet-a-classes"),
        ("imagenet-vid-robust_pm10", "imagenet-vid-robust_pm0"),
        ("imagenet-vid-robust_pm0", None),  # its reference has no results here
        ("digits.contrast.1", "digits"),
        ("imagenet-sketch", "val"),
        ("val", None),
        ("val-on-imagenet-a-classes", None),
    ],
)
def test_a_shift_is_held_against_the_same_classes_without_it(shift, reference):
    from _settings import reference_of

    known = ["val", "val-on-imagenet-a-classes", "digits", "imagenet-vid-robust_pm0"]
    expected = "val" if shift == "imagenet-vid-robust_pm0" else reference
    assert reference_of(shift, known) == expected


def test_a_type_is_the_first_known_tag():
    from _model_types import type_of

    assert type_of(["imagenet", "more_data"]) == "more_data"
    assert type_of(["robust", "standard"]) == "standard"
    assert type_of(["mine"]) == "other"
