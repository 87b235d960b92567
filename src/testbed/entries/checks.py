"""Checks that every entry passes when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from testbed.errors import EntryError


def check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise EntryError(f"{kind}: name must be a non-empty string, got {name!r}")
    # Names are also patterns on the command line, so a name must not look like a glob.
    if name != name.strip() or any(c in name for c in "*?[]\n\t"):
        raise EntryError(f"{kind} {name!r}: a name has no outer spaces and none of * ? [ ]")


def check_count(owner: str, label: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise EntryError(f"{owner}: {label} must be at least 1, got {value!r}")


def checked_tags(owner: str, tags: Sequence[str]) -> tuple[str, ...]:
    # A string is a sequence too: tags="imagenet" would become eight tags of one letter.
    if isinstance(tags, str):
        raise EntryError(f"{owner}: tags must be a list of words, got the string {tags!r}")
    return tuple(tags)


# Cached, since hundreds of settings share one class_sublist or index list.
@lru_cache(maxsize=64)
def checked_indices(values: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The values as integers; None if the list is empty or has a negative value."""
    numbers = tuple(int(v) for v in values)
    return numbers if numbers and min(numbers) >= 0 else None
