"""`torchvision:resnet50/IMAGENET1K_V1`: a classifier of torchvision with weights of that name."""

from __future__ import annotations

from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import UnknownName, near_names
from testbed.models.weights import with_weights


def resolve(name: str, rest: str) -> Model:
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
        # A file <arch>.pth names no weights: it is used only for those that were published first.
        names = (file_name, f"{arch}.pth") if weights is every[tags[0]] else (file_name,)
        return with_weights(
            get_model(arch, weights=None, **init_arguments(arch, weights)),
            *names,
            fallback=lambda: weights.get_state_dict(progress=False, check_hash=True),
        )

    return Model(
        name=name,
        transform=StandardTransform(preset.resize_size[0], preset.crop_size[0], preset.interpolation.value),
        normalization=StandardNormalization(mean=preset.mean, std=preset.std),
        classifier_loader=load,
        eval_batch_size=64,
        arch=arch,
        tags=("torchvision",),
    )


def init_arguments(arch: str, weights: Any) -> dict[str, Any]:
    """Constructor arguments that torchvision's own builders derive from the weights."""
    if arch in ("googlenet", "inception_v3"):  # the files contain auxiliary heads, and expect inputs scaled as in 2015
        return {"init_weights": False, "transform_input": True}
    if arch.startswith("vit_"):  # the position embedding has one entry per patch, so the size is fixed
        return {"image_size": weights.meta["min_size"][0]}
    return {}
