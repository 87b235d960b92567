"""Errors that a user can fix. Each message is one line: what was expected, what was found, and what to do."""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Iterable

# What tells two failures of one cause apart: names in quotes, paths and addresses, numbers.
_PARTICULARS = re.compile(r"'[^']*'|\S*/\S*|[0-9][0-9.,]*")

MASK = "***"
# scheme://user:PASSWORD@host. Up to the last @, since a password that is not percent-encoded may hold one: rather too
# much is hidden than too little. A path that was made of an address has one slash.
_IN_TEXT = re.compile(r"(\w[\w+.-]*:/{1,2}[^\s/:@'\"]*:)(?:\S*|[^/@]*)(?=@)")
# password=..., sslpassword=..., X-Amz-Signature=..., as a parameter of an address or a word of its own.
_AS_PARAMETER = re.compile(
    r"((?:\b[\w-]*(?:password|passwd|passphrase|pwd|secret|token|signature|credential|api_?key|access_?key(?:_?id)?)"
    r"|[?&]sig)=)[^\s&;'\"]+",
    re.IGNORECASE,
)


class TestbedError(Exception):
    """Base class of the errors that a user can fix; scripts print them as one line without a traceback."""

    __test__ = False  # pytest must not take it for a test class

    def __str__(self) -> str:
        # Names and paths in a message may hold line breaks, escape codes of terminals or bytes that are no text, and
        # addresses a password.
        return masked(printable(super().__str__()))


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


class DamagedError(StoreError):
    """A stored file is missing, or is not the one that was written."""


def masked(text: str, *secrets: str | None) -> str:
    """The text with `***` for the passwords of addresses in it, and for the given secrets wherever they stand."""
    text = _AS_PARAMETER.sub(rf"\1{MASK}", _IN_TEXT.sub(rf"\1{MASK}", text))
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return text


def printable(text: str) -> str:
    """The text in one line that any terminal can show: what cannot be printed stands as \\n, \\x1b, \\udcff, ..."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_lines(text: str) -> str:
    """As printable, with the breaks of lines and tabulators as they are."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def near_names(name: str, known: Iterable[str], most: int = 4) -> str:
    """'; did you mean a, b?' to end a message about an unknown name; empty if no known name is similar."""
    known = list(known) if name else []  # every name contains nothing
    lowered = {k.lower(): k for k in known}
    near = [lowered[m] for m in difflib.get_close_matches(name.lower(), lowered, n=most, cutoff=0.6)]
    # Similar spellings first, then names that contain the word.
    near += [k for k in known if name.lower() in k.lower() and k not in near]
    return f"; did you mean {', '.join(near[:most])}?" if near else ""


def near_or_some(name: str, known: Iterable[str], most: int = 4) -> str:
    """As near_names; where none is similar, '; there are 12, such as a, b, c, d'. For names that cannot be listed."""
    known = list(known)
    some = ", ".join(known[:most])
    there = f"there are {len(known):,}, such as {some}" if len(known) > most else f"there is {some}"
    return near_names(name, known, most) or (f"; {there}" if known else "")


def counted(n: int, noun: str) -> str:
    """`1 model`, `2,000 models`."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def in_words(error: BaseException) -> str:
    """An error in one line. The type is added unless it is a TestbedError, whose message is complete."""
    if isinstance(error, TestbedError):
        return str(error)
    return masked(printable(" ".join(f"{type(error).__name__}: {error}".split())))


def disk_is_full(error: BaseException) -> bool:
    """Whether nothing more can be written, now or by any other pair of a run."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def cause_of(error: str) -> str:
    """The first clause of an error without the names and numbers in it: equal for failures of one kind."""
    first, *rest = re.split(r"[:.;](?:\s+|$)", _PARTICULARS.sub("…", error), maxsplit=2)
    # The name of an exception alone says too little.
    return first if " " in first or not rest else f"{first}: {rest[0]}"
