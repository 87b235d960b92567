"""The explainers by name, with their options. Imports no torch, so that names can be checked when settings are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

from testbed.errors import EntryError, near_names


@dataclass(frozen=True)
class Kind:
    """Module and function of an explainer, and its options with their defaults.

    `needs` are further arguments that are not options; a probe provides them.
    """

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
    # Published: 4,000 masks and more.
    "rise": Kind("testbed.explain.rise", "rise", {"masks": 256, "cells": 7, "keep": 0.5, "seed": 0}, ("batch_size",)),
    "inputgrad": Kind("testbed.explain.input_gradient", "input_gradient", {"times_input": False}),
    "random": Kind("testbed.explain.controls", "random_map", needs=("rng",)),
    "centre": Kind("testbed.explain.controls", "centre_map", {"sigma": 0.25}),
    "integrated-gradients": Kind(_CAPTUM, "integrated_gradients", {"steps": 16}, ("batch_size",)),
    "occlusion": Kind(_CAPTUM, "occlusion", {"window": 48, "stride": 32}, ("batch_size",)),
    "lime": Kind(_CAPTUM, "lime", {"samples": 128, "cells": 7, "seed": 0}, ("batch_size",)),
    "shap": Kind(_CAPTUM, "kernel_shap", {"samples": 128, "cells": 7, "seed": 0}, ("batch_size",)),
}
# (lowest, highest) of whole numbers that a user may give by name: sizes are compared before anything is made of them.
_SIZES = {
    "cells": (1, 512),
    "seed": (0, 2**31 - 1),
    "whole_points": (0, 10_000),
    "batch_size": (0, 65_536),
    "most": (1, 1000),
    "step": (0, 1_000_000),
    "smooth_len": (0, 1_000_000),
    "max_points": (0, 1_000_000),
}
_OTHER_SIZES = (1, 1_000_000)
CAPTUM = tuple(name for name, kind in EXPLAINERS.items() if kind.module == _CAPTUM)


def kind_of(name: str) -> Kind:
    """The explainer of that name; an EntryError with near names if there is none."""
    if name not in EXPLAINERS:
        near = near_names(name, EXPLAINERS) or f"; there are {', '.join(EXPLAINERS)}"
        raise EntryError(f"no explainer '{name}'{near}")
    return EXPLAINERS[name]


def checked_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of an explainer: the defaults, overridden by `options`, each converted to the type of its default."""
    kind = kind_of(name)
    chosen = dict(kind.options)
    for key, value in options.items():
        if key not in chosen:
            known = ", ".join(chosen) or "none"
            raise EntryError(f"explainer '{name}' has no option '{key}'; it takes {known}")
        chosen[key] = as_type_of(chosen[key], value, key, f"explainer '{name}': {key}")
    return chosen


def as_type_of(default: Any, value: Any, key: str, what: str = "") -> Any:
    """`value` of the option `key`, which may be text from the command line, converted to the type of `default`."""
    wanted, what = type(default), what or key
    if wanted is bool and isinstance(value, str):  # bool("false") is True
        if value.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise EntryError(f"{what}: expected true or false, got {value!r}")
        return value.lower() in ("true", "yes", "1")
    try:
        converted = wanted(value)
    except (TypeError, ValueError) as error:
        raise EntryError(f"{what}: expected a {wanted.__name__}, got {value!r}") from error
    if wanted is int:
        least, most = _SIZES.get(key, _OTHER_SIZES)
        if not least <= converted <= most or converted != (converted if isinstance(value, str) else value):
            raise EntryError(f"{what}: expected a whole number from {least} to {most}, got {value!r}")
    if wanted is float and not math.isfinite(converted):
        raise EntryError(f"{what}: expected a number, got {value!r}")
    return converted


def make_explainer(name: str, *, available: Mapping[str, Any] | None = None, **options: Any) -> Callable[..., Any]:
    """The explainer of that name as a function (model, images, score) -> maps.

    available: arguments that some explainers need besides their options; each takes those that it needs.
    """
    kind = kind_of(name)
    # An empty text, such as of `layer`, leaves the choice to the explainer.
    chosen = {k: v for k, v in checked_options(name, options).items() if v != ""}
    provided = {k: v for k, v in (available or {}).items() if k in kind.needs and v is not None}
    return partial(getattr(import_module(kind.module), kind.function), **chosen, **provided)
