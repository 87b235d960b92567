"""Where things are on disk: the folders of the program, those of its user, and datasets."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import DataError

DATA_VARIABLE = "TESTBED_DATA"
CARRIED = ("registry", "plotting")  # what setup.py puts into a wheel, as testbed/_registry and testbed/_plotting
_PACKAGE = Path(__file__).resolve().parents[1]


class MissingData(DataError):
    """A dataset is under none of the data roots."""


def clone() -> Path | None:
    """The clone that this package is part of; None where it was installed from a wheel."""
    return None if _carried("registry").is_dir() else _PACKAGE.parents[1]


def home(name: str) -> Path:
    """Where the folder of that name is.

    `registry` and `plotting` come with the program: beside `src` in a clone, inside the package in a wheel. `data` and
    `results` are the user's: those of the working directory, or of the clone if there are none and one of its scripts
    is run, wherever it is called from: `cd plotting && python grid.py`.
    """
    project = clone()
    if name in CARRIED:
        return project / name if project else _carried(name)
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    of_project = project and script and Path(script).resolve().parent in (project, project / "plotting")
    if not project or not of_project or Path(name).is_dir() or Path.cwd() == project:
        return Path(name)
    return project / name


def _carried(name: str) -> Path:
    return _PACKAGE / f"_{name}"


def data_roots(given: Sequence[str] | None = None) -> list[Path]:
    """The given folders (--data-root), else those of TESTBED_DATA (separated like PATH), else `data`."""
    if given:
        return [Path(g) for g in given]
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return [Path(p) for p in named.split(os.pathsep) if p]
    return [home("data")]


def find(name: str, also: Sequence[str], roots: Sequence[Path], what: str, source: str) -> Path:
    """The path of a dataset under the first data root that has it, by `name` or one of its other names `also`.

    A root where it is an empty folder is taken only if no other root has it. `what` and `source`, the expected files
    and how to get them, are for the message of MissingData.
    """
    places = [next((root / word for word in (name, *also) if (root / word).exists()), None) for root in roots]
    existing = [place for place in places if place is not None]
    if len(existing) > 1:
        return next((place for place in existing if is_there(place)), existing[0])
    if existing:
        return existing[0]
    first = roots[0] / name if roots else Path(name)
    how = f" Get it: {source}." if source else ""
    raise MissingData(
        f"dataset '{name}' not found: expected {what} at {first}.{how} "
        f"Or name the folder that holds '{name}' with --data-root or {DATA_VARIABLE}."
    )


def is_there(path: Path) -> bool:
    """Whether the path is a file, or a folder with any file below it.

    A link counts as a file without a look behind it: it may lead to a folder with all of the images.
    """
    if not path.is_dir():
        return path.exists()
    return any(inner.is_symlink() or not inner.is_dir() for inner in path.rglob("*"))
