"""`timm:resnet50.tv_in1k`: an architecture of timm with the weights of that tag; or `timm:hf-hub:OWNER/NAME[@REVISION]`
and `timm:local-dir:FOLDER`, as timm itself calls models that are saved in a folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import EntryError, ModelError, UnknownName, near_names
from testbed.models.class_names import CLASS_LISTS, classes_from
from testbed.models.strings.hub_files import find_folder
from testbed.models.strings.names import ask_package
from testbed.models.weights import checkpoint_is_given, with_weights

_HUB = ("hf-hub", "hf_hub")
_FOLDER = "local-dir"
# What a configuration says of its pictures; timm has defaults for what it leaves out.
_INPUT_WORDS = ("input_size", "interpolation", "mean", "std", "crop_pct")
_NO_HEAD = "has no head: it gives features, and no classes; probe:NAME@SETTING trains one"


def resolve(name: str, rest: str) -> Model:
    import timm
    from timm.data import resolve_data_config

    source, colon, place = rest.partition(":")
    if colon and source in (*_HUB, _FOLDER):
        return _from_folder(name, source, place)
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

    return _entry(name, arch, config, load, **_outputs(arch, pretrained.get("num_classes", 0), published=True))


def _from_folder(name: str, source: str, place: str) -> Model:
    """A model of `save_for_hf`, in a folder or a repository of the hub: config.json and weights."""
    import timm
    from timm.data import resolve_data_config
    from timm.models import PretrainedCfg
    from timm.models._hub import load_model_config_from_path

    form = "timm:hf-hub:OWNER/NAME or timm:hf-hub:OWNER/NAME@REVISION" if source in _HUB else "timm:local-dir:FOLDER"
    folder = find_folder(name, place, form, "hub" if source in _HUB else "local")
    if "architecture" not in folder.config():
        raise UnknownName(
            f"'{name}': expected a model of timm, whose config.json names its architecture: is it hf:{place}?"
        )
    told, arch, arguments = load_model_config_from_path(folder.path)
    if not timm.is_model(arch):
        raise UnknownName(f"'{name}': timm has no model '{arch}'{near_names(arch, timm.list_models())}")
    left_out = [word for word in _INPUT_WORDS if word not in told]
    known = {field.name for field in fields(PretrainedCfg)}
    pretrained = PretrainedCfg(**{word: value for word, value in told.items() if word in known}).to_dict()
    config = resolve_data_config(pretrained_cfg=pretrained)
    note = f"{folder.origin}/config.json says no {', '.join(left_out)}: timm's default is assumed" if left_out else ""

    def load() -> Any:
        string = f"{_FOLDER}:{folder.path}"
        if checkpoint_is_given():
            return with_weights(timm.create_model(string, pretrained=False))
        folder.with_weights()
        try:
            return timm.create_model(string, pretrained=True)
        except (RuntimeError, AttributeError) as error:  # torch lists every tensor, a line each
            raise ModelError(
                f"the weights of {folder.origin} do not fit: {' '.join(str(error).split())[:300]}"
            ) from error

    names = told.get("label_names")
    count = arguments.get("num_classes", pretrained["num_classes"])
    where = f"{folder.origin}/config.json"
    named = names and len(names) == count
    outputs = classes_from(list(map(str, names)), where) if named else _outputs(arch, count)
    return _entry(name, arch, config, load, input_note=note, **outputs)


def _entry(name: str, arch: str, config: dict[str, Any], load: Callable[[], Any], **more: Any) -> Model:
    return Model(
        name=name,
        transform=timm_transform(config),
        normalization=StandardNormalization(mean=config["mean"], std=config["std"]),
        classifier_loader=load,
        eval_batch_size=64,
        arch=arch,
        tags=("timm",),
        **more,
    )


def _outputs(arch: str, count: int, published: bool = False) -> dict[str, Any]:
    """The words of a Model that say what `count` outputs without names are."""
    import timm

    if count == 0:
        return {"no_classes": _NO_HEAD}
    if count == 1000 or count in CLASS_LISTS:
        return {"classes": CLASS_LISTS.get(count), "missing_classes": "never"}
    tags = timm.list_models(f"{arch}.*", pretrained=True)
    if published or count in {timm.get_pretrained_cfg(tag).num_classes for tag in tags}:
        return {
            "no_classes": f"gives {count} numbers that follow no known list of classes, as the embeddings of CLIP do"
        }
    return {"own_classes": count}


def timm_transform(config: dict[str, Any]) -> StandardTransform:
    """timm's evaluation transform as data: resize to size / crop_pct in the way of the crop mode, then crop."""
    height, width = config["input_size"][-2:]
    # "random" is a training choice.
    interpolation = config["interpolation"] if config["interpolation"] != "random" else "bilinear"
    scaled = (math.floor(height / config["crop_pct"]), math.floor(width / config["crop_pct"]))
    mode = config.get("crop_mode") or "center"
    if mode == "squash":
        return StandardTransform(scaled, (height, width), interpolation)
    if mode == "border":
        fill = tuple(round(255 * value) for value in config["mean"])
        return StandardTransform(scaled, (height, width), interpolation, fit="contain", fill=fill)
    if mode != "center":
        raise EntryError(
            f"timm: expected crop_mode center, squash or border, got '{mode}'; write an entry for this model"
        )
    if scaled[0] != scaled[1]:
        return StandardTransform(scaled, (height, width), interpolation, fit="cover")
    return StandardTransform(scaled[0], height if height == width else (height, width), interpolation)
