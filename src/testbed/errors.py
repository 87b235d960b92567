"""What a user can mend: each error is one line that says what was expected, what came, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TestbedError(Exception):
    """Base of every error that is the user's to mend; scripts print it as one line without a traceback."""

    __test__ = False  # pytest must not take it for a test class


class EntryError(TestbedError):
    """A registry entry is wrong in itself."""


class UnknownName(TestbedError):
    """A name that no entry, group, tag or stored result carries."""


class DataError(TestbedError):
    """A dataset is missing, empty or not what its setting says."""


class ImageError(DataError):
    """One image cannot be read."""


class ModelError(TestbedError):
    """A model cannot be loaded or gives unusable outputs; all its pairs fail alike."""


class StoreError(TestbedError):
    """The results database or a logits file cannot be used as asked."""


def near_names(name: str, known: Iterable[str], most: int = 4) -> str:
    """'; did you mean a, b?' or nothing, for the end of a message about an unknown name."""
    known = list(known)
    lowered = {k.lower(): k for k in known}
    near = [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=most, cutoff=0.6)]
    near += [k for k in known if name.lower() in k.lower() and k not in near]
    return f"; did you mean {', '.join(near[:most])}?" if near else ""


def in_words(error: Exception) -> str:
    """One line about an error that may come from somebody's own function: its kind is told where it is not ours."""
    return str(error) if isinstance(error, TestbedError) else f"{type(error).__name__}: {error}"
