"""ImageNet-P: flip rates and top-5 distances of sequences known by their paths."""

from itertools import pairwise

import numpy as np
import pytest

from testbed.metrics.sequences import FlipRate, sequences, top5_distance


def logits_of(predictions, classes=8):
    """Logits whose highest is the prediction; the others fall with the class number."""
    logits = np.tile(-np.arange(classes, dtype=np.float32), (len(predictions), 1))
    logits[np.arange(len(predictions)), predictions] = 5
    return logits


PATHS = [f"n01440764/a/{i:03d}.jpg" for i in range(1, 5)] + [f"n01440764/b/{i}.jpg" for i in (9, 10, 11)]


def test_frames_are_held_against_the_one_before_and_noise_against_the_first():
    """By hand: a is 1 1 2 1, b is 3 3 3. Against the previous frame 2 of 3 flip, against the first 1 of 3."""
    logits = logits_of([1, 1, 2, 1, 3, 3, 3])
    assert FlipRate()(logits, PATHS)["flip_rate"].value == pytest.approx((200 / 3 + 0) / 2)
    first = FlipRate("first")(logits, PATHS)["flip_rate"]
    assert (first.value, first.n) == (pytest.approx((100 / 3 + 0) / 2), 2)


def test_frames_go_by_their_numbers_and_sequences_with_gaps_do_not_count():
    paths = ["w/a/10.jpg", "w/a/9.jpg", "w/b/1.jpg", "w/b/3.jpg", "w/c/1.jpg"]
    assert sequences(paths) == [[1, 0]]
    assert FlipRate()(logits_of([0, 1]), ["w/b/1.jpg", "w/b/3.jpg"]) == {}
    with pytest.raises(ValueError, match="expected a frame with a number in its name"):
        sequences(["w/a/frame.jpg"])


def published_distance(first, second, classes):
    """T5D as the paper defines it, from whole rankings: sigma is the rank in the second of each of the first."""
    sigma = [second.index(c) + 1 for c in first]
    return sum(
        sum(1 for j in range(min(i, sigma[i - 1]) + 1, max(i, sigma[i - 1]) + 1) if 1 <= j - 1 <= 5)
        for i in range(1, 6)
    )


def test_top5_distance_is_that_of_the_paper():
    """Hendrycks and Dietterich 2019, section 4: the places between i and sigma(i), up to the sixth, for i to 5."""
    rng = np.random.default_rng(0)
    rankings = [rng.permutation(12).tolist() for _ in range(20)]
    for first, second in pairwise(rankings):
        ours = top5_distance(np.array([first[:5]]), np.array([second[:5]]))
        assert ours.tolist() == [published_distance(first, second, 12)]
    same = np.arange(5)[None]
    assert top5_distance(same, same).tolist() == [0]
    assert top5_distance(same, same + 5).tolist() == [15]


def test_few_classes_have_no_top5_distance():
    assert set(FlipRate()(logits_of([0, 1], classes=3), ["a/1.jpg", "a/2.jpg"])) == {"flip_rate"}
