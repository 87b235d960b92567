"""Where on disk datasets are looked for, and where the folders `data` and `results` are."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import DataError

DATA_VARIABLE = "TESTBED_DATA"


class MissingData(DataError):
    """A dataset is under none of the data roots."""


def home(name: str) -> Path:
    """The folder of that name, `data` or `results`: that of the working directory, or of the project if that has none.

    The project's is meant where one of its scripts is run, wherever it is called from: `cd plotting && python grid.py`.
    """
    project = Path(__file__).resolve().parents[3]
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    of_project = script is not None and Path(script).resolve().parent in (project, project / "plotting")
    if not of_project or Path(name).is_dir() or Path.cwd() == project:
        return Path(name)
    return project / name


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
