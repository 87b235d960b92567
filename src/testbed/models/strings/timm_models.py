"""`timm:resnet50.tv_in1k`: an architecture of timm with the weights of that tag."""

from __future__ import annotations

import math
from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import EntryError, UnknownName, near_names
from testbed.models.strings.names import ask_package
from testbed.models.weights import with_weights

# Number of outputs -> the class list of timm that they follow. These lists lack up to nine of ImageNet's 1000 classes.
_CLASS_LISTS = {
    11221: "imagenet21k_miil",
    11821: "imagenet12k",
    21841: "imagenet22k",
    21842: "imagenet22k_ms",
    21843: "imagenet21k_goog",
}


def resolve(name: str, rest: str) -> Model:
    import timm
    from timm.data import resolve_data_config

    arch, _, tag = rest.partition(".")
    if not timm.is_model(arch):
        raise UnknownName(f"timm has no model '{rest}'{near_names(rest, ask_package('timm'))}")
    try:
        pretrained = timm.get_pretrained_cfg(rest, allow_unregistered=False).to_dict()
    except RuntimeError as error:  # a tag timm does not know
        tags = [known.removeprefix(f"{arch}.") for known in ask_package("timm") if known.startswith(f"{arch}.")]
        expected = f"expected one of {', '.join(tags)}" if tags else "it has none"
        raise UnknownName(f"timm's {arch} has no weights '{tag}': {expected}") from error
    config = resolve_data_config(pretrained_cfg=pretrained)
    default = timm.get_pretrained_cfg(arch)
    default_tag = default.tag if default is not None else ""
    # A file <arch>.pth names no tag: it is used only for the tag that timm itself takes for the bare name.
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
        eval_batch_size=64,
        arch=arch,
        tags=("timm",),
        # Self-supervised networks have none, and give features.
        classes=() if pretrained.get("num_classes") == 0 else _CLASS_LISTS.get(pretrained.get("num_classes", 0)),
        missing_classes="never",
    )


def timm_transform(config: dict[str, Any]) -> StandardTransform:
    """timm's evaluation transform as data: resize to size / crop_pct, then crop; or squash to the size."""
    height, width = config["input_size"][-2:]
    # "random" is a training choice.
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
