"""Layers whose output is laid out like the picture: convolutions, channels-last blocks, and tokens of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from testbed.errors import ModelError

_PREFIXES = range(9)  # class, distillation and register tokens that stand before those of the picture
_PASSING = (nn.Identity, nn.Dropout, nn.Softmax)  # attention matrices would look like pictures


@dataclass(frozen=True)
class SpatialLayer:
    name: str
    height: int
    width: int


def network_of(model: nn.Module) -> nn.Module:
    """The network with the layers: the model itself, or the one inside the testbed's classifier."""
    network = getattr(model, "network", model)
    network = getattr(network, "_orig_mod", network)  # torch.compile keeps the layers there
    if not isinstance(network, nn.Module):
        raise ModelError(f"expected a torch module with layers, got {type(network).__name__}")
    return network


def as_grid(output: Any, image_size: tuple[int, int]) -> torch.Tensor | None:
    """(B, C, h, w) of a layer's output, or None where it is not laid out like the picture."""
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return None
    if output.ndim == 4:
        if _fits(output.shape[2], output.shape[3], image_size):
            return output
        return output.permute(0, 3, 1, 2) if _fits(output.shape[1], output.shape[2], image_size) else None
    if output.ndim == 3:
        for prefix in _PREFIXES:
            n = output.shape[1] - prefix
            height = round((n * image_size[0] / image_size[1]) ** 0.5) if n > 1 else 0
            if height and n % height == 0 and _fits(height, n // height, image_size):
                return output[:, prefix:].transpose(1, 2).unflatten(2, (height, n // height))
    return None


def _fits(height: int, width: int, image_size: tuple[int, int]) -> bool:
    """More than one cell, not finer than the picture, and of its proportions, give or take one cell."""
    rows, columns = image_size
    alike = abs(height * columns - width * rows) <= max(rows, columns)
    return height * width > 1 and height <= rows and width <= columns and alike


@contextmanager
def outputs_of(network: nn.Module, names: list[str]) -> Iterator[dict[str, Any]]:
    """While the network runs, the last output of each of these layers."""
    layers = dict(network.named_modules())
    found: dict[str, Any] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            found.pop(name, None)  # so that the order is that of the last calls
            found[name] = output

        return hook

    handles = [layers[name].register_forward_hook(keep(name)) for name in names]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


_known: WeakKeyDictionary[nn.Module, dict[tuple[int, int], list[SpatialLayer]]] = WeakKeyDictionary()


def spatial_layers(model: nn.Module, images: torch.Tensor) -> list[SpatialLayer]:
    """All layers with a spatial output that the answer depends on, in the order of the forward pass.

    Tokens behind the last attention of a transformer with a class token are left out: no gradient reaches them.
    """
    network = network_of(model)
    size = (int(images.shape[2]), int(images.shape[3]))
    known = _known.setdefault(network, {})
    if size not in known:
        known[size] = _find(model, network, images[:1], size)
    return known[size]


def _find(model: nn.Module, network: nn.Module, image: torch.Tensor, size: tuple[int, int]) -> list[SpatialLayer]:
    names = [name for name, module in network.named_modules() if name and not isinstance(module, _PASSING)]
    with torch.enable_grad(), outputs_of(network, names) as found:
        best = model(image.detach().clone().requires_grad_()).amax(dim=1).sum()
        kept = {n: o for n, o in found.items() if as_grid(o, size) is not None and o.requires_grad}
        kept = _of_one_width(kept)
        gradients = torch.autograd.grad(best, list(kept.values()), allow_unused=True) if kept else ()
    layers = []
    for (name, _), gradient in zip(kept.items(), gradients, strict=True):
        grid = as_grid(gradient, size)
        if grid is not None and bool(grid.any()):
            layers.append(SpatialLayer(name, int(grid.shape[2]), int(grid.shape[3])))
    return layers


def _of_one_width(outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Of tokens only those as wide as the last ones: not the inner layers of attention and MLP."""
    widths = [o.shape[2] for o in outputs.values() if o.ndim == 3]
    return {n: o for n, o in outputs.items() if o.ndim != 3 or o.shape[2] == widths[-1]}


def last_layer(model: nn.Module, images: torch.Tensor) -> str:
    """The model's own `explain_layer`, else the last spatial layer."""
    named = getattr(getattr(model, "entry", None), "explain_layer", None)
    return named or _last(model, images).name


def finer_layer(model: nn.Module, images: torch.Tensor) -> str:
    """The end of the stage before the last: the outermost last layer of the next finer grid, if there is one."""
    layers = spatial_layers(model, images)
    last = _last(model, images)
    finer = [x for x in layers if x.height * x.width > last.height * last.width]
    if not finer:
        return last_layer(model, images)
    cells = min(x.height * x.width for x in finer)
    stage = [x for x in finer if x.height * x.width == cells]
    outermost = min(x.name.count(".") for x in stage)
    return [x for x in stage if x.name.count(".") == outermost][-1].name


def _last(model: nn.Module, images: torch.Tensor) -> SpatialLayer:
    layers = spatial_layers(model, images)
    if not layers:
        raise ModelError(
            f"{type(network_of(model)).__name__}: no layer has an output laid out like the picture; name one with the "
            "model's explain_layer, or use an explainer that needs none (rise, inputgrad)"
        )
    return layers[-1]
