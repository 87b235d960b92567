"""Stability over similar frames: accuracy on the worst neighbour (pm-k) and flip rates (ImageNet-P)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.metrics.class_groups import Groups, merge
from testbed.metrics.estimate import ERROR, LOWER, Estimate, MetricKind, mean_estimate, mean_of_estimates, share
from testbed.metrics.labels import OWN

FLIP_RATE = ERROR
TOP5_DISTANCE = MetricKind("", LOWER, 0.0, 15.0)  # summed changes of rank of the five best classes
RELATIVE_FLIP_RATE = MetricKind("%", LOWER, 0.0)  # 100 is the baseline model; there is no upper limit

_NUMBER = re.compile(r"(\d+)\D*$")  # the last number of a file's name


def pm_accuracy(
    correct: np.ndarray, anchors: Sequence[int], neighbours: Sequence[Sequence[int]], k: int = 10
) -> dict[str, Estimate]:
    """pm0: the share of correct anchors. pm<k>: of anchors that are correct with all neighbours (Shankar et al. 2019).

    `correct` has one value per frame; `neighbours` are the similar frames around each anchor, and may be empty.
    """
    if len(anchors) != len(neighbours):
        raise ValueError(f"pm_accuracy: expected neighbours of {len(anchors)} anchors, got {len(neighbours)}")
    if not len(anchors):
        return {}
    benign = [bool(correct[a]) for a in anchors]
    worst = [right and all(correct[i] for i in near) for right, near in zip(benign, neighbours, strict=True)]
    return {"pm0": share(sum(benign), len(anchors)), f"pm{k}": share(sum(worst), len(anchors))}


@dataclass(frozen=True)
class Frames:
    """Annotations: the groups that are right for each frame, and the neighbours of each anchor."""

    labels: Mapping[str, Collection[int]]
    neighbours: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class FrameAccuracy:
    """metrics_fn: pm0 and pm10. Frames are identified by the last two parts of their paths.

    `frames` is a function of the paths, so that annotations are read only when they are needed. In a limited run,
    anchors and neighbours that were not run do not count.
    """

    groups: Groups
    frames: Callable[[Sequence[str]], Frames]
    targets_are = OWN

    def __call__(self, logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        predicted = merge(logits, self.groups).argmax(axis=1)
        known = self.frames(image_paths)
        row = {frame_name(path): i for i, path in enumerate(image_paths)}
        correct = np.zeros(len(logits), dtype=bool)
        for frame, i in row.items():
            correct[i] = int(predicted[i]) in known.labels.get(frame, ())
        anchors = [a for a in known.neighbours if a in row]
        near = [[row[f] for f in known.neighbours[a] if f in row] for a in anchors]
        return pm_accuracy(correct, [row[a] for a in anchors], near)


def frame_name(path: str) -> str:
    """<clip>/<frame>, without the folders above."""
    return "/".join(str(path).split("/")[-2:])


# ---- ImageNet-P ------------------------------------------------------------------------------------------


def flip_rate(predictions: np.ndarray, against: str = "previous") -> Estimate:
    """The share of frames, in percent, whose prediction changes (Hendrycks and Dietterich 2019).

    `predictions` is (sequences, frames). A frame is compared with the previous one or, for noise, whose frames are
    independent draws, with the first. The interval treats sequences as independent.
    """
    if predictions.ndim != 2 or predictions.shape[1] < 2:
        raise ValueError(f"flip_rate: expected (sequences, at least 2 frames), got {predictions.shape}")
    if against not in ("previous", "first"):
        raise ValueError(f"flip_rate: expected against to be previous or first, got {against!r}")
    other = predictions[:, :-1] if against == "previous" else predictions[:, :1]
    return mean_estimate(100.0 * (predictions[:, 1:] != other).mean(axis=1), FLIP_RATE)


def top5_distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """T5D (Hendrycks and Dietterich 2019): how far the five best classes of a frame move in the ranking of another.

    Both arrays are (frames, 5), the best class first. Each class of `first` adds its change of rank; all ranks from the
    sixth on count as the sixth. 0 means equal lists, 15 lists without a common class.
    """
    same = first[:, :, None] == second[:, None, :]
    place = np.where(same.any(axis=2), same.argmax(axis=2), 5)
    return np.abs(place - np.arange(5)).sum(axis=1)


@dataclass(frozen=True)
class FlipRate:
    """metrics_fn: flip_rate in percent and t5d. A sequence is a folder of frames with numbers in their names.

    Sequences with missing frames, as in a limited run, do not count.
    """

    against: str = "previous"

    def __call__(self, logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
        rates: list[float] = []
        distances: list[float] = []
        for rows in sequences(image_paths):
            best = _five_best(np.asarray(logits[rows]))
            rates.append(flip_rate(best[None, :, 0], self.against).value)
            other = best[:-1] if self.against == "previous" else np.repeat(best[:1], len(best) - 1, axis=0)
            if best.shape[1] == 5:
                distances.append(float(top5_distance(other, best[1:]).mean()))
        result = {"flip_rate": mean_estimate(rates, FLIP_RATE)} if rates else {}
        return result | ({"t5d": mean_estimate(distances, TOP5_DISTANCE)} if distances else {})


def sequences(image_paths: Sequence[str]) -> list[list[int]]:
    """The rows of each folder, in the order of frame numbers; folders with missing numbers are left out."""
    folders: dict[str, list[tuple[int, int]]] = {}
    for row, path in enumerate(image_paths):
        folder, _, name = str(path).rpartition("/")
        number = _NUMBER.search(name.rpartition(".")[0])
        if number is None:
            raise ValueError(f"expected a frame with a number in its name, such as 0007.jpg, got {path}")
        folders.setdefault(folder, []).append((int(number[1]), row))
    ordered = (sorted(frames) for frames in folders.values())
    return [[row for _, row in f] for f in ordered if len(f) > 1 and f[-1][0] - f[0][0] == len(f) - 1]


def _five_best(logits: np.ndarray) -> np.ndarray:
    """The five classes with the highest logits, best first; of equal logits the lower class first, as in argmax."""
    most = min(5, logits.shape[1])
    return np.argsort(-logits, axis=1, kind="stable")[:, :most]


def mean_flip_rate(rates: Mapping[str, Estimate], baseline: Mapping[str, float]) -> Estimate:
    """mFR in percent: the mean over perturbations of the flip rate divided by the baseline's (AlexNet's).

    The interval is the mean of the ends, which is never too narrow although perturbations share pictures.
    """
    missing = sorted(set(rates) - set(baseline))
    if missing or not rates:
        raise ValueError(f"mean_flip_rate: expected a baseline for every perturbation, none for {missing or 'any'}")
    return mean_of_estimates(
        [rate.scaled(100 / baseline[name], RELATIVE_FLIP_RATE) for name, rate in rates.items()], RELATIVE_FLIP_RATE
    )
