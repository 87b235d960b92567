"""Finds image sets in the folders of the AutoEval benchmarks, in their published layout, at any depth.

    ROOT/train_data/new_data_000.npy, new_data_001.npy, ... with one labels.npy for all
    ROOT/<group>/<set>/data.npy and labels.npy

A set is named by its path without `.npy`. Its group is the folder it lies in; a folder of the CIFAR family that is a
set itself (cifar-10.1/data.npy) is a group of its own.
"""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from testbed.data.arrays import ArrayDataset
from testbed.errors import DataError

_NUMBERED = "new_data_"
# cifar-10.1, CIFAR-10.1-C, cifar10-f-32: a benchmark, not CIFAR-10 itself nor a folder named after it.
_BENCHMARK = re.compile(r"cifar[-_ ]?100?[-_.](?!batches|python|binary).+", re.IGNORECASE)


def dataset_of(path: str) -> ArrayDataset:
    """The dataset at the path of a set. Touches no disk; without a labels.npy the set opens without labels."""
    place = PurePath(path)
    if is_numbered(path):
        return ArrayDataset(path=str(place.parent), files=(f"{place.name}.npy", "labels.npy"))
    return ArrayDataset(path=path)


def is_numbered(path: str) -> bool:
    """Whether a set is one of the many with common labels, which lines are fitted on."""
    return PurePath(path).name.startswith(_NUMBERED)


def group_folder(path: str, named_by_itself: bool = False) -> str:
    """The path of the folder whose name is a set's group: its parent, or its own.

    A set that was named by itself, and not with others, is its own group.
    """
    place = PurePath(path)
    if is_numbered(path) or _BENCHMARK.fullmatch(place.parent.name):
        return str(place.parent)
    return str(place if named_by_itself or _BENCHMARK.fullmatch(place.name) else place.parent)


def group_of(path: str, named_by_itself: bool = False) -> str:
    """The name of a set's group."""
    return PurePath(group_folder(path, named_by_itself)).name


def find_sets(text: str) -> tuple[list[str], list[str]]:
    """The paths of the sets that `text` names, and of files and folders among them that are no sets (strays).

    `text` is the path of a set, a group or a root, or a glob. A glob has no strays: what it leaves out was not asked
    for. Raises DataError where there is no set.
    """
    path = os.path.normpath(os.path.expanduser(text))
    parts = PurePath(path).parts
    n_plain = next((i for i, part in enumerate(parts) if any(c in part for c in "*?[")), len(parts))
    folder = Path(*parts[:n_plain])
    if n_plain == len(parts) and Path(f"{path}.npy").is_file():
        return [path], []
    sets, strays = _below(folder, set()) if folder.is_dir() else ([], [])
    if n_plain < len(parts):
        sets, strays = [s for s in sets if fnmatchcase(s, path)], []
    if not sets:
        raise DataError(
            f"no image sets at {path}: expected <group>/<set>/data.npy with labels.npy, or "
            f"<group>/{_NUMBERED}000.npy, ... with one labels.npy"
        )
    return sets, strays


def _below(folder: Path, seen: set[str]) -> tuple[list[str], list[str]]:
    """Sets and strays in a folder and all below it. `seen` are folders above: a link to one of them is not followed."""
    if (folder / "data.npy").is_file():
        return [str(folder)], []
    sets: list[str] = []
    strays: list[str] = []
    seen = {*seen, os.path.realpath(folder)}
    try:
        entries = sorted(folder.iterdir())
    except PermissionError:
        return [], []  # whoever asked finds it among the strays
    for entry in entries:
        if entry.is_file() and entry.suffix == ".npy" and entry.name.startswith(_NUMBERED):
            sets.append(str(entry.with_suffix("")))
        elif entry.is_dir() and os.path.realpath(entry) not in seen:
            deeper_sets, deeper_strays = _below(entry, seen)
            sets += deeper_sets
            # A folder without any set is a single stray, instead of one for each of its files.
            strays += deeper_strays if deeper_sets else [str(entry)]
        elif entry.name != "labels.npy":
            strays.append(str(entry))
    return sets, strays
