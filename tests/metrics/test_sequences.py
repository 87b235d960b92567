"""pm-k and flip rates, worked by hand."""

import numpy as np
import pytest

from testbed.metrics.estimate import Estimate
from testbed.metrics.sequences import (
    RELATIVE_FLIP_RATE,
    FlipRate,
    FrameAccuracy,
    Frames,
    flip_rate,
    mean_flip_rate,
    pm_accuracy,
)


def test_an_anchor_counts_at_pm10_only_with_all_its_neighbours():
    correct = np.array([1, 1, 0, 1, 1, 0], dtype=bool)
    found = pm_accuracy(correct, [0, 3, 4, 5], [[1], [1, 2], [], [0]])
    assert found["pm0"].value == 75
    assert found["pm10"].value == 50  # the first, and the one without neighbours
    assert found["pm10"].n == 4


def test_frames_are_scored_against_their_own_labels():
    frames = Frames(
        labels={"v/1.jpg": (0,), "v/2.jpg": (0, 1), "w/1.jpg": (1,), "w/2.jpg": (0,)},
        neighbours={"v/1.jpg": ["v/2.jpg"], "w/1.jpg": ["w/2.jpg"], "x/1.jpg": []},
    )
    logits = np.array([[2.0, 0, 1], [0, 1, 2], [0, 1, 2], [0, 3, 2]])  # groups 0 1 1 1
    metric = FrameAccuracy(((0,), (1, 2)), lambda paths: frames)
    found = metric(logits, ["val/v/1.jpg", "val/v/2.jpg", "val/w/1.jpg", "val/w/2.jpg"])
    assert found["pm0"].value == 100
    assert found["pm10"].value == 50
    assert found["pm0"].n == 2  # the third anchor was not run


def test_flip_rate_against_the_previous_and_the_first_frame():
    predictions = np.array([[1, 2, 2, 1], [3, 3, 3, 3]])
    assert flip_rate(predictions).value == pytest.approx(100 * (2 / 3) / 2)
    assert flip_rate(predictions, "first").value == pytest.approx(100 * (2 / 3) / 2)
    assert flip_rate(np.array([[1, 2, 1, 2]]), "first").value == pytest.approx(200 / 3)
    with pytest.raises(ValueError, match="at least 2 frames"):
        flip_rate(predictions[:, :1])


def test_mean_flip_rate_is_relative_to_the_baseline():
    rates = {"snow": Estimate(10, 8, 12), "tilt": Estimate(5, 4, 6)}
    assert mean_flip_rate(rates, {"snow": 20, "tilt": 5}) == Estimate(75, 60, 90, kind=RELATIVE_FLIP_RATE)
    with pytest.raises(ValueError, match=r"none for \['tilt'\]"):
        mean_flip_rate(rates, {"snow": 20})


def test_flips_and_rank_changes_against_the_frame_before_or_the_first():
    """Best classes 0, 1, 1, 0. Before: flips at 2 of 3 frames; against the first: at the middle 2 of 3 frames."""
    ranks = np.array([[5, 4, 3, 2, 1, 0], [4, 5, 3, 2, 1, 0], [4, 5, 3, 2, 1, 0], [5, 4, 3, 1, 2, 0]], dtype=float)
    paths = [f"v/{i}.jpg" for i in range(4)]
    before, first = FlipRate()(ranks, paths), FlipRate("first")(ranks, paths)
    assert before["flip_rate"].value == first["flip_rate"].value == pytest.approx(200 / 3)
    # Two neighbouring ranks change places: 1 + 1. Against the frame before: 2, 0, 4; against the first: 2, 2, 2.
    assert (before["t5d"].value, first["t5d"].value) == pytest.approx((2, 2))
    ranks[2] = ranks[3]
    before, first = FlipRate()(ranks, paths), FlipRate("first")(ranks, paths)
    assert (before["flip_rate"].value, first["flip_rate"].value) == pytest.approx((200 / 3, 100 / 3))
    assert (before["t5d"].value, first["t5d"].value) == pytest.approx((2, 2))


def test_top_five_without_a_common_class_are_as_far_apart_as_can_be():
    """Ranks 1 to 5 become the sixth: 5 + 4 + 3 + 2 + 1."""
    best_last = np.arange(10.0)
    found = FlipRate()(np.stack([best_last, best_last[::-1]]), ["v/0.jpg", "v/1.jpg"])["t5d"]
    assert found.value == found.kind.highest == 15
