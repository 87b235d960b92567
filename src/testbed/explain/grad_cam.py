"""Grad-CAM (Selvaraju et al. 2017): the activations of a spatial layer, weighted by their mean gradients."""

from __future__ import annotations

import torch
from torch import nn

from testbed.errors import ModelError
from testbed.explain.layers import as_grid, last_layer, network_of, outputs_of
from testbed.explain.scores import Score


def grad_cam(
    model: nn.Module, images: torch.Tensor, score: Score, layer: str | None = None, signed: bool = False
) -> torch.Tensor:
    """Maps (B, J, H, W) from one forward pass.

    `layer` is by default the model's last spatial one. `signed` keeps negative values, for maps to be subtracted.
    """
    network = network_of(model)
    name = layer or last_layer(model, images)
    if name not in dict(network.named_modules()):
        raise ModelError(f"{type(network).__name__} has no layer '{name}'")
    size = (int(images.shape[2]), int(images.shape[3]))
    maps = []
    with torch.enable_grad(), outputs_of(network, [name]) as outputs:
        # Images that require a gradient, so that the layer has one even if all weights are frozen.
        numbers = score(model(images.detach().clone().requires_grad_()))
        output = outputs.get(name)
        activations = as_grid(output, size)
        if activations is None or output is None:
            shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
            raise ModelError(f"the output of layer '{name}' is not laid out like the picture: {shape}")
        for j in range(score.width):
            (gradient,) = torch.autograd.grad(numbers[:, j].sum(), output, retain_graph=j + 1 < score.width)
            weights = as_grid(gradient, size).mean(dim=(2, 3), keepdim=True)  # type: ignore[union-attr]
            maps.append((weights * activations.detach()).sum(dim=1))
    coarse = torch.stack(maps, dim=1)
    if not signed:
        coarse = coarse.relu()
    return nn.functional.interpolate(coarse.float(), size=size, mode="bilinear", align_corners=False)
