"""Names made short for tables: severities of one corruption as one family, and beginnings that names share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

# base.corruption.severity, then how the images were made: imagenet-c.fog.3_on-disk, digits.contrast.1
SEVERITY = re.compile(r"(?P<base>.+)\.(?P<corruption>[a-z_]+)\.(?P<severity>[1-9])(?P<suffix>_[^.]+)?")
_NUMBERED = re.compile(r"(?P<base>.+-)(?P<number>[0-9]{2,})")  # meta sets: digits-meta-07
_ENDS_OF_WORDS = "_-:/."
_LEAST_SAVED = 3  # characters: less is not worth a sentence that explains it


def families(settings: Iterable[str]) -> dict[str, list[str]]:
    """Settings under the name of their family, in the order of the first of each.

    A family is two or more severities of one corruption (`digits.contrast.1-5`), or numbered sets
    (`digits-meta-00 to 09`). Any other setting is a family of its own.
    """
    members_of: dict[tuple[str, ...], list[str]] = {}
    for name in dict.fromkeys(settings):
        members_of.setdefault(_family(name), []).append(name)
    return {members[0] if len(members) == 1 else _label(members): members for members in members_of.values()}


def _family(name: str) -> tuple[str, ...]:
    if match := SEVERITY.fullmatch(name):
        return match["base"], match["corruption"], match["suffix"] or ""
    if match := _NUMBERED.fullmatch(name):
        return (match["base"], "")
    return (name,)


def _label(members: Sequence[str]) -> str:
    if match := SEVERITY.fullmatch(members[0]):
        severities = sorted(parts["severity"] for name in members if (parts := SEVERITY.fullmatch(name)))
        gapless = len(severities) == int(severities[-1]) - int(severities[0]) + 1
        told = f"{severities[0]}-{severities[-1]}" if gapless and len(severities) > 2 else ",".join(severities)
        return f"{match['base']}.{match['corruption']}.{told}{match['suffix'] or ''}"
    first, last = min(members), max(members)
    return f"{first} to {last.removeprefix(_family(last)[0])}"


def shared_base(settings: Sequence[str]) -> str:
    """What stands before the first dot in most settings: `.fog` is then short for `imagenet-c.fog`. Empty for one."""
    bases = Counter(name.partition(".")[0] for name in settings if "." in name)
    base, count = bases.most_common(1)[0] if bases else ("", 0)
    return base if count > 1 and len(base) >= _LEAST_SAVED else ""


def shared_beginning(models: Sequence[str]) -> str:
    """The whole words with which all names begin, such as `digits_`; empty if there are none or only one name."""
    # In alphabetical order the first and the last name differ earliest.
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(min(models), max(models), strict=False))
    common = "".join(letter for letter, _ in alike) if len(models) > 1 else ""
    end = max((common.rfind(sign) for sign in _ENDS_OF_WORDS), default=-1) + 1
    # A name that is nothing but the beginning would be left without a word.
    return common[:end] if end >= _LEAST_SAVED and all(len(name) > end for name in models) else ""
