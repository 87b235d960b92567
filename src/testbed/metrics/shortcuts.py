"""Reliance on shortcuts: watermarks (ImageNet-W), spurious features, edited surroundings (ImageNet-E)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.metrics.accuracy import right_or_wrong
from testbed.metrics.classification import classification
from testbed.metrics.estimate import ERROR, SHARE, Estimate, mean_estimate, share
from testbed.metrics.labels import COLUMNS, targets_are
from testbed.metrics.softmax import log_sum_exp

CARTON = 478  # the class whose training pictures often have a watermark


def probability(logits: np.ndarray, column: int | np.ndarray) -> np.ndarray:
    """The softmax probability of one column, or of one column for each row."""
    chosen = np.asarray(logits[np.arange(len(logits)), column], dtype=np.float64)
    return np.exp(chosen - log_sum_exp(logits))


# ---- ImageNet-W ------------------------------------------------------------------------------------------


@targets_are(COLUMNS)
def carton(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn: accuracy, top1_carton on pictures of cartons, and p_carton, the mean probability of that class.

    The last two have no better direction, since a watermark raises both: their gaps to clean pictures are the result.
    """
    result = classification(logits, targets)
    if not result:
        return {}
    own = targets == CARTON
    if own.any():
        right = logits[own].argmax(axis=1) == CARTON
        result["top1_carton"] = share(int(right.sum()), int(own.sum()), SHARE)
    return result | {"p_carton": mean_estimate(100 * probability(logits, CARTON), SHARE)}


def _carton_per_image(logits: np.ndarray, targets: np.ndarray) -> dict[str, np.ndarray]:
    predicted = np.asarray(logits).argmax(axis=1)
    return {
        "top1": right_or_wrong(predicted == targets, targets),
        "top1_carton": np.where(targets == CARTON, 100.0 * (predicted == CARTON), np.nan),
        "p_carton": 100 * probability(logits, CARTON),
    }


carton.per_image = _carton_per_image  # type: ignore[attr-defined]


# ---- Spurious ImageNet -----------------------------------------------------------------------------------


def class_of_feature(image_paths: Sequence[str]) -> np.ndarray:
    """The class whose spurious feature a picture shows: the third word of its folder's name, as distributed."""
    folders = [str(path).split("/")[-2] if "/" in str(path) else "" for path in image_paths]
    try:
        return np.array([int(folder.split("_")[2]) for folder in folders], dtype=np.int64)
    except (IndexError, ValueError):
        raise ValueError(
            f"expected folders whose third word is a class number, such as class_1_17_component_3, got {folders[0]!r}"
        ) from None


def spurious_feature(logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
    """metrics_fn: how often, and with what mean probability, pictures are classified as the class of their feature."""
    of_class = class_of_feature(image_paths)
    predicted_as_class = np.asarray(logits).argmax(axis=1) == of_class
    return {
        "taken_for_class": share(int(predicted_as_class.sum()), len(predicted_as_class), ERROR),
        "p_class": mean_estimate(100 * probability(logits, of_class), ERROR),
    }


# ---- ImageNet-E ------------------------------------------------------------------------------------------


@targets_are(COLUMNS)
def accuracy_by_folder(logits: np.ndarray, targets: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
    """metrics_fn: top1 over all edited pictures, and in each folder; `ori` is the folder of unedited pictures."""
    folders = np.array([str(path).split("/")[0] for path in image_paths])
    right = np.asarray(logits).argmax(axis=1) == targets
    edited = folders != "ori"
    result = {"top1": share(int(right[edited].sum()), int(edited.sum()))} if edited.any() else {}
    for folder in dict.fromkeys(folders.tolist()):
        own = folders == folder
        result[f"top1.{folder}"] = share(int(right[own].sum()), int(own.sum()))
    return result
