"""Does a model look at the object, or at what often stands beside it? Watermarks, spurious features, edits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from testbed.metrics.classification import classification
from testbed.metrics.estimate import Estimate, share
from testbed.stats.intervals import mean_interval

CARTON = 478  # the class whose training pictures often carry a watermark


def probability(logits: np.ndarray, column: int | np.ndarray) -> np.ndarray:
    """The softmax of one column, or of one column per row."""
    z = np.asarray(logits, dtype=np.float64)
    highest = z.max(axis=1)
    total = highest + np.log(np.exp(z - highest[:, None]).sum(axis=1))
    return np.exp(z[np.arange(len(z)), column] - total)


def mean_over(values: Sequence[float] | np.ndarray) -> Estimate:
    """The mean of percentages that are taken as drawn at random."""
    mean, low, high = mean_interval(np.asarray(values))
    if len(values) < 2:
        return Estimate(mean, n=len(values))
    return Estimate(mean, max(low, 0.0), min(high, 100.0), len(values))


# ---- ImageNet-W ------------------------------------------------------------------------------------------


def carton(logits: np.ndarray, targets: np.ndarray) -> dict[str, Estimate]:
    """metrics_fn: accuracy, top1_carton on pictures of cartons, and p_carton, the mean probability of that class."""
    result = classification(logits, targets)
    if not result:
        return {}
    own = targets == CARTON
    if own.any():
        right = logits[own].argmax(axis=1) == CARTON
        result["top1_carton"] = share(int(right.sum()), int(own.sum()))
    return result | {"p_carton": mean_over(100 * probability(logits, CARTON))}


carton.columns_are_classes = True  # type: ignore[attr-defined]

# ---- Spurious ImageNet -----------------------------------------------------------------------------------


def class_of_feature(image_paths: Sequence[str]) -> np.ndarray:
    """The class whose spurious feature a picture shows: the third word of its folder's name, as published."""
    folders = [str(path).split("/")[-2] if "/" in str(path) else "" for path in image_paths]
    try:
        return np.array([int(folder.split("_")[2]) for folder in folders], dtype=np.int64)
    except (IndexError, ValueError):
        raise ValueError(
            f"expected folders whose third word is a class number, such as class_1_17_component_3, got {folders[0]!r}"
        ) from None


def spurious_feature(logits: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
    """metrics_fn: how often, and with what mean probability, pictures are taken for a class that is not in them."""
    of_class = class_of_feature(image_paths)
    taken = np.asarray(logits).argmax(axis=1) == of_class
    return {
        "taken_for_class": share(int(taken.sum()), len(taken)),
        "p_class": mean_over(100 * probability(logits, of_class)),
    }


# ---- ImageNet-E ------------------------------------------------------------------------------------------


def accuracy_by_folder(logits: np.ndarray, targets: np.ndarray, image_paths: Sequence[str]) -> dict[str, Estimate]:
    """metrics_fn: top1 over all edited pictures and in each folder of edits; `ori` holds the pictures as they were."""
    folders = np.array([str(path).split("/")[0] for path in image_paths])
    right = np.asarray(logits).argmax(axis=1) == targets
    edited = folders != "ori"
    result = {"top1": share(int(right[edited].sum()), int(edited.sum()))} if edited.any() else {}
    for folder in dict.fromkeys(folders.tolist()):
        own = folders == folder
        result[f"top1.{folder}"] = share(int(right[own].sum()), int(own.sum()))
    return result


accuracy_by_folder.columns_are_classes = True  # type: ignore[attr-defined]
