"""What label numbers mean that stand for places in a list of class names: the order of the list is known, so it counts.

A list is compared with the known orders place by place first, and only then name by name: lists of ImageNet's 1000
classes differ in some names (`crane2`, since a list may not hold a name twice; the names that OpenAI's CLIP was tested
with), and some names fit two classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from testbed.data.labels import (
    class_indices,
    imagenet_meanings,
    imagenet_wnids,
    mostly_imagenet,
    not_understood,
    timm_wnids,
)
from testbed.errors import DataError

# Sets that number their 200 classes from 0 on, in the order of their wnids -> timm's list of these.
NUMBERED_RULES = {"imagenet-a": "imagenet_a", "imagenet-r": "imagenet_r"}
_LEAST_IN_PLACE = 0.75  # of names. 817 of OpenAI's 1000 names are names that the class at the same place has here too.

Indices = tuple[Sequence[int] | None, str, int | None]


def class_indices_of_numbers(names: Sequence[str], rule: str, where: str, highest: int = -1) -> Indices:
    """(index of each number, or None where a number is its own; label space; number of classes, as class_indices).

    names: what the numbers are called; empty where nothing tells. highest: of the labels that occur.
    """
    if rule in NUMBERED_RULES:
        places, most = subset(rule), max(highest, len(names) - 1)
        if most >= len(places):
            raise DataError(f"{where}: labels={rule} is for numbers from 0 to {len(places) - 1}, got {most}")
        return places, "imagenet", 1000
    if rule == "integer" or (rule in ("auto", "imagenet") and not names):
        return _as_they_are(len(names), rule, where, highest)
    if not names:
        raise DataError(f"{where}: labels={rule} is for class names, got numbers without any")
    if rule == "auto":
        return _by_order_or_name(names, where)
    return _by_name(names, rule, where)


def _as_they_are(count: int, rule: str, where: str, highest: int) -> Indices:
    """Numbers that are indices themselves. 0 to 999 is how many sets number ImageNet's classes."""
    if rule == "imagenet" and highest >= 1000:
        raise DataError(f"{where}: expected ImageNet's classes 0 to 999, got {highest}")
    if rule == "imagenet" or (highest == 999 and count in (0, 1000)):
        return None, "imagenet", 1000
    return None, "own", count or None


def _by_order_or_name(names: Sequence[str], where: str) -> Indices:
    if all(name.isdecimal() for name in names):  # classes that were sorted as text: the number 2 is called 10
        indices, space, _ = _by_name(names, "integer", where)
        whole = sorted(indices or ()) == list(range(len(names)))
        return indices, space, len(names) if whole else None
    orders: list[Sequence[int]] = [range(1000), *map(subset, NUMBERED_RULES)]
    for places in orders:
        if in_place(names, places):
            return places, "imagenet", 1000
    if not mostly_imagenet(names):
        return None, "own", len(names)
    if strangers := [name for name in names if not imagenet_meanings(name)]:
        raise DataError(
            f"{where}: expected names of ImageNet's classes, as {len(names) - len(strangers)} of {len(names)} are"
            f"{not_understood(strangers)}; labels=integer takes the numbers as they are"
        )
    return _by_name(names, "auto", where)


def _by_name(names: Sequence[str], rule: str, where: str) -> Indices:
    listed = {name: f"{where}, class {number}" for number, name in enumerate(names)}
    indices, space, num_classes = class_indices(names, rule, where, listed)
    return [indices[name] for name in names], space, num_classes


def in_place(names: Sequence[str], places: Sequence[int]) -> bool:
    """Whether a list of names is that of these ImageNet classes in this order, under names of whatever origin.

    A name that means another class of the list than the one at its place does not count against it if that other class
    stands at its own place too: OpenAI's names call two classes missile. Otherwise the list is in another order.
    """
    if len(names) != len(places):
        return False
    meant = [imagenet_meanings(name) for name in names]
    fits = {index for index, own in zip(places, meant, strict=True) if index in own}
    moved = [own for index, own in zip(places, meant, strict=True) if own and index not in own and not fits & set(own)]
    return len(fits) >= _LEAST_IN_PLACE * len(names) and not moved


@cache
def subset(name: str) -> tuple[int, ...]:
    """The indices of a set's classes, in the order in which the set numbers them."""
    index = {wnid: place for place, wnid in enumerate(imagenet_wnids())}
    return tuple(index[wnid] for wnid in timm_wnids(NUMBERED_RULES[name]))
