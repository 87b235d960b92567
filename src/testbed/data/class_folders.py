"""Labels of pictures by the folder each lies in, wherever the folders are: on disk or inside an archive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.data.labels import class_indices
from testbed.data.samples import UNKNOWN
from testbed.data.validation_names import by_name
from testbed.errors import DataError, EntryError

RULES = ("auto", "imagenet", "integer", "sorted", "none", "if-any")


@dataclass(frozen=True)
class Labelled:
    """Pictures with ids and labels, in the order of the ids; `order` are their places in the list that was given."""

    ids: list[str]
    order: list[int]
    targets: np.ndarray
    space: str = "own"  # as Samples.label_space
    num_classes: int | None = None
    folders_are_classes: bool = False


def check_rule(owner: str, rule: str) -> None:
    if rule not in RULES:
        raise EntryError(f"{owner}: labels must be {', '.join(RULES[:-1])} or {RULES[-1]}, got {rule!r}")


def labels_of(
    paths: Sequence[str], rule: str, classes: Mapping[str, int] | None, where: Path, folders: Iterable[str] = ()
) -> Labelled:
    """The labels of pictures at these paths, which are sorted, by a rule as of StandardDataset.

    where: the folder or archive. folders: those at its top, also empty ones.
    """
    flat = not any("/" in path for path in paths)
    if flat and classes is None and rule in ("auto", "imagenet", "if-any"):
        known = by_name(paths, where)
        if known is not None:
            order = sorted(range(len(paths)), key=known[0].__getitem__)
            ids = [known[0][place] for place in order]
            return Labelled(ids, order, known[1][order], "imagenet", 1000, folders_are_classes=True)
    order = list(range(len(paths)))
    if rule == "none" or (rule == "if-any" and flat):
        return Labelled(list(paths), order, np.full(len(paths), UNKNOWN, dtype=np.int64))
    first = [path.split("/", 1)[0] if "/" in path else "" for path in paths]
    if classes is not None:
        targets = np.array([classes[name] for name in first], dtype=np.int64)
        return Labelled(list(paths), order, targets, folders_are_classes=bool((targets >= 0).any()))
    if "" in first:
        raise _without_folder(paths, first, where)
    indices, space, num_classes = class_indices(first, "auto" if rule == "if-any" else rule, str(where))
    empty = {name for name in folders if not name.startswith(".")} - set(first)
    if empty and space == "own" and num_classes is not None:  # sorted names: leaving one out moves the others
        raise DataError(f"{where}: the class folder {min(empty)} holds no images, so that labels would shift")
    targets = np.array([indices[name] for name in first], dtype=np.int64)
    return Labelled(list(paths), order, targets, space, num_classes, folders_are_classes=True)


def _without_folder(paths: Sequence[str], first: Sequence[str], where: Path) -> DataError:
    stray = paths[first.index("")]
    if any(first):
        return DataError(f"{where}: expected images inside class folders, got {stray} beside them")
    return DataError(
        f"{where}: expected one folder per class, got {len(paths)} pictures without any: list them with labels in a "
        'CSV (manifest:FILE.csv), or declare labels="none" and a metrics_fn with image_paths'
    )
