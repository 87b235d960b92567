"""Zero-shot classifiers: a CLIP model compares a picture with sentences that contain the class names.

`zero_shot("ViT-B-32/openai", prompts="file.json")` is the classifier_loader of an entry; the model string
`open_clip:ViT-B-32/openai` needs no entry. open_clip is optional: the extra `clip`.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.data.regular import regular
from testbed.errors import EntryError, ModelError, UnknownName, near_names
from testbed.models.weights import with_weights

__all__ = ["AVERAGES", "Prompts", "clip_weights", "imagenet_prompts", "open_clip", "read_prompts", "zero_shot"]

# What is averaged over the sentences of one class:
AVERAGES = (
    "embeddings",  # text embeddings of length 1; the mean is normalised again (OpenAI)
    "raw-embeddings",  # text embeddings as computed; only the mean is normalised (the ImageNet Testbed of 2020)
    "logits",  # the sentences' logits
    "probabilities",  # the probabilities over classes that each template gives
)
_WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class Prompts:
    """Class names in the order of the outputs, templates with {} for the name, and the classes' wnids if known."""

    names: tuple[str, ...]
    templates: tuple[str, ...]
    wnids: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.names or not self.templates:
            raise EntryError("prompts: expected at least one class and one template")
        bare = [t for t in self.templates if not isinstance(t, str) or "{}" not in t]
        if bare:
            raise EntryError(f"prompts: a template holds {{}} where the class name goes, got {bare[0]!r}")

    def sentences(self, name: str) -> list[str]:
        return [template.replace("{}", name) for template in self.templates]


def read_prompts(path: str | os.PathLike[str]) -> Prompts:
    """Prompts from JSON: {"classes": {"n01440764": "tench", ...} or ["tench", ...], "templates": ["a {}.", ...]}"""
    try:
        content = json.loads(regular(path).read_text(encoding="utf-8"))
        classes, templates = content["classes"], tuple(content["templates"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EntryError(
            f"prompts {path}: expected a JSON file with 'classes' and 'templates': {type(error).__name__}: {error}"
        ) from error
    if isinstance(classes, dict):
        strangers = [wnid for wnid in classes if not _WNID.fullmatch(wnid)]
        if strangers:
            raise EntryError(f"prompts {path}: expected wnids before the class names, got {strangers[0]!r}")
        return Prompts(tuple(map(str, classes.values())), templates, tuple(classes))
    return Prompts(tuple(map(str, classes)), templates)


def imagenet_prompts() -> Prompts:
    """OpenAI's 1000 class names and 80 templates, which open_clip contains."""
    clip = open_clip()
    return Prompts(tuple(clip.IMAGENET_CLASSNAMES), tuple(t("{}") for t in clip.OPENAI_IMAGENET_TEMPLATES))


def zero_shot(
    name: str, prompts: str | os.PathLike[str] | None = None, average: str = "embeddings"
) -> Callable[[], Any]:
    """A loader of open_clip's `architecture/weights` as a classifier; without prompts, of ImageNet's classes."""
    if average not in AVERAGES:
        raise EntryError(f"zero-shot {name}: average must be one of {', '.join(AVERAGES)}, got {average!r}")

    def load() -> Any:
        from testbed.models.strings.clip_network import ZeroShotClassifier

        clip = open_clip()
        arch, tag, config = clip_weights(name)
        # Weights trained with QuickGELU need it; open_clip only warns where it is missing.
        quick = bool(config.get("quick_gelu"))
        logging.disable(logging.WARNING)  # open_clip warns that the weights are random; they are loaded below
        try:
            bare = clip.create_model(arch, pretrained_text=False, force_quick_gelu=quick)
        finally:
            logging.disable(logging.NOTSET)
        network = with_weights(
            bare,
            f"{arch}.{tag}",
            fallback=lambda: clip.create_model(arch, pretrained=tag, force_quick_gelu=quick).state_dict(),
        )
        texts = imagenet_prompts() if prompts is None else read_prompts(prompts)
        return ZeroShotClassifier(network, clip.get_tokenizer(arch), texts, average)

    return load


def clip_weights(name: str) -> tuple[str, str, dict[str, Any]]:
    """Architecture, tag and open_clip's configuration of `ViT-B-32/openai`."""
    clip = open_clip()
    arch, _, tag = name.partition("/")
    every = [f"{a}/{t}" for a, t in clip.list_pretrained()]
    if name not in every:
        raise UnknownName(f"open_clip has no model '{name}'{near_names(name, every)}")
    return arch, tag, dict(clip.get_pretrained_cfg(arch, tag))


def open_clip() -> Any:
    if importlib.util.find_spec("open_clip") is None:
        raise ModelError("zero-shot models need the package open_clip_torch: pip install open_clip_torch")
    import open_clip as package

    return package
