"""`hf:OWNER/NAME[@REVISION]` or `hf:FOLDER`: an image classifier of transformers, from the hub or a folder."""

from __future__ import annotations

import importlib.util
from typing import Any

from testbed.entries.model import Model
from testbed.errors import ModelError, TestbedError, UnknownName
from testbed.models.class_names import classes_from, named_outputs
from testbed.models.strings.hf_processors import preparation_of, quiet_transformers
from testbed.models.strings.hub_files import ModelFolder, find_folder
from testbed.models.weights import checkpoint_is_given

_FORM = "hf:OWNER/NAME, hf:OWNER/NAME@REVISION or hf:FOLDER"
_MOST_KEYS = 3  # named in one message


def resolve(name: str, rest: str) -> Model:
    if importlib.util.find_spec("transformers") is None:
        raise UnknownName(f"'{name}' needs the package transformers: pip install 'transformers>=5.0'")
    folder = find_folder(name, rest, _FORM)
    try:
        config = folder.config()
        _refuse_others(folder, config)
        where = f"{folder.origin}/config.json"
        classes = classes_from(named_outputs(config.get("id2label"), where), where)
        preparation = preparation_of(folder)
    except TestbedError as error:
        raise UnknownName(f"'{name}': {error}") from error
    return Model(
        name=name,
        transform=preparation.transform,
        normalization=preparation.normalization,
        classifier_loader=lambda: _network(folder),
        eval_batch_size=64,
        arch=config.get("model_type"),
        tags=("hf",),
        input_note=preparation.note,
        **classes,
    )


def _refuse_others(folder: ModelFolder, config: dict[str, Any]) -> None:
    """Models of timm have a string of their own; whatever has no head for classes, or brings its code, is not run."""
    if "architecture" in config or config.get("model_type") == "timm_wrapper":
        string = f"timm:hf-hub:{folder.origin}" if folder.repository else f"timm:local-dir:{folder.path}"
        raise ModelError(f"this is a model of timm: expected {string}")
    if not config.get("model_type"):
        raise ModelError("expected model_type in config.json, as transformers writes it, got none")
    if config.get("auto_map"):
        raise ModelError("the model needs Python code of its repository, which is not run: write an entry for it")
    heads = [str(name) for name in config.get("architectures") or ()]
    if heads and not any("ForImageClassification" in name for name in heads):
        raise ModelError(f"expected an image classifier (...ForImageClassification), got {', '.join(heads)}")


def _network(folder: ModelFolder) -> Any:
    if checkpoint_is_given():  # transformers renames tensors while it loads a folder
        raise ModelError("--checkpoint is not for hf: models: save_pretrained(FOLDER) yours, and give hf:FOLDER")
    import torch
    from transformers import AutoConfig, AutoModelForImageClassification

    with quiet_transformers():
        config = AutoConfig.from_pretrained(folder.path, local_files_only=True)
        folder.with_weights()
        network, told = AutoModelForImageClassification.from_pretrained(
            folder.path,
            config=config,
            dtype=torch.float32,  # else the file's own, which may be half precision
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # told below, in one line
        )
    # transformers itself would go on with random numbers in their place.
    absent = sorted(str(key) for key in told["missing_keys"])
    if absent:
        raise ModelError(f"the weights of {folder.origin} have no {_listed(absent)}: they hold no trained classifier")
    other = sorted(str(key[0] if isinstance(key, tuple) else key) for key in told["mismatched_keys"])
    if other:
        raise ModelError(f"the weights of {folder.origin} have other sizes than config.json says: {_listed(other)}")
    return network


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - _MOST_KEYS} more" if len(keys) > _MOST_KEYS else ""
    return f"{', '.join(keys[:_MOST_KEYS])}{more}"
