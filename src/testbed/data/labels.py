"""From class names to class indices: ImageNet's wnids, integers, or the names in sorted order."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from testbed.errors import DataError

_WNID = re.compile(r"n\d{8}")


@cache
def imagenet_wnids() -> tuple[str, ...]:
    """The 1000 synset ids in the order of the classifiers' outputs."""
    text = files("testbed").joinpath("data/imagenet_classes.json").read_text(encoding="utf-8")
    return tuple(entry["wnid"] for entry in json.loads(text))


@cache
def _imagenet_index() -> dict[str, int]:
    return {wnid: index for index, wnid in enumerate(imagenet_wnids())}


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
