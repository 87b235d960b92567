"""How models are told apart in figures: the tag that is a model's type, its words, colour and marker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from testbed.entries.registry import default_folder, load_registry


@dataclass(frozen=True)
class Type:
    """One kind of model in a legend; a second colour for dark backgrounds."""

    tag: str
    label: str
    color: str
    dark: str
    marker: str


# The published types in the published colours, and the two of the demo. The first that is among a model's tags counts.
_KNOWN = (
    Type("standard", "Standard training", "#1f77b4", "#6baed6", "o"),
    Type("lp_adv", "Lp adversarially robust", "#bcbd22", "#d6d757", "^"),
    Type("robust_intv", "Other robustness intervention", "#8c564b", "#c99b8f", "s"),
    Type("robust", "Trained for robustness", "#8c564b", "#c99b8f", "s"),
    Type("more_data", "Trained with more data", "#2ca02c", "#74c476", "D"),
    Type("low_data", "Trained with less data", "#17becf", "#4fd3e0", "v"),
    Type("low_accuracy_cnn", "Low-accuracy network", "#17becf", "#4fd3e0", "v"),
    Type("linear_pixels", "Linear on pixels", "#ff7f0e", "#ffa657", "P"),
    Type("random_forests", "Random forest", "#e377c2", "#f0a3dc", "P"),
    Type("nearest_neighbors", "Nearest neighbours", "#9467bd", "#c3a6e0", "P"),
    Type("random_features", "Random features", "#daa520", "#f0c75e", "P"),
)
OTHER = Type("other", "Without a type", "#7f7f7f", "#b5b5b5", "p")
TYPES = {kind.tag: kind for kind in (*_KNOWN, OTHER)}
STANDARD = "standard"


def type_of(tags: Sequence[str], model: str = "") -> str:
    """The type among a model's stored tags; where none of them is one, the type the registry gives to its name."""
    return _among(tags) or (model and _by_name().get(model)) or OTHER.tag


def _among(tags: Sequence[str]) -> str | None:
    return next((kind.tag for kind in _KNOWN if kind.tag in tags), None)


@cache
def _by_name() -> dict[str, str]:
    """Types of the registered models, and of the published ones that nobody can run any more."""
    types: dict[str, str] = {}
    unavailable = default_folder() / "metadata" / "imagenet_testbed_unavailable.json"
    if unavailable.is_file():
        for family in json.loads(unavailable.read_text(encoding="utf-8")):
            types |= {model: tag for tag, models in family["models"].items() for model in models}
    # Registered models come second: what can be run here knows its type better than the published list.
    for name, entry in load_registry(parts=("models",)).models.entries.items():
        if tag := _among(entry.tags):
            types[name] = tag
    return types
