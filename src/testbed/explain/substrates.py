"""Substrates: what deleted pixels become. Images are as the model takes them: in [0, 1] if it normalises inside."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from testbed.entries.model import StandardNormalization
from testbed.errors import EntryError

SUBSTRATES = ("zero", "imagenet-mean", "model-mean", "blur")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
BLUR_SIGMA = 0.05  # of the shorter side


def substrate(name: str, images: torch.Tensor, model: Any) -> torch.Tensor:
    """The images (B, 3, H, W) that replace deleted pixels, or one colour (1, 3, 1, 1).

    zero: 0 after the model's normalisation, as in the published program; black for a model without one.
    model-mean: the mean of the model's normalisation, which is the colour of `zero`; a model without one is refused.
    imagenet-mean: (0.485, 0.456, 0.406), whatever the model's normalisation.
    blur: the picture, blurred.
    """
    if name == "zero":
        return zero_colour(model, images)
    if name == "imagenet-mean":
        return _colour(IMAGENET_MEAN, images)
    if name == "model-mean":
        if not isinstance(_normalization(model), StandardNormalization):
            raise EntryError("substrate model-mean: expected a model with a StandardNormalization, got one without")
        return zero_colour(model, images)
    if name == "blur":
        return _blurred(images)
    raise EntryError(f"expected a substrate among {', '.join(SUBSTRATES)}, got {name!r}")


def zero_colour(model: Any, images: torch.Tensor) -> torch.Tensor:
    """The colour (1, 3, 1, 1) that the model's normalisation maps to 0."""
    normalization = _normalization(model)
    if normalization is None:
        return images.new_zeros(1, images.shape[1], 1, 1)
    if not isinstance(normalization, StandardNormalization):
        raise EntryError(
            "substrate zero: expected a StandardNormalization, whose mean tells what becomes 0, got a function; "
            "use imagenet-mean or blur"
        )
    mean = normalization.mean  # in the channel order of the network; images are RGB
    return _colour(mean[::-1] if normalization.input_space == "BGR" else mean, images)


def _normalization(model: Any) -> Any:
    entry = getattr(model, "entry", None)
    return entry.normalization if entry is not None else None


def _colour(values: Any, images: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, device=images.device, dtype=images.dtype).view(1, 3, 1, 1)


def _blurred(images: torch.Tensor) -> torch.Tensor:
    """The images after a Gaussian filter; mirrored at the border."""
    shorter = min(images.shape[2:])
    sigma = max(BLUR_SIGMA * shorter, 0.5)
    reach = min(int(3 * sigma + 0.5), shorter - 1)
    bell = torch.exp(-(torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype) ** 2) / (2 * sigma**2))
    bell = (bell / bell.sum()).expand(images.shape[1], 1, -1)
    padded = functional.pad(images, (reach, reach, reach, reach), mode="reflect")
    across = functional.conv2d(padded, bell.unsqueeze(2), groups=images.shape[1])
    return functional.conv2d(across, bell.unsqueeze(3), groups=images.shape[1])
