"""From class names to class indices: ImageNet's wnids, integers, or the names in sorted order."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from testbed.data.samples import UNKNOWN
from testbed.errors import DataError, EntryError

_WNID = re.compile(r"n\d{8}")


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The 1000 synset ids in the order of the classifiers' outputs."""
    text = files("testbed").joinpath("data/imagenet_classes.json").read_text(encoding="utf-8")
    return tuple(entry["wnid"] for entry in json.loads(text))


@cache
def _imagenet_index() -> dict[str, int]:
    return {wnid: index for index, wnid in enumerate(imagenet_wnids())}


@cache
def timm_wnids(name: str) -> tuple[str, ...]:
    """One of the class lists that timm carries (imagenet21k_goog, imagenet12k, ...); timm is not imported."""
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
    """Where each of the 1000 classes stands in a list of wnids (or timm's of that name); UNKNOWN where it is not."""
    wnids = timm_wnids(classes) if isinstance(classes, str) else classes
    place = {wnid: column for column, wnid in enumerate(wnids)}
    return tuple(place.get(wnid, UNKNOWN) for wnid in imagenet_wnids())


def class_indices(names: Sequence[str], rule: str, where: str) -> tuple[dict[str, int], str, int | None]:
    """Index of each class name, the label space, and how many classes that space has.

    rule "auto": wnids take their place among the 1000, integers stand for themselves (so that folders
    0..999 are not mislabelled by sorting them as strings), other names count in sorted order.
    """
    distinct = sorted(set(names))
    if rule == "auto":
        if all(_WNID.fullmatch(n) for n in distinct):
            rule = "imagenet"
        elif all(n.isdecimal() for n in distinct):
            rule = "integer"
        else:
            rule = "sorted"
    if rule == "imagenet":
        known = _imagenet_index()
        strangers = [n for n in distinct if n not in known]
        if strangers:
            raise DataError(
                f"{where}: expected ImageNet wnids, got {', '.join(strangers[:3])} "
                f"({len(strangers)} of {len(distinct)} class names are not among the 1000)"
            )
        return {n: known[n] for n in distinct}, "imagenet", 1000
    if rule == "integer":
        try:
            mapping = {n: int(n) for n in distinct}
        except ValueError:
            raise DataError(f"{where}: expected integer class names, got {distinct[0]!r}") from None
        highest = max(mapping.values())
        # 0..999 is how ImageNetV2 and others name the ImageNet classes.
        return (mapping, "imagenet", 1000) if highest == 999 else (mapping, "own", None)
    if rule == "sorted":
        return {n: i for i, n in enumerate(distinct)}, "own", len(distinct)
    raise DataError(f"{where}: labels must be auto, imagenet, integer or sorted, got {rule!r}")
