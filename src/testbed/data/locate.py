"""Which places on disk are looked in for datasets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from testbed.errors import DataError

DATA_VARIABLE = "TESTBED_DATA"


class MissingData(DataError):
    """A dataset is in none of the places it is looked for."""


def data_roots(given: Sequence[str] | None = None) -> list[Path]:
    """The folders of --data-root, else of TESTBED_DATA (separated like PATH), else ./data."""
    if given:
        return [Path(g) for g in given]
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return [Path(p) for p in named.split(os.pathsep) if p]
    return [Path("data")]


def find(name: str, also: Sequence[str], roots: Sequence[Path], what: str, source: str) -> Path:
    """The first of `name` and its other spellings that exists under a data root; empty folders come last."""
    places = [next((root / word for word in (name, *also) if (root / word).exists()), None) for root in roots]
    existing = [place for place in places if place is not None]
    if existing:
        return next((place for place in existing if not _is_empty(place)), existing[0])
    first = roots[0] / name if roots else Path(name)
    how = f" Get it: {source}." if source else ""
    raise MissingData(
        f"dataset '{name}' not found: expected {what} at {first}.{how} "
        f"Or name the folder that holds '{name}' with --data-root or {DATA_VARIABLE}."
    )


def _is_empty(place: Path) -> bool:
    return place.is_dir() and next(place.iterdir(), None) is None
