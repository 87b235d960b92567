"""Real files that tests measure against and that are no part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[1]


def shared_data(*parts: str) -> Path:
    """A file or folder of the shared data; the calling test (or module) skips where it is absent.

    They lie in `../shared/data` beside the project, or where TESTBED_SHARED_DATA says.
    """
    root = Path(os.environ.get("TESTBED_SHARED_DATA") or PROJECT.parent / "shared" / "data")
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no shared data at {path} (TESTBED_SHARED_DATA may name its folder)", allow_module_level=True)
    return path
