"""Errors that a user can fix. Each message is one line: what was expected, what was found, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TestbedError(Exception):
    """Base class of the errors that a user can fix; scripts print them as one line without a traceback."""

    __test__ = False  # pytest must not take it for a test class


class EntryError(TestbedError):
    """A registry entry, or an option, is invalid."""


class UnknownName(TestbedError):
    """No entry, group, tag or stored result has this name."""


class DataError(TestbedError):
    """A dataset is missing, empty, or different from what its setting declares."""


class ImageError(DataError):
    """One image cannot be read."""


class ModelError(TestbedError):
    """A model cannot be loaded or gives unusable outputs. All its remaining pairs fail with the same error."""


class StoreError(TestbedError):
    """The results database or a logits file cannot be used as requested."""


def near_names(name: str, known: Iterable[str], most: int = 4) -> str:
    """'; did you mean a, b?' to end a message about an unknown name; empty if no known name is similar."""
    known = list(known)
    lowered = {k.lower(): k for k in known}
    near = [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=most, cutoff=0.6)]
    # Similar spellings first, then names that contain the word.
    near += [k for k in known if name.lower() in k.lower() and k not in near]
    return f"; did you mean {', '.join(near[:most])}?" if near else ""


def in_words(error: Exception) -> str:
    """An error in one line. The type is added unless it is a TestbedError, whose message is complete."""
    return str(error) if isinstance(error, TestbedError) else f"{type(error).__name__}: {error}"
