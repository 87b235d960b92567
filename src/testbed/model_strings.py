"""Models without an entry: `timm:resnet50.tv_in1k`, `torchvision:resnet50/IMAGENET1K_V1`, `hub:owner/repo:name`.

Size, crop, interpolation, mean and std come from the model's own configuration. Local weights in
TESTBED_WEIGHTS go before any download.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable
from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries import Model, StandardNormalization
from testbed.errors import EntryError, UnknownName, near_names
from testbed.weights import find_local, with_weights

_BATCH_SIZE = 64
_IMAGENET = StandardNormalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def is_model_string(name: str) -> bool:
    return name.split(":", 1)[0] in _RESOLVERS and ":" in name


def resolve(name: str) -> Model:
    kind, rest = name.split(":", 1)
    return _RESOLVERS[kind](name, rest)


def expand(token: str) -> list[str]:
    """The model strings a glob stands for; a plain string stands for itself."""
    kind, pattern = token.split(":", 1)
    if not any(c in pattern for c in "*?["):
        return [token]
    if kind not in _LISTS:
        raise UnknownName(f"'{token}': globs work for {' and '.join(f'{k}:' for k in _LISTS)} only")
    found = fnmatch.filter(_LISTS[kind](), pattern)
    if not found:
        raise UnknownName(f"no {kind} model matches '{pattern}'")
    return [f"{kind}:{name}" for name in found]


# ---- timm -----------------------------------------------------------------------------------------------


def _timm_names() -> list[str]:
    import timm

    return list(timm.list_models(pretrained=True, include_tags=True))


def _timm(name: str, rest: str) -> Model:
    import timm
    from timm.data import resolve_data_config

    if not timm.is_model(rest.split(".", 1)[0]):
        raise UnknownName(f"timm has no model '{rest}'{near_names(rest, _timm_names())}")
    try:
        pretrained = timm.get_pretrained_cfg(rest, allow_unregistered=False).to_dict()
    except RuntimeError as error:  # a tag timm does not know
        raise UnknownName(f"timm: {error}{near_names(rest, _timm_names())}") from error
    config = resolve_data_config(pretrained_cfg=pretrained)
    arch, _, tag = rest.partition(".")
    default = timm.get_pretrained_cfg(arch)
    default_tag = default.tag if default is not None else ""
    # A plain <arch>.pth carries no tag: it is taken only for the weights that a plain name stands for.
    names = [f"{arch}.{tag or default_tag}"] + ([f"{arch}.pth"] if tag in ("", default_tag) else [])

    def load() -> Any:
        return with_weights(
            timm.create_model(rest, pretrained=False),
            *names,
            fallback=lambda: timm.create_model(rest, pretrained=True).state_dict(),
        )

    return Model(
        name=name,
        transform=timm_transform(config),
        normalization=StandardNormalization(mean=config["mean"], std=config["std"]),
        classifier_loader=load,
        eval_batch_size=_BATCH_SIZE,
        arch=arch,
        tags=("timm",),
    )


def timm_transform(config: dict[str, Any]) -> StandardTransform:
    """timm's evaluation transform as data: resize to size / crop_pct, then crop; or squash to the size."""
    height, width = config["input_size"][-2:]
    interpolation = config["interpolation"] if config["interpolation"] != "random" else "bilinear"
    scaled = (math.floor(height / config["crop_pct"]), math.floor(width / config["crop_pct"]))
    mode = config.get("crop_mode") or "center"
    if mode == "squash":
        return StandardTransform(scaled, (height, width), interpolation)
    if mode != "center" or height != width:
        raise EntryError(
            f"timm: crop_mode '{mode}' with input {height}x{width} is not known; write an entry for this model"
        )
    return StandardTransform(scaled[0], height, interpolation)


# ---- torchvision ----------------------------------------------------------------------------------------


def _torchvision_names() -> list[str]:
    from torchvision.models import get_model_weights, list_models

    classifiers = (n for n in list_models() if "/" not in n)
    return [
        f"{name}/{weights.name}"
        for name in classifiers
        if not name.startswith("quantized_")
        for weights in get_model_weights(name)
        if "ImageClassification" in repr(weights.transforms)
    ]


def _torchvision(name: str, rest: str) -> Model:
    from torchvision.models import get_model, get_model_weights, list_models

    arch, _, tag = rest.partition("/")
    if arch not in list_models():
        raise UnknownName(f"torchvision has no model '{arch}'{near_names(arch, list_models())}")
    every = get_model_weights(arch)
    tags = [w.name for w in every]
    if tag and tag != "DEFAULT" and tag not in tags:
        raise UnknownName(f"torchvision's {arch} has no weights '{tag}': expected one of {', '.join(tags)}")
    weights = every[tag or "DEFAULT"]
    if "ImageClassification" not in repr(weights.transforms):
        raise UnknownName(f"torchvision's {arch} is no image classifier")
    preset = weights.transforms()

    def load() -> Any:
        file_name = weights.url.rsplit("/", 1)[-1]
        # A plain <arch>.pth carries no tag: it is taken only for the weights that were published first.
        names = (file_name, f"{arch}.pth") if weights is every[tags[0]] else (file_name,)
        return with_weights(
            get_model(arch, weights=None, **_init_arguments(arch)),
            *names,
            fallback=lambda: weights.get_state_dict(progress=False, check_hash=True),
        )

    return Model(
        name=name,
        transform=StandardTransform(preset.resize_size[0], preset.crop_size[0], preset.interpolation.value),
        normalization=StandardNormalization(mean=preset.mean, std=preset.std),
        classifier_loader=load,
        eval_batch_size=_BATCH_SIZE,
        arch=arch,
        tags=("torchvision",),
    )


def _init_arguments(arch: str) -> dict[str, Any]:
    """googlenet and inception_v3 weights come with the auxiliary heads and the 2015 input scaling."""
    return {"init_weights": False, "transform_input": True} if arch in ("googlenet", "inception_v3") else {}


# ---- torch.hub ------------------------------------------------------------------------------------------


def _hub(name: str, rest: str) -> Model:
    repository, _, entry = rest.rpartition(":")
    if "/" not in repository or not entry:
        raise UnknownName(f"'{name}': expected hub:owner/repository:name")

    def load() -> Any:
        import torch

        if find_local(entry) is not None:
            return with_weights(torch.hub.load(repository, entry, pretrained=False, trust_repo=True), entry)
        return torch.hub.load(repository, entry, pretrained=True, trust_repo=True)

    # torch.hub carries no input configuration: the usual one of ImageNet classifiers is assumed and recorded.
    return Model(
        name=name,
        transform=StandardTransform(256, 224),
        normalization=_IMAGENET,
        classifier_loader=load,
        eval_batch_size=_BATCH_SIZE,
        arch=entry,
        tags=("hub",),
    )


_RESOLVERS: dict[str, Callable[[str, str], Model]] = {"timm": _timm, "torchvision": _torchvision, "hub": _hub}
_LISTS: dict[str, Callable[[], list[str]]] = {"timm": _timm_names, "torchvision": _torchvision_names}
