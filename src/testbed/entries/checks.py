"""Checks that every entry passes when it is made, and the one rule for names.

Names come in by many doors: registry files, strings of the command line, published tables, logits and decisions of
others, new names of stored ones. Each door asks `check_name` (or `check_text`, for what is never used as a pattern).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from testbed.errors import EntryError

MOST_LETTERS = 255  # of a name: what the tables hold
_MOST_OF_A_STRING = 4096  # of a string such as folder:PATH: the longest path of a file system
MOST_LETTERS_OF_A_METRIC = 128
MOST_LETTERS_OF_A_SOURCE = 64
# Characters that move the cursor, end a line, turn the direction of writing, show nothing, or are no UTF-8. The two
# joiners U+200C and U+200D, which some scripts are written with, are text.
_NOT_TEXT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_GLOB = re.compile(r"[*?\[\]]")
# Settings that several files may make up, or that have words behind a question mark.
_MAY_HAVE_GLOBS = re.compile(r"(^|@)(parquet|hf|wds):")


def check_text(kind: str, text: object, most: int = MOST_LETTERS) -> str:
    """The text, if it can stand in a table, a file and on a screen as it is; else an EntryError."""
    if not isinstance(text, str) or not text.strip():
        raise EntryError(f"{kind}: name must be a non-empty string, got {shortened(text)}")
    if bad := _NOT_TEXT.search(text):
        raise EntryError(
            f"{kind} {shortened(text)}: expected printable text in a name, got the character U+{ord(bad[0]):04X}"
        )
    if len(text) > most:
        raise EntryError(f"{kind} {shortened(text)}: expected a name of at most {most} letters, got {len(text)}")
    return text


def check_name(kind: str, name: object, most: int | None = None) -> str:
    """The name, if it can be stored and asked for; else an EntryError.

    A string such as folder:PATH may be as long as a path, and lead upwards as a path may.
    """
    is_string = isinstance(name, str) and ":" in name
    name = check_text(kind, name, most or (_MOST_OF_A_STRING if is_string else MOST_LETTERS))
    # Names are also patterns on the command line, so a name must not look like a glob. One that has to is found by
    # itself and nothing else (testbed.store.find).
    if name != name.strip() or (_GLOB.search(name) and not (is_string and _MAY_HAVE_GLOBS.search(name))):
        raise EntryError(f"{kind} {shortened(name)}: a name has no outer spaces and none of * ? [ ]")
    if not is_string and {".", ".."} & set(re.split(r"[/\\]", name)):
        raise EntryError(f"{kind} {shortened(name)}: expected a name, got a path that leads elsewhere (. or ..)")
    return name


def shortened(value: object, most: int = 60) -> str:
    """A value as a message quotes it: in one line, with escapes for what cannot be shown, not longer than a line."""
    # Only the beginning of a long text is quoted: the value may be of any size.
    text = " ".join(repr(value[: most + 1] if isinstance(value, str) else value).split())
    return text if len(text) <= most + 2 else f"{text[:most]}...{text[0]}"


def check_count(owner: str, label: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EntryError(f"{owner}: {label} must be at least 1, got {value!r}")


def checked_tags(owner: str, tags: Sequence[str]) -> tuple[str, ...]:
    # A string is a sequence too: tags="imagenet" would become eight tags of one letter.
    if isinstance(tags, str):
        raise EntryError(f"{owner}: tags must be a list of words, got the string {tags!r}")
    return tuple(check_text(f"{owner}: tag", tag) for tag in tags)


# Cached, since hundreds of settings share one class_sublist or index list.
@lru_cache(maxsize=64)
def checked_indices(values: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The values as integers; None if the list is empty or has a value that is negative, fractional or no number."""
    try:
        numbers = tuple(int(v) for v in values)
    except (TypeError, ValueError, OverflowError):
        return None
    # Compared with what came: int() makes 3 of 3.7 and of "3".
    return numbers if numbers and min(numbers) >= 0 and numbers == values else None
