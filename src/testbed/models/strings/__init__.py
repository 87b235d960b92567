"""Models given as strings, without a registry entry.

`timm:resnet50.tv_in1k`, `torchvision:resnet50/IMAGENET1K_V1`, `hub:owner/repo:name`, `open_clip:ViT-B-32/openai`, and
`hf:owner/name` or `hf:FOLDER` for transformers.
Size, crop, interpolation, mean and std come from the model's published configuration. Weights are looked for in the
folders of TESTBED_WEIGHTS before anything is downloaded. `onnx:FILE` is a network in a file. `blend:A+B@0.5`,
`ensemble:A+B` and `probe:BACKBONE@SETTING` are made of other models.
"""

from __future__ import annotations

import fnmatch
from importlib import import_module
from typing import TYPE_CHECKING

from testbed.entries.model import Model
from testbed.errors import UnknownName
from testbed.models.strings.names import LISTED, model_names

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

__all__ = ["LISTED", "expand", "is_model_string", "matching", "resolve"]

# Imported by name at first use, since each imports its package.
_MODULES = {
    "timm": "timm_models",
    "torchvision": "torchvision_models",
    "hub": "hub_models",
    "open_clip": "clip_models",
    "hf": "hf_models",
    "onnx": "onnx_models",
}
_MADE_OF_OTHERS = {"blend": "blends", "ensemble": "ensembles", "probe": "probes"}  # these look other models up

_EXAMPLES = {
    "timm": "timm:resnet50.tv_in1k",
    "torchvision": "torchvision:resnet50/IMAGENET1K_V1",
    "hub": "hub:chenyaofo/pytorch-cifar-models:cifar10_resnet20",
    "open_clip": "open_clip:ViT-B-32/openai",
}


def is_model_string(name: str) -> bool:
    return name.split(":", 1)[0] in {*_MODULES, *_MADE_OF_OTHERS} and ":" in name


def resolve(name: str, registry: Registry | None = None) -> Model:
    """The model of a string; one that is made of others needs the `registry` that has them."""
    kind, rest = name.split(":", 1)
    if not rest and kind in _EXAMPLES:
        raise UnknownName(f"'{name}': expected a model after the colon, such as {_EXAMPLES[kind]}")
    model: Model
    if kind in _MADE_OF_OTHERS:
        model = import_module(f"testbed.models.strings.{_MADE_OF_OTHERS[kind]}").resolve(name, rest, registry)
    else:
        model = import_module(f"testbed.models.strings.{_MODULES[kind]}").resolve(name, rest)
    return model


def expand(token: str, registry: Registry | None = None) -> list[str]:
    """The model strings that a glob or a grid of blends stands for; any other string is returned as it is."""
    kind, rest = token.split(":", 1)
    if kind in _MADE_OF_OTHERS:
        names: list[str] = import_module(f"testbed.models.strings.{_MADE_OF_OTHERS[kind]}").expand(
            token, rest, registry
        )
        return names
    return matching(token) if any(c in token for c in "*?[") else [token]


def matching(glob: str) -> list[str]:
    """All model strings that a glob such as `timm:resnet*` matches, without importing the package."""
    kind, pattern = glob.split(":", 1)
    if kind not in LISTED:
        raise UnknownName(f"'{glob}': globs work for timm:, torchvision: and open_clip: only")
    names = fnmatch.filter(model_names(kind), pattern)
    if not names:
        raise UnknownName(f"no {kind} model matches '{pattern}'")
    return [f"{kind}:{name}" for name in names]
