"""Finding image sets in the folders of the AutoEval benchmarks, as they were published.

ROOT/train_data/new_data_000.npy, 001, ... beside one labels.npy; ROOT/<group>/<set>/data.npy and labels.npy. A set
goes by its path without `.npy`, so that the folder it lies in is its group.
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
    """The images of one set. Touches no disk; where there is no labels.npy the set opens without labels."""
    place = PurePath(path)
    if place.name.startswith(_NUMBERED):
        return ArrayDataset(path=str(place.parent), files=(f"{place.name}.npy", "labels.npy"))
    return ArrayDataset(path=path)


def group_of(path: str) -> str:
    """The folder that a set lies in."""
    return PurePath(path).parent.name


def find_sets(text: str) -> tuple[list[str], list[str]]:
    """The sets that a path stands for (a set, a group, a root, or a glob), and what lies among them and is none."""
    path = os.path.normpath(os.path.expanduser(text))
    parts = PurePath(path).parts
    plain = next((i for i, part in enumerate(parts) if any(c in part for c in "*?[")), len(parts))
    folder = Path(*parts[:plain])
    if plain == len(parts) and Path(f"{path}.npy").is_file():
        return [path], []
    found, strays = _below(folder, _DEEPEST) if folder.is_dir() else ([], [])
    if plain < len(parts):
        found, strays = [s for s in found if fnmatchcase(s, path)], []
    if not found:
        raise DataError(
            f"no image sets at {path}: expected <group>/<set>/data.npy with labels.npy, or "
            f"<group>/{_NUMBERED}000.npy, ... with one labels.npy"
        )
    return found, strays


def _below(folder: Path, depth: int) -> tuple[list[str], list[str]]:
    if (folder / "data.npy").is_file():
        return [str(folder)], []
    found: list[str] = []
    strays: list[str] = []
    for entry in sorted(folder.iterdir()):
        if entry.is_file() and entry.suffix == ".npy" and entry.name.startswith(_NUMBERED):
            found.append(str(entry.with_suffix("")))
        elif entry.is_dir() and depth > 0:
            deeper, beside = _below(entry, depth - 1)
            found += deeper
            strays += beside if deeper else [str(entry)]
        elif entry.name != "labels.npy":
            strays.append(str(entry))
    return found, strays
