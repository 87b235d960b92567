"""Networks small enough to be explained hundreds of times."""

from __future__ import annotations

import torch
from torch import nn


class Counting(nn.Module):
    """Counts the images that go through, and remembers its largest batch."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.images, self.largest = inner, 0, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.images += len(images)
        self.largest = max(self.largest, len(images))
        return self.inner(images)


def small_cnn(classes: int = 10, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 12, 3, stride=2, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, classes),
    ).eval()


def linear(weights, bias, dtype: torch.dtype = torch.float64) -> nn.Module:
    layer = nn.Linear(weights.shape[1], weights.shape[0], dtype=dtype)
    layer.weight.data, layer.bias.data = torch.tensor(weights, dtype=dtype), torch.tensor(bias, dtype=dtype)
    return nn.Sequential(nn.Flatten(), layer)
