"""`probe:BACKBONE@SETTING`: a head on the features of a frozen network, trained on the images of a setting.

A linear head, with `,C=0.1` for scikit-learn's C; or with `,knn=20` the votes of that many nearest training images.
A backbone whose name holds an @ stands in parentheses: `probe:(hub:owner/repo@main:name)@SETTING`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.entries.made_of import Probe
from testbed.entries.model import Model
from testbed.errors import UnknownName
from testbed.models.strings.composed import in_parentheses, options_at_end, split_outside

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

_OPTIONS = ("knn", "C")
_MOST_NEIGHBOURS = 10**6


def expand(name: str, rest: str, registry: Registry) -> list[str]:
    """One probe for each backbone that a glob matches."""
    probe = parsed(name, rest)
    if not any(sign in probe.backbone for sign in "*?["):
        return [name]
    options = rest.removeprefix(options_at_end(rest, _OPTIONS)[0])
    backbones = registry.expand_models([probe.backbone])
    return [f"probe:{in_parentheses(backbone, '@(')}@{probe.setting}{options}" for backbone in backbones]


def resolve(name: str, rest: str, registry: Registry) -> Model:
    """The backbone's entry with a head in place of its own classes."""
    probe = parsed(name, rest)
    registry.eval_setting(probe.setting)  # a wrong name is told before any work
    backbone = registry.model(probe.backbone)
    if backbone.made_of is not None:
        raise UnknownName(f"'{name}': expected a network as backbone, got '{probe.backbone}'")
    if backbone.statistics_from is not None:
        raise UnknownName(f"'{name}': expected a backbone as it is loaded, got a blend with bn=: blend without it")
    if backbone.classify is not None:
        raise UnknownName(
            f"'{name}': '{probe.backbone}' has a classify function of its own, whose features are not those of one "
            "image: declare the network without it"
        )
    return replace(
        backbone,
        name=name,
        feature_layer=None if backbone.feature_layer is None else f"backbone.{backbone.feature_layer}",
        explain_layer=None if backbone.explain_layer is None else f"backbone.{backbone.explain_layer}",
        tags=("probe",),
        classes=None,
        columns=None,
        own_classes=None,
        no_classes="",
        made_of=probe,
    )


def parsed(name: str, rest: str) -> Probe:
    text, options = options_at_end(rest, _OPTIONS)
    parts = split_outside(text, "@", name, most=1)
    if len(parts) != 2 or not all(parts):
        raise UnknownName(f"'{name}': expected probe:BACKBONE@SETTING such as probe:resnet50@val")
    if len(options) > 1:
        raise UnknownName(f"'{name}': expected knn=K for votes of neighbours or C=X for a linear head, got both")
    try:
        neighbours = int(options["knn"]) if "knn" in options else None
        c = float(options.get("C", 1.0))
    except ValueError:
        neighbours, c = 0, 0.0
    if (neighbours is not None and not 0 < neighbours <= _MOST_NEIGHBOURS) or not 0 < c < math.inf:
        (given,) = (f"{key}={value}" for key, value in options.items())
        raise UnknownName(f"'{name}': expected a whole number from 1 on as knn, a number above 0 as C, got {given}")
    return Probe(parts[0], parts[1], neighbours, c)
