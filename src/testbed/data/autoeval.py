"""Finds image sets in the folders of the AutoEval benchmarks, in their published layout.

    ROOT/train_data/new_data_000.npy, new_data_001.npy, ... with one labels.npy for all
    ROOT/<group>/<set>/data.npy and labels.npy

A set is named by its path without `.npy`; its parent folder is its group.
"""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from testbed.data.arrays import ArrayDataset
from testbed.errors import DataError

_NUMBERED = "new_data_"
_DEEPEST = 2  # group, set


def dataset_of(path: str) -> ArrayDataset:
    """The dataset at the path of a set. Touches no disk; without a labels.npy the set opens without labels."""
    place = PurePath(path)
    if place.name.startswith(_NUMBERED):
        return ArrayDataset(path=str(place.parent), files=(f"{place.name}.npy", "labels.npy"))
    return ArrayDataset(path=path)


def group_of(path: str) -> str:
    """The name of a set's parent folder."""
    return PurePath(path).parent.name


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
    sets, strays = _below(folder, _DEEPEST) if folder.is_dir() else ([], [])
    if n_plain < len(parts):
        sets, strays = [s for s in sets if fnmatchcase(s, path)], []
    if not sets:
        raise DataError(
            f"no image sets at {path}: expected <group>/<set>/data.npy with labels.npy, or "
            f"<group>/{_NUMBERED}000.npy, ... with one labels.npy"
        )
    return sets, strays


def _below(folder: Path, depth: int) -> tuple[list[str], list[str]]:
    """Sets and strays in a folder and its subfolders, down to `depth` levels."""
    if (folder / "data.npy").is_file():
        return [str(folder)], []
    sets: list[str] = []
    strays: list[str] = []
    for entry in sorted(folder.iterdir()):
        if entry.is_file() and entry.suffix == ".npy" and entry.name.startswith(_NUMBERED):
            sets.append(str(entry.with_suffix("")))
        elif entry.is_dir() and depth > 0:
            deeper_sets, deeper_strays = _below(entry, depth - 1)
            sets += deeper_sets
            # A folder without any set is a single stray, instead of one for each of its files.
            strays += deeper_strays if deeper_sets else [str(entry)]
        elif entry.name != "labels.npy":
            strays.append(str(entry))
    return sets, strays
