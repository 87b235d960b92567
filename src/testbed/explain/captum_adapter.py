"""Explainers of captum (pip install captum, or the extra `explain`) behind our interface.

captum repeats and reorders inputs, so every row carries the number of its image along, by which the score looks up the
image's classes. Methods that draw random numbers get one image at a time, with the same random numbers for each.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from testbed.errors import EntryError
from testbed.explain.scores import Score
from testbed.explain.substrates import zero_colour

# (forward function, images, their numbers in the batch) -> maps (B, H, W)
Attribute = Callable[[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor], torch.Tensor]


def integrated_gradients(
    model: nn.Module, images: torch.Tensor, score: Score, steps: int = 16, batch_size: int = 64
) -> torch.Tensor:
    """Integrated gradients, summed over channels; the baseline is the colour that the model normalises to 0."""
    captum = _captum()
    baseline = zero_colour(model, images).expand_as(images)

    def attribute(forward: Callable[..., torch.Tensor], inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        attributions = captum.IntegratedGradients(forward).attribute(
            inputs,
            baselines=baseline[rows],
            additional_forward_args=rows,
            n_steps=steps,
            internal_batch_size=max(batch_size, len(inputs)),  # captum takes no less than one step of all inputs
        )
        return attributions.sum(dim=1)

    with torch.enable_grad():
        return _for_each_group(model, images, score, attribute)


def occlusion(
    model: nn.Module, images: torch.Tensor, score: Score, window: int = 48, stride: int = 32, batch_size: int = 64
) -> torch.Tensor:
    """How much the score falls when a window around a pixel is covered."""
    captum = _captum()
    baseline = zero_colour(model, images).expand_as(images)
    side = min(window, *images.shape[2:])  # small pictures; captum also refuses a stride larger than the window

    def attribute(forward: Callable[..., torch.Tensor], inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        attributions = captum.Occlusion(forward).attribute(
            inputs,
            sliding_window_shapes=(inputs.shape[1], side, side),
            strides=(inputs.shape[1], min(stride, side), min(stride, side)),
            baselines=baseline[rows],
            additional_forward_args=rows,
            perturbations_per_eval=max(batch_size // len(inputs), 1),
        )
        return attributions.sum(dim=1)

    with torch.no_grad():
        return _for_each_group(model, images, score, attribute)


def lime(model: nn.Module, images: torch.Tensor, score: Score, **options: Any) -> torch.Tensor:
    """LIME: the weights of a linear model of the score in the shown cells of a grid, fitted near the whole image."""
    return _over_cells("Lime", model, images, score, **options)


def kernel_shap(model: nn.Module, images: torch.Tensor, score: Score, **options: Any) -> torch.Tensor:
    """Kernel SHAP: Shapley values of the cells of a grid."""
    return _over_cells("KernelShap", model, images, score, **options)


def _over_cells(
    method: str,
    model: nn.Module,
    images: torch.Tensor,
    score: Score,
    *,
    samples: int = 128,
    cells: int = 7,
    seed: int = 0,
    batch_size: int = 64,
) -> torch.Tensor:
    """A method of captum that covers and shows the cells of a grid in `samples` random combinations."""
    captum = _captum()
    baseline = zero_colour(model, images).expand_as(images)
    grid = _cells(images, cells)

    def attribute(forward: Callable[..., torch.Tensor], inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        maps = []
        for image, row in zip(inputs.split(1), rows.split(1), strict=True):
            torch.manual_seed(seed)

            def forward_image(covered: torch.Tensor, row: torch.Tensor = row) -> torch.Tensor:
                return forward(covered, row.expand(len(covered)))

            attributions = getattr(captum, method)(forward_image).attribute(
                image,
                baselines=baseline[row],
                feature_mask=grid,
                n_samples=samples,
                perturbations_per_eval=batch_size,
            )
            maps.append(attributions.mean(dim=1))  # a cell covers all channels, which have the same value
        return torch.cat(maps)

    # In probabilities: a linear model cannot fit a score that runs off to minus infinity where a class is ruled out.
    # fork_rng gives the caller its random state back.
    with torch.no_grad(), torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
        return _for_each_group(model, images, score.as_probability(), attribute)


def _cells(images: torch.Tensor, cells: int) -> torch.Tensor:
    """The number of the grid cell that each pixel belongs to, (1, 1, H, W)."""
    height, width = images.shape[2:]
    down = torch.arange(height) * cells // height
    right = torch.arange(width) * cells // width
    return (down[:, None] * cells + right[None, :])[None, None].to(images.device)


def _for_each_group(model: nn.Module, images: torch.Tensor, score: Score, attribute: Attribute) -> torch.Tensor:
    """Maps (B, J, H, W): `attribute` called for each of the score's J groups."""
    rows = torch.arange(len(images), device=images.device)

    def forward_for(j: int) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        def forward(inputs: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
            return score(model(inputs), row)[:, j]

        return forward

    maps = [attribute(forward_for(j), images.detach().clone(), rows).detach() for j in range(score.width)]
    return torch.stack(maps, dim=1).to(images.dtype)


def _captum() -> Any:
    try:
        return import_module("captum.attr")
    except ImportError as error:
        raise EntryError("this explainer needs the package captum: pip install captum") from error
