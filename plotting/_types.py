"""How models are told apart in figures: the tag that is a model's type, its words, colour and marker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """One kind of model in a legend."""

    tag: str
    label: str
    color: str
    marker: str


# The published types in the published colours, and the two of the demo. The first that is among a model's tags counts.
_KNOWN = (
    Type("standard", "Standard training", "tab:blue", "o"),
    Type("lp_adv", "Lp adversarially robust", "tab:olive", "^"),
    Type("robust_intv", "Other robustness intervention", "tab:brown", "s"),
    Type("robust", "Trained for robustness", "tab:brown", "s"),
    Type("more_data", "Trained with more data", "tab:green", "D"),
    Type("low_data", "Trained with less data", "tab:cyan", "v"),
    Type("low_accuracy_cnn", "Low-accuracy network", "tab:cyan", "v"),
    Type("linear_pixels", "Linear on pixels", "tab:orange", "P"),
    Type("random_forests", "Random forest", "tab:pink", "P"),
    Type("nearest_neighbors", "Nearest neighbours", "tab:purple", "P"),
    Type("random_features", "Random features", "goldenrod", "P"),
)
OTHER = Type("other", "Without a type", "tab:gray", "X")
TYPES = {kind.tag: kind for kind in (*_KNOWN, OTHER)}
STANDARD = "standard"


def type_of(tags: Sequence[str]) -> str:
    """The type among a model's tags."""
    return next((kind.tag for kind in _KNOWN if kind.tag in tags), OTHER.tag)
