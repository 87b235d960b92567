"""Explainers of captum (pip install captum, or the extra `explain`) behind our interface.

captum repeats inputs as its methods need, so each row carries the number of its image along and the score looks up
that image's classes. Methods that draw random numbers see one image at a time and the same numbers for each.
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

Attribute = Callable[[Callable[..., torch.Tensor], torch.Tensor, torch.Tensor], torch.Tensor]


def integrated_gradients(
    model: nn.Module, images: torch.Tensor, score: Score, steps: int = 16, batch_size: int = 64
) -> torch.Tensor:
    """Sum over channels of the integrated gradients from the colour that is 0 in the model's own input."""
    captum = _captum()
    baseline = zero_colour(model, images).expand_as(images)

    def attribute(forward: Callable[..., torch.Tensor], inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        found = captum.IntegratedGradients(forward).attribute(
            inputs,
            baselines=baseline[rows],
            additional_forward_args=rows,
            n_steps=steps,
            internal_batch_size=max(batch_size, len(inputs)),
        )
        return found.sum(dim=1)

    with torch.enable_grad():
        return _for_each_group(model, images, score, attribute)


def occlusion(
    model: nn.Module, images: torch.Tensor, score: Score, window: int = 48, stride: int = 32, batch_size: int = 64
) -> torch.Tensor:
    """How much the score falls where a window is covered."""
    captum = _captum()
    baseline = zero_colour(model, images).expand_as(images)
    side = min(window, *images.shape[2:])

    def attribute(forward: Callable[..., torch.Tensor], inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        found = captum.Occlusion(forward).attribute(
            inputs,
            sliding_window_shapes=(inputs.shape[1], side, side),
            strides=(inputs.shape[1], min(stride, side), min(stride, side)),
            baselines=baseline[rows],
            additional_forward_args=rows,
            perturbations_per_eval=max(batch_size // len(inputs), 1),
        )
        return found.sum(dim=1)

    with torch.no_grad():
        return _for_each_group(model, images, score, attribute)


def lime(model: nn.Module, images: torch.Tensor, score: Score, **options: Any) -> torch.Tensor:
    """A linear model of the score over covered and shown cells of a grid, fitted near the whole image."""
    return _over_cells("Lime", model, images, score, **options)


def kernel_shap(model: nn.Module, images: torch.Tensor, score: Score, **options: Any) -> torch.Tensor:
    """Shapley values of the cells of a grid, by the kernel method."""
    return _over_cells("KernelShap", model, images, score, **options)


def _over_cells(
    method: str,
    model: nn.Module,
    images: torch.Tensor,
    score: Score,
    samples: int = 128,
    cells: int = 7,
    seed: int = 0,
    batch_size: int = 64,
) -> torch.Tensor:
    captum = _captum()
    baseline = zero_colour(model, images).expand_as(images)
    grid = _cells(images, cells)

    def attribute(forward: Callable[..., torch.Tensor], inputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        found = []
        for image, row in zip(inputs.split(1), rows.split(1), strict=True):
            torch.manual_seed(seed)

            def of_this(covered: torch.Tensor, row: torch.Tensor = row) -> torch.Tensor:
                return forward(covered, row.expand(len(covered)))

            explained = getattr(captum, method)(of_this).attribute(
                image,
                baselines=baseline[row],
                feature_mask=grid,
                n_samples=samples,
                perturbations_per_eval=batch_size,
            )
            found.append(explained.mean(dim=1))
        return torch.cat(found)

    # In probabilities: what a linear model fits must not run off to minus infinity where the class is ruled out.
    with torch.no_grad(), torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
        return _for_each_group(model, images, score.as_probability(), attribute)


def _cells(images: torch.Tensor, cells: int) -> torch.Tensor:
    """The number of each pixel's cell, (1, 1, H, W)."""
    height, width = images.shape[2:]
    down = torch.arange(height) * cells // height
    right = torch.arange(width) * cells // width
    return (down[:, None] * cells + right[None, :])[None, None].to(images.device)


def _for_each_group(model: nn.Module, images: torch.Tensor, score: Score, attribute: Attribute) -> torch.Tensor:
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
