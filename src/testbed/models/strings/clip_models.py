"""`open_clip:ViT-B-32/openai`: a zero-shot classifier of open_clip, with `,prompts=FILE` and `,average=WORD`."""

from __future__ import annotations

from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import EntryError, UnknownName
from testbed.models.zero_shot import clip_weights, open_clip, read_prompts, zero_shot


def resolve(name: str, rest: str) -> Model:
    string, *pairs = rest.split(",")
    options = dict(pair.partition("=")[::2] for pair in pairs)
    unknown = [key for key in options if key not in ("prompts", "average")]
    if unknown:
        raise UnknownName(f"'{name}': expected ,prompts=FILE or ,average=WORD after the model, got '{unknown[0]}'")
    arch, _, config = clip_weights(string)
    loader = zero_shot(string, options.get("prompts"), options.get("average", "embeddings"))
    return Model(
        name=name,
        transform=clip_transform(open_clip().get_model_config(arch)["vision_cfg"]["image_size"], config),
        normalization=StandardNormalization(mean=config["mean"], std=config["std"]),
        classifier_loader=loader,
        eval_batch_size=64,
        arch=arch,
        tags=("open_clip", "zero-shot"),
        classes=read_prompts(options["prompts"]).wnids if "prompts" in options else None,
    )


def clip_transform(size: int | tuple[int, int], config: dict[str, Any]) -> StandardTransform:
    """open_clip's inference transform as a StandardTransform."""
    size = size if isinstance(size, int) else (size[0], size[1])
    mode = config.get("resize_mode", "shortest")
    if mode == "squash":
        return StandardTransform((size, size) if isinstance(size, int) else size, None, config["interpolation"])
    # A mode that is not known here must not be replaced by a similar one: the accuracy would be slightly off.
    if mode != "shortest" or not isinstance(size, int):
        raise EntryError(f"open_clip: resize_mode '{mode}' with input {size} is not known; write an entry for it")
    return StandardTransform(size, size, config["interpolation"])
