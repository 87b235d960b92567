"""The classifiers of the digits demo. It imports torch, so only loaders and the training tool load it."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import torch
from torch import Tensor, nn

from testbed.registry import load_module

CLASSES = 10


def linear() -> nn.Module:
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=nn.Linear(3 * 32 * 32, CLASSES)))


def mlp(width: int = 48) -> nn.Module:
    return nn.Sequential(
        OrderedDict(
            shrink=nn.AvgPool2d(2),
            flatten=nn.Flatten(),
            hidden=nn.Linear(3 * 16 * 16, width),
            activation=nn.ReLU(),
            head=nn.Linear(width, CLASSES),
        )
    )


def cnn(width: int = 16) -> nn.Module:
    """Three convolutions, then the mean over the picture: `features` is the map, `pool` the penultimate layer."""
    features = nn.Sequential(
        nn.Conv2d(3, width, 5, stride=1, padding=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
        nn.ReLU(),
    )
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return nn.Sequential(OrderedDict(features=features, pool=pool, head=nn.Linear(16 * width, CLASSES)))


class NearestNeighbour(nn.Module):
    """The training digits themselves; called with images, it gives their distance to each of them."""

    digits: Tensor
    labels: Tensor
    _examples: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("digits", torch.zeros(size, 8, 8, dtype=torch.uint8))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.int64))
        self.register_buffer("_examples", torch.empty(0), persistent=False)

