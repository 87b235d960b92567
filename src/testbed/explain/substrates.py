"""What a deleted pixel becomes. Images are those the model takes: in [0, 1] where the testbed normalises inside."""

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
    """Images (B, 3, H, W) of which the deleted pixels are taken, or one colour (1, 3, 1, 1).

    zero: what is 0 in the network's own input, as in the published program; for a network that is given pixels as
    they are that is black. model-mean: the mean of the model's normalisation, the same colour where it has one.
    imagenet-mean: (0.485, 0.456, 0.406) whatever the model's normalisation is. blur: the picture without detail.
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
    """The colour (1, 3, 1, 1) that the model's own normalisation takes to 0."""
    normalization = _normalization(model)
    if normalization is None:
        return images.new_zeros(1, images.shape[1], 1, 1)
    if not isinstance(normalization, StandardNormalization):
        raise EntryError(
            "substrate zero: expected a StandardNormalization, whose mean tells what becomes 0, got a function; "
            "use imagenet-mean or blur"
        )
    mean = normalization.mean
    return _colour(mean[::-1] if normalization.input_space == "BGR" else mean, images)


def _normalization(model: Any) -> Any:
    entry = getattr(model, "entry", None)
    return entry.normalization if entry is not None else None


def _colour(values: Any, images: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, device=images.device, dtype=images.dtype).view(1, 3, 1, 1)


def _blurred(images: torch.Tensor) -> torch.Tensor:
    """A Gaussian over rows and columns; the border is reflected."""
    shorter = min(images.shape[2:])
    sigma = max(BLUR_SIGMA * shorter, 0.5)
    reach = min(int(3 * sigma + 0.5), shorter - 1)
    bell = torch.exp(-(torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype) ** 2) / (2 * sigma**2))
    bell = (bell / bell.sum()).expand(images.shape[1], 1, -1)
    padded = functional.pad(images, (reach, reach, reach, reach), mode="reflect")
    across = functional.conv2d(padded, bell.unsqueeze(2), groups=images.shape[1])
    return functional.conv2d(across, bell.unsqueeze(3), groups=images.shape[1])
