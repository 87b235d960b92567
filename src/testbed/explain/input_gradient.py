"""The gradient of the score at the input (Simonyan et al. 2014): its largest absolute value over the channels."""

from __future__ import annotations

import torch
from torch import nn

from testbed.explain.scores import Score


def input_gradient(model: nn.Module, images: torch.Tensor, score: Score, times_input: bool = False) -> torch.Tensor:
    """Maps (B, J, H, W); with `times_input` the sum over channels of gradient x input, which can be negative."""
    maps = []
    with torch.enable_grad():
        images = images.detach().clone().requires_grad_()
        numbers = score(model(images))
        for j in range(score.width):
            (gradient,) = torch.autograd.grad(numbers[:, j].sum(), images, retain_graph=j + 1 < score.width)
            maps.append((gradient * images.detach()).sum(dim=1) if times_input else gradient.abs().amax(dim=1))
    return torch.stack(maps, dim=1)
