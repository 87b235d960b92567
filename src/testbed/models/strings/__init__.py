"""Models given as strings, without a registry entry.

`timm:resnet50.tv_in1k`, `torchvision:resnet50/IMAGENET1K_V1`, `hub:owner/repo:name` and `open_clip:ViT-B-32/openai`.
Size, crop, interpolation, mean and std come from the model's published configuration. Weights are looked for in the
folders of TESTBED_WEIGHTS before anything is downloaded.
"""

from __future__ import annotations

import fnmatch
from importlib import import_module

from testbed.entries.model import Model
from testbed.errors import UnknownName
from testbed.models.strings.names import LISTED, model_names

__all__ = ["LISTED", "expand", "is_model_string", "matching", "resolve"]

# Imported by name at first use, since each imports its package.
_MODULES = {"timm": "timm_models", "torchvision": "torchvision_models", "hub": "hub_models", "open_clip": "clip_models"}

_EXAMPLES = {
    "timm": "timm:resnet50.tv_in1k",
    "torchvision": "torchvision:resnet50/IMAGENET1K_V1",
    "hub": "hub:chenyaofo/pytorch-cifar-models:cifar10_resnet20",
    "open_clip": "open_clip:ViT-B-32/openai",
}


def is_model_string(name: str) -> bool:
    return name.split(":", 1)[0] in _MODULES and ":" in name


def resolve(name: str) -> Model:
    kind, rest = name.split(":", 1)
    if not rest:
        raise UnknownName(f"'{name}': expected a model after the colon, such as {_EXAMPLES[kind]}")
    model: Model = import_module(f"testbed.models.strings.{_MODULES[kind]}").resolve(name, rest)
    return model


def expand(token: str) -> list[str]:
    """The model strings that a glob matches; a string without wildcards is returned as it is."""
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
