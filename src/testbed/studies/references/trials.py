"""The trials of a diagnosis: an evaluation with one thing changed, and how it is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from testbed.data.transforms import StandardTransform
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model, StandardNormalization
from testbed.entries.registry import Registry
from testbed.errors import TestbedError
from testbed.store.outputs import Outputs
from testbed.studies.references.table import Check

# Normalisations and crops that are in use elsewhere, and so are likely mistakes.
_NORMALISATIONS: dict[str, StandardNormalization | None] = {
    "ImageNet's mean and std": StandardNormalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mean 0.5 and std 0.5": StandardNormalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none, pixels from 0 to 1": None,
    "none, pixels from 0 to 255": StandardNormalization((0, 0, 0), (1 / 255, 1 / 255, 1 / 255)),
}
_CROP_RATIOS = (0.875, 0.9, 1.0)
_INTERPOLATIONS = ("bilinear", "bicubic", "nearest")


@dataclass(frozen=True)
class Trial:
    """A model and a setting with one thing changed."""

    cause: str
    change: str
    model: Model
    setting: EvalSetting


def trials_of(
    registry: Registry, model: Model, setting: EvalSetting, checks: Sequence[Check], roots: Sequence[Path]
) -> Iterator[Trial]:
    """All trials for a model on a setting; the first changes nothing."""
    # Cached, so that the weights are loaded once for all trials.
    model = replace(model, classifier_loader=cache(model.classifier_loader))
    yield Trial("stored result", "run again as registered now", model, setting)
    for change, normalization in _normalisations(model):
        yield Trial("normalisation", change, replace(model, normalization=normalization), setting)
    transform = setting.transforms_for(model)[1]
    if isinstance(model.transform, StandardTransform) and isinstance(transform, StandardTransform):
        for change, other in _geometries(model.transform, transform, setting):
            # setting.resize would replace the transform that is tried, so it is switched off.
            yield Trial("resize and crop", change, replace(model, transform=other), replace(setting, resize=None))
        # Interpolation matters only where pictures are resized.
        if not _fits(setting, transform, roots):
            for kind in _INTERPOLATIONS:
                if kind != transform.interpolation:
                    other = replace(model.transform, interpolation=kind)
                    yield Trial("interpolation", kind, replace(model, transform=other), setting)
    for name in dict.fromkeys(n for c in checks for n in c.reference.models if n != model.name):
        try:
            yield Trial("loading route", name, registry.model(name), setting)
        except TestbedError:
            continue  # a name that cannot be loaded here


def _normalisations(model: Model) -> Iterator[tuple[str, StandardNormalization | None]]:
    own = model.normalization
    for change, other in _NORMALISATIONS.items():
        if other != own:
            yield change, other
    if isinstance(own, StandardNormalization):
        space = "BGR" if own.input_space == "RGB" else "RGB"
        yield f"{space} instead of {own.input_space}", replace(own, input_space=space)


def _geometries(
    own: StandardTransform, used: StandardTransform, setting: EvalSetting
) -> Iterator[tuple[str, StandardTransform]]:
    """Other transforms to the same input size.

    For a setting that shows whole pictures the model's own resize and crop is tried, since it is the usual mistake.
    """
    crop = own.img_crop_size
    tried = [used]
    candidates = [("the whole picture, nothing cropped", own.whole()), (_described(own), own)]
    if isinstance(crop, int) and setting.resize is None:
        others = [StandardTransform(math.floor(crop / ratio), crop, own.interpolation) for ratio in _CROP_RATIOS]
        candidates += [(_described(other), other) for other in others]
    for change, candidate in candidates:
        if candidate not in tried:
            tried.append(candidate)
            yield change, candidate


def _described(transform: StandardTransform) -> str:
    return f"shorter side to {transform.img_resize_size}, centre crop of {transform.img_crop_size}"


def _fits(setting: EvalSetting, transform: StandardTransform, roots: Sequence[Path]) -> bool:
    """Whether the first picture has the input size already, as stimuli made for it do, and is not resized."""
    assert setting.dataset is not None
    try:
        image = setting.dataset.open(roots).load(0)
        size = setting.transform(image).size if setting.transform else image.size
    except TestbedError:
        return False
    return transform.img_crop_size is None and transform.img_resize_size == (size[1], size[0])


def run(
    trial: Trial, indices: np.ndarray, checkpoint: str | None, roots: Sequence[Path], devices: Sequence[str] | None
) -> Outputs:
    """The outputs of a trial on these images of the dataset, computed by the same code as every evaluation."""
    from testbed.engine.batch_norm import load_model
    from testbed.engine.devices import chosen_devices
    from testbed.engine.predict import predict_all
    from testbed.options import RunOptions

    chosen = [int(i) for i in indices]
    # Only the chosen images, with the noise that they have in the whole setting.
    setting = replace(
        trial.setting, idx_subsample_list=chosen, size=None, controls=(), noise_from=trial.setting.noise_key
    )
    options = RunOptions(data_roots=tuple(map(str, roots)), cache_gb=0, checkpoint=checkpoint)
    device = next(iter(devices or chosen_devices()))
    return predict_all(load_model(trial.model, device, options), setting, options)
