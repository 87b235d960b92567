"""The explainers by name, with the options each takes. Imports no torch: a name is checked long before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from testbed.errors import EntryError, near_names


@dataclass(frozen=True)
class Kind:
    """Where an explainer lives and what may be chosen about it; `needs` is what a probe hands it beside that."""

    module: str
    function: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


CONTROLS = ("random", "centre")
_CAPTUM = "testbed.explain.captum_adapter"
EXPLAINERS = {
    "gradcam": Kind("testbed.explain.grad_cam", "grad_cam", {"layer": ""}),
    "cwox-gradcam": Kind(
        "testbed.explain.cwox",
        "cwox_grad_cam",
        {"layer": "", "class_layer": "", "percentile": 50.0},
        ("clusters",),
    ),
    "rise": Kind("testbed.explain.rise", "rise", {"masks": 256, "cells": 7, "keep": 0.5, "seed": 0}, ("batch_size",)),
    "inputgrad": Kind("testbed.explain.input_gradient", "input_gradient", {"times_input": False}),
    "random": Kind("testbed.explain.controls", "random_map", needs=("rng",)),
    "centre": Kind("testbed.explain.controls", "centre_map", {"sigma": 0.25}),
    "integrated-gradients": Kind(_CAPTUM, "integrated_gradients", {"steps": 16}, ("batch_size",)),
    "occlusion": Kind(_CAPTUM, "occlusion", {"window": 48, "stride": 32}, ("batch_size",)),
    "lime": Kind(_CAPTUM, "lime", {"samples": 128, "cells": 7, "seed": 0}, ("batch_size",)),
    "shap": Kind(_CAPTUM, "kernel_shap", {"samples": 128, "cells": 7, "seed": 0}, ("batch_size",)),
}
CAPTUM = tuple(name for name, kind in EXPLAINERS.items() if kind.module == _CAPTUM)


def kind_of(name: str) -> Kind:
    if name not in EXPLAINERS:
        near = near_names(name, EXPLAINERS) or f"; there are {', '.join(EXPLAINERS)}"
        raise EntryError(f"no explainer '{name}'{near}")
    return EXPLAINERS[name]


def checked_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The explainer's options with these changed, each of the type of its default."""
    kind = kind_of(name)
    chosen = dict(kind.options)
    for key, value in options.items():
        if key not in chosen:
            known = ", ".join(chosen) or "none"
            raise EntryError(f"explainer '{name}' has no option '{key}'; it takes {known}")
        chosen[key] = as_type_of(chosen[key], value, f"explainer '{name}': {key}")
    return chosen


def as_type_of(default: Any, value: Any, what: str) -> Any:
    """`value`, perhaps a text from the command line, as what `default` is."""
    wanted = type(default)
    if wanted is bool and isinstance(value, str):
        if value.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise EntryError(f"{what}: expected true or false, got {value!r}")
        return value.lower() in ("true", "yes", "1")
    try:
        return wanted(value)
    except (TypeError, ValueError) as error:
        raise EntryError(f"{what}: expected a {wanted.__name__}, got {value!r}") from error


def make_explainer(name: str, *, available: Mapping[str, Any] | None = None, **options: Any) -> Callable[..., Any]:
    """The function (model, images, score) -> maps of that name; `available` may hold what some explainers need."""
    kind = kind_of(name)
    chosen = {k: v for k, v in checked_options(name, options).items() if v != ""}
    given = {k: v for k, v in (available or {}).items() if k in kind.needs and v is not None}
    return partial(getattr(import_module(kind.module), kind.function), **chosen, **given)
