"""Control maps that do not depend on the model: a heatmap that does not beat them explains nothing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from testbed.explain.scores import Score


def random_map(model: nn.Module, images: torch.Tensor, score: Score, rng: Any = None) -> torch.Tensor:
    """Uniform noise, drawn for every image and class; with the `rng` of a run, the same noise in every rerun."""
    height, width = images.shape[2:]
    if rng is None:
        generator = torch.Generator().manual_seed(0)
        return torch.rand(len(images), score.width, height, width, generator=generator).to(images.device)
    # One group after the other: an image's maps must not depend on how many classes its batch mates have.
    return torch.stack([rng.uniform(0.0, 1.0, (height, width)) for _ in range(score.width)], dim=1)


def centre_map(model: nn.Module, images: torch.Tensor, score: Score, sigma: float = 0.25) -> torch.Tensor:
    """A Gaussian at the centre of the picture; `sigma` is a share of each side."""
    rows, columns = (_bell(int(side), sigma) for side in images.shape[2:])
    bell = (rows[:, None] * columns[None, :]).to(images.device)
    return bell.expand(len(images), score.width, -1, -1)


def _bell(side: int, sigma: float) -> torch.Tensor:
    place = (torch.arange(side, dtype=torch.float64) - (side - 1) / 2) / (sigma * side)
    return torch.exp(-(place**2) / 2)
