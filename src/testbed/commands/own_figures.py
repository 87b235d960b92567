"""What figures of one's own are made with, from Python: the pieces of plotting/, at the address testbed.plotting."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from testbed.commands.figures import BesideEachOther
from testbed.store.opening import open_store

# The public names, and the file of plotting/ that each is from.
_FILES = {
    "_results": ("Column", "Results", "Words", "load"),
    "_lines": ("Choice", "Line", "described", "fit_line", "robustness", "shown"),
    "_drawing": (
        *("new_figure", "new_panels", "head", "legend_below", "save"),
        *("limits", "percent_axis", "draw_points", "draw_line", "draw_identity", "draw_names"),
    ),
    "scatter": ("scatter",),
    "grid": ("grid", "chosen_columns", "ordered_rows"),
}
_FILE_OF = {name: file for file, names in _FILES.items() for name in names}
__all__ = [*_FILE_OF, "open_store"]


def __getattr__(name: str) -> Any:
    if name not in _FILE_OF:
        raise AttributeError(f"module 'testbed.plotting' has no attribute {name!r}")
    with _plotting_files():
        return getattr(import_module(_FILE_OF[name]), name)


@contextmanager
def _plotting_files() -> Iterator[None]:
    """The files of plotting/ find each other, as they do when Python runs one of them as a script."""
    finder = BesideEachOther()
    sys.meta_path.append(finder)  # last, so that no file there stands for an installed module
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
