"""From class names to class indices: by ImageNet's wnids and names, as integers, or by sorted order."""

from __future__ import annotations

import difflib
import importlib.util
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.samples import UNKNOWN
from testbed.errors import DataError, EntryError

_WNID = re.compile(r"n\d{8}")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_NO_NUMBER = frozenset(("nan", "na", "n/a", "none", "null", "inf", "+inf", "-inf", "-nan", "infinity", "-infinity"))
_HIGHEST = 2**31 - 1
_MOST_STRANGERS = 4  # names in one message
_BY_CHANCE = 10  # classes of an own set, such as ant, bee and cat, of which most may be ImageNet's by chance
RULES = ("auto", "imagenet", "integer", "sorted")
# What the hub's ImageNet calls its second crane, the machine: its lists may not hold a name twice.
_HUB_NAMES = {"crane2": [517]}


@cache
def _imagenet_classes() -> tuple[tuple[str, str], ...]:
    """(wnid, name) of each class in the order of the outputs; the synonyms in a name are separated by commas."""
    text = files("testbed").joinpath("data/imagenet_classes.json").read_text(encoding="utf-8")
    return tuple((entry["wnid"], entry["name"]) for entry in json.loads(text))


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The 1000 WordNet ids in the order of the classifiers' outputs."""
    return tuple(wnid for wnid, _ in _imagenet_classes())


@cache
def imagenet_names() -> tuple[str, ...]:
    """The first name of each of the 1000 classes, in the order of the classifiers' outputs."""
    return tuple(name.split(", ")[0] for _, name in _imagenet_classes())


@cache
def _imagenet_index() -> dict[str, int]:
    return {wnid: index for index, wnid in enumerate(imagenet_wnids())}


@cache
def _imagenet_names() -> dict[str, list[int]]:
    """Name -> the classes that it may mean: those whose first name it is, else all that have it as a synonym.

    wnids count as names too. "partridge" is the class partridge and not the ruffed grouse, which has it as a synonym;
    "crane" is the first name of two classes and remains ambiguous.
    """
    first: dict[str, list[int]] = {}
    every: dict[str, list[int]] = {}
    for index, (wnid, name) in enumerate(_imagenet_classes()):
        synonyms = [_plain(word) for word in name.split(", ")]
        first.setdefault(synonyms[0], []).append(index)
        for word in {*synonyms, _plain(name), wnid}:
            every.setdefault(word, []).append(index)
    return every | first | _HUB_NAMES


def imagenet_meanings(name: str) -> tuple[int, ...]:
    """The ImageNet classes that a name or wnid may stand for: none, one, or several that share it."""
    return tuple(_imagenet_names().get(_plain(name), ()))


def mostly_imagenet(names: Sequence[str]) -> bool:
    """Whether more than half of the names are those of ImageNet's classes."""
    return sum(bool(imagenet_meanings(name)) for name in names) > len(names) / 2


def _plain(name: str) -> str:
    return name.replace("_", " ").lower()


@cache
def timm_wnids(name: str) -> tuple[str, ...]:
    """The wnids of a class list that comes with timm (imagenet21k_goog, imagenet12k, ...)."""
    # find_spec gives the folder without importing timm, which would load torch.
    spec = importlib.util.find_spec("timm")
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise EntryError(f"the class list '{name}' comes with the package timm: pip install timm")
    folder = Path(places[0]) / "data" / "_info"
    path = folder / f"{name}_synsets.txt"
    if not path.is_file():
        known = sorted(p.name.removesuffix("_synsets.txt") for p in folder.glob("*_synsets.txt"))
        raise EntryError(f"no class list '{name}': expected wnids, or one of {', '.join(known)}")
    return tuple(path.read_text(encoding="utf-8").split())


@cache
def imagenet_columns(classes: tuple[str, ...] | str) -> tuple[int, ...]:
    """The column of each of the 1000 ImageNet classes in a model's output; UNKNOWN where it has none.

    `classes` are the wnids of the model's columns, or the name of a class list of timm.
    """
    wnids = timm_wnids(classes) if isinstance(classes, str) else classes
    place = {wnid: column for column, wnid in enumerate(wnids)}
    return tuple(place.get(wnid, UNKNOWN) for wnid in imagenet_wnids())


def checked_labels(values: Any, where: str, num_classes: int | None = None) -> np.ndarray:
    """Labels as int64: whole numbers from 0 on, below `num_classes` if that is given, or UNKNOWN for no label.

    Every label that is a number comes in through here. numpy alone would make -9223372036854775808 of NaN and 3 of 3.7.
    """
    given = np.asarray(values)
    most = _HIGHEST if num_classes is None else num_classes - 1
    expected = f"{where}: expected labels that are whole numbers from 0 to {most}, or {UNKNOWN} for no label"
    if given.dtype.kind not in "biuf":
        raise DataError(f"{expected}, got {given.dtype} values{_first(given)}")
    # Written as a negation, since comparisons with NaN are false.
    wrong = ~((given >= UNKNOWN) & (given <= most))
    if given.dtype.kind == "f":
        wrong |= given != np.floor(given)
    if wrong.any():
        place = int(np.flatnonzero(wrong.ravel())[0])
        raise DataError(f"{expected}, got {given.ravel()[place]} for image {place}")
    return given.astype(np.int64)


def _first(values: np.ndarray) -> str:
    text = str(values.ravel()[0]) if values.size else ""
    return f" such as {text[:40]!r}" if text else ""


def class_indices(
    names: Sequence[str], rule: str, where: str, listed: Mapping[str, str] | None = None
) -> tuple[dict[str, int], str, int | None]:
    """(class name -> index, label space, number of classes in that space or None if not known).

    rule: "imagenet", "integer", "sorted", or "auto", which takes the first that fits all names: wnids and ImageNet's
    class names are indices of the 1000 classes, integers stand for themselves (sorting the folders 0..999 as text
    would mislabel them), and other names are numbered in sorted order.
    where: the dataset, for error messages.
    listed: where each name stands, if the names come from a list. A name in a list that does not fit the others is
    refused. Among folders it is too where they are 1000, and would pass for ImageNet's in sorted order; of fewer
    testbed.data.audit warns.
    """
    if rule not in RULES:
        raise DataError(f"{where}: labels must be auto, imagenet, integer or sorted, got {rule!r}")
    distinct = sorted(set(names))
    places = {n: listed[n] if listed is not None else where for n in distinct}
    if rule == "auto":
        rule = _rule_for(distinct)
        if rule == "sorted" and listed is not None:
            _refuse_misfits(places)
        if rule == "sorted" and (listed is not None or len(distinct) == len(imagenet_wnids())):
            _refuse_strangers(places)
    if rule == "imagenet":
        return _wnid_indices(places), "imagenet", 1000
    if rule == "name":
        return _name_indices(places), "imagenet", 1000
    if rule == "integer":
        mapping = _integers(places)
        # 0..999 is how ImageNetV2 and others name the ImageNet classes.
        return (mapping, "imagenet", 1000) if max(mapping.values()) == 999 else (mapping, "own", None)
    return {n: i for i, n in enumerate(distinct)}, "own", len(distinct)


def _rule_for(names: Sequence[str]) -> str:
    """The rule that "auto" stands for with these names; "name" are ImageNet's class names."""
    if all(_WNID.fullmatch(n) for n in names):
        return "imagenet"
    if all(n.isdecimal() for n in names):
        return "integer"
    return "name" if all(imagenet_meanings(n) for n in names) else "sorted"


def not_understood(names: Sequence[str]) -> str:
    """Which names are not those of ImageNet's classes, with near ones, to end a message; empty where all are."""
    known = _imagenet_names()
    strangers = [name for name in names if not _WNID.fullmatch(name) and _plain(name) not in known]
    if not strangers:
        return ""
    told = []
    for name in strangers[:_MOST_STRANGERS]:
        # A cat is nearer to a tabby cat than to a crate.
        kinds = sorted(k for k in known if f" {_plain(name)} " in f" {k} ")
        near = (kinds or difflib.get_close_matches(_plain(name), known, n=2))[:2]
        told.append(f"{name} ({' or '.join(near)}?)" if near else name)
    more = f" and {len(strangers) - _MOST_STRANGERS} more" if len(strangers) > _MOST_STRANGERS else ""
    example = f"{imagenet_wnids()[0]} for {imagenet_names()[0]}"
    return f"; no names of ImageNet's classes: {', '.join(told)}{more}; wnids work too, such as {example}"


def _wnid_indices(places: Mapping[str, str]) -> dict[str, int]:
    known = _imagenet_index()
    strangers = [n for n in places if n not in known]
    if strangers:
        raise DataError(
            f"{places[strangers[0]]}: expected ImageNet wnids, got {', '.join(strangers[:3])} "
            f"({len(strangers)} of {len(places)} class names are not among the 1000)"
        )
    return {n: known[n] for n in places}


def _name_indices(places: Mapping[str, str]) -> dict[str, int]:
    # Beside "maillot, tank suit" a maillot is the other of the two classes that are called so.
    taken = {imagenet_meanings(name)[0] for name in places if len(imagenet_meanings(name)) == 1}
    indices = {}
    for name, place in places.items():
        meant = [index for index in imagenet_meanings(name) if index not in taken or len(imagenet_meanings(name)) == 1]
        if len(meant) != 1:
            wnids = [imagenet_wnids()[index] for index in imagenet_meanings(name)]
            raise DataError(
                f"{place}: expected names of one ImageNet class each, got {name!r}: call it {' or '.join(wnids)}"
            )
        indices[name] = meant[0]
    return indices


def _integers(places: Mapping[str, str]) -> dict[str, int]:
    for name, place in places.items():
        if not name.isdecimal():
            raise DataError(f"{place}: expected integer class names, got {name!r}")
        if len(name.lstrip("0")) > len(str(_HIGHEST)) or int(name) > _HIGHEST:  # int() refuses thousands of digits
            raise DataError(f"{place}: expected class numbers up to {_HIGHEST}, got {name}")
    return {n: int(n) for n in places}


def _refuse_misfits(places: Mapping[str, str]) -> None:
    """Refuse negative and fractional numbers, and single names among wnids or integers: they are mistakes."""
    numbered = any(name.isdecimal() for name in places)
    for name, place in places.items():
        # "nan" alone may be a bread; among numbers it is a label that somebody's program did not have.
        if not name.isdecimal() and (_NUMBER.fullmatch(name) or (numbered and name.lower() in _NO_NUMBER)):
            raise DataError(f"{place}: expected class numbers 0, 1, 2, ... or nothing for no label, got {name}")
    for what, fits in (("ImageNet wnids", _WNID.fullmatch), ("class numbers", str.isdecimal)):
        others = [n for n in places if not fits(n)]
        if len(others) < len(places) / 2:
            raise DataError(f"{places[others[0]]}: expected {what} as most labels are, got {others[0]!r}")


def _refuse_strangers(places: Mapping[str, str]) -> None:
    """Refuse names that are not ImageNet's where most of many are: sorted, all would get other indices."""
    strangers = [name for name in places if not imagenet_meanings(name)]
    if len(places) > _BY_CHANCE and mostly_imagenet(list(places)):
        raise DataError(
            f"{places[strangers[0]]}: expected names of ImageNet's classes, as {len(places) - len(strangers)} of "
            f"{len(places)} are{not_understood(strangers)}; labels='sorted' numbers all of them in sorted order"
        )
