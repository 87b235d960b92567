"""The networks of the digits demo. This file imports torch, so only loaders and the training tool load it."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor, nn

CLASSES = 10


def linear() -> nn.Module:
    return nn.Sequential(OrderedDict(flatten=nn.Flatten(), head=nn.Linear(3 * 32 * 32, CLASSES)))


def mlp() -> nn.Module:
    """One hidden layer. It gets the image at half size, which keeps the committed weights small."""
    layers = OrderedDict(
        shrink=nn.AvgPool2d(2),
        flatten=nn.Flatten(),
        hidden=nn.Linear(3 * 16 * 16, 64),
        relu=nn.ReLU(),
        head=nn.Linear(64, CLASSES),
    )
    return nn.Sequential(layers)


def cnn() -> nn.Module:
    """Three convolutions and global average pooling: `features` is the last map, `pool` the penultimate layer."""
    features = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        # Not a stride in the next convolution, which would alias: accuracy would then fall more for a shift of two
        # pixels than for one of four. Real networks do that too, but in a demo it is a puzzle.
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
    )
    pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(features=features, pool=pool, head=nn.Linear(64, CLASSES)))


class NearestNeighbour(nn.Module):
    """Holds the training images. Its output is the squared distance of each image of a batch to each of them."""

    examples: Tensor
    labels: Tensor

    def __init__(self, examples: np.ndarray, labels: Tensor) -> None:
        super().__init__()
        grey = torch.from_numpy(examples[..., 0].reshape(len(examples), -1)) / 255
        self.register_buffer("examples", grey)
        self.register_buffer("labels", labels)

    def forward(self, images: Tensor) -> Tensor:
        grey = images.mean(dim=1).flatten(1)
        # |a - b|^2 = |a|^2 + |b|^2 - 2 ab, which needs no array of all differences.
        squares = grey.square().sum(1, keepdim=True) + self.examples.square().sum(1)
        return squares - 2 * grey @ self.examples.T
