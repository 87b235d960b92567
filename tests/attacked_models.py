"""Small models and random numbers for the tests of attacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

SHAPE = (3, 4, 4)


class PerImageRandom:
    """As the engine's: every image has a generator of its own, named by its id."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.generators = [np.random.default_rng(i) for i in ids]

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Tensor:
        return torch.from_numpy(np.stack([g.uniform(low, high, shape) for g in self.generators])).float()

    def normal(self, shape: Sequence[int]) -> Tensor:
        return torch.from_numpy(np.stack([g.normal(size=shape) for g in self.generators])).float()


class Linear(nn.Module):
    """Logits (margin, 0, -1) with margin = w.x + b: class 0 is seen while the margin is above 0."""

    def __init__(self, weight: Tensor, bias: float, classes: int = 3) -> None:
        super().__init__()
        self.weight, self.bias, self.classes = nn.Parameter(weight), bias, classes

    def margin(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight + self.bias

    def forward(self, images: Tensor) -> Tensor:
        margin = self.margin(images)
        others = [torch.full_like(margin, -float(k)) for k in range(self.classes - 1)]
        return torch.stack([margin, *others], dim=1)


def random_images(n: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(3).uniform(low, high, (n, *SHAPE))).float()


def random_weight() -> Tensor:
    return torch.from_numpy(np.random.default_rng(4).normal(size=int(np.prod(SHAPE)))).float()


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(32, 5)).eval()


@torch.no_grad()
def run(attack, images: Tensor, model: nn.Module, targets: Tensor, ids: Sequence[int] | None = None) -> Tensor:
    random = PerImageRandom(range(len(images)) if ids is None else ids)
    return attack(images=images, model=model, targets=targets, rng=random)
