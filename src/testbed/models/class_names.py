"""What the classes of a model are, from their names: ImageNet's in some order, a larger ImageNet's, or its own."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from testbed.data.labels import imagenet_meanings, imagenet_wnids, timm_wnids
from testbed.errors import ModelError

# Number of outputs -> the class list of timm that they follow. These lists lack up to nine of ImageNet's 1000 classes.
CLASS_LISTS = {
    11221: "imagenet21k_miil",
    11821: "imagenet12k",
    21841: "imagenet22k",
    21842: "imagenet22k_ms",
    21843: "imagenet21k_goog",
}
_IMAGENET = 1000
_WNID = re.compile(r"n\d{8}")
_GENERIC = re.compile(r"label_\d+", re.IGNORECASE)
_NEARLY_ALL = 0.8  # OpenAI's names for the 1000 classes are the usual ones in 814 places


def named_outputs(id2label: Any, where: str) -> tuple[str, ...]:
    """The name of each output from `id2label` of a config.json."""
    advice = "give every output the wnid or name of its class there"
    if not isinstance(id2label, Mapping) or not id2label:
        raise ModelError(f"{where}: expected id2label, the names of the classes, got none: {advice}")
    numbered = {int(key): str(label) for key, label in id2label.items() if str(key).isdecimal()}
    if sorted(numbered) != list(range(len(id2label))):
        raise ModelError(f"{where}: expected id2label with the keys 0 to {len(id2label) - 1}, got {_some(id2label)}")
    names = tuple(numbered[output] for output in range(len(numbered)))
    if all(_GENERIC.fullmatch(name) for name in names):
        raise ModelError(f"{where}: id2label names no classes ({_some(names)}): {advice}")
    return names


def classes_from(names: Sequence[str], where: str) -> dict[str, Any]:
    """The words of a Model that say what its outputs are, from their names; none for ImageNet's 1000 in their order."""
    if len(names) == _IMAGENET and (order := _imagenet_order(names)) is not None:
        return _in_order(order)
    if len(names) == _IMAGENET + 1 and (order := _imagenet_order(names[1:])) == list(range(_IMAGENET)):
        return {"columns": tuple(range(1, _IMAGENET + 1))}  # output 0 is the background, as in TensorFlow's models
    if (meant := _meant(names)) is not None:
        wnids = imagenet_wnids()
        return {"classes": tuple(wnids[index] for index in meant), "missing_classes": "never"}
    if all(_WNID.fullmatch(name) for name in names) and len(set(names)) == len(names):
        return {"classes": tuple(names), "missing_classes": "never"}
    larger = CLASS_LISTS.get(len(names))
    if larger is not None and _share_in_place(names, larger) >= _NEARLY_ALL:
        return {"classes": larger, "missing_classes": "never"}
    twice = [name for name in names if list(names).count(name) > 1] if len(names) <= _IMAGENET else []
    if twice:
        raise ModelError(f"{where}: expected a name of its own for each class, got '{twice[0]}' twice")
    return {"own_classes": tuple(names)}


def _imagenet_order(names: Sequence[str]) -> list[int] | None:
    """The class of each of 1000 outputs, where nearly all are named as the class of their place.

    A name that fits another place alone is taken at its word, unless the name in that place says the same: lists give
    two classes one name ("sunglasses"), or change a name that is there twice ("crane2").
    """
    meanings = [imagenet_meanings(name) for name in names]
    in_place = [output in meaning for output, meaning in enumerate(meanings)]
    if sum(in_place) < _NEARLY_ALL * len(names):
        return None
    order = list(range(len(names)))
    for output, meaning in enumerate(meanings):
        if not in_place[output] and len(meaning) == 1 and not in_place[meaning[0]]:
            order[output] = meaning[0]
    return order if len(set(order)) == len(order) else None


def _meant(names: Sequence[str]) -> list[int] | None:
    """The ImageNet class of each name, where every name has one of its own.

    A name of two classes is the one that no other name means: "maillot" beside "maillot, tank suit".
    """
    meanings = [imagenet_meanings(name) for name in names]
    taken = {meaning[0] for meaning in meanings if len(meaning) == 1}
    left = [meaning if len(meaning) == 1 else tuple(set(meaning) - taken) for meaning in meanings]
    if any(len(meaning) != 1 for meaning in left):
        return None
    meant = [meaning[0] for meaning in left]
    return meant if len(set(meant)) == len(meant) else None


def _in_order(order: Sequence[int]) -> dict[str, Any]:
    if list(order) == list(range(len(order))):
        return {}
    wnids = imagenet_wnids()
    return {"classes": tuple(wnids[index] for index in order)}


def _share_in_place(names: Sequence[str], class_list: str) -> float:
    """How many of the names are those of the classes of a list, in its order."""
    wnids = timm_wnids(class_list)
    agree = (bool(_words(name) & _words(lemmas().get(wnid, ""))) for name, wnid in zip(names, wnids, strict=True))
    return sum(agree) / len(wnids)


@cache
def lemmas() -> dict[str, str]:
    """wnid -> the names of that class in WordNet, of all that timm knows; empty without timm."""
    spec = importlib.util.find_spec("timm")
    places = spec.submodule_search_locations if spec is not None else None
    path = Path(places[0]) / "data" / "_info" / "imagenet_synset_to_lemma.txt" if places else None
    if path is None or not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {wnid: name for wnid, _, name in (line.partition("\t") for line in lines)}


def _words(name: str) -> set[str]:
    return {word.replace("_", " ").strip().lower() for word in name.split(",")} - {""}


def _some(names: Any) -> str:
    return ", ".join(str(name) for name in list(names)[:3])
