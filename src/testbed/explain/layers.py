"""Spatial layers: those whose output has the layout of the picture, be it channels first, channels last or tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from testbed.errors import ModelError

_PREFIXES = range(9)  # possible numbers of class, distillation and register tokens before those of the picture
_PASSING = (nn.Identity, nn.Dropout, nn.Softmax)  # in attention their outputs, square matrices, look like pictures


@dataclass(frozen=True)
class SpatialLayer:
    """A layer by its name in the network, and the size of its grid."""

    name: str
    height: int
    width: int


def network_of(model: nn.Module) -> nn.Module:
    """The torch module whose layers are named: the model itself, or the network inside the testbed's classifier."""
    network = getattr(model, "network", model)
    network = getattr(network, "_orig_mod", network)  # torch.compile keeps the layers there
    if not isinstance(network, nn.Module):
        raise ModelError(f"expected a torch module with layers, got {type(network).__name__}")
    return network


def as_grid(output: Any, image_size: tuple[int, int]) -> torch.Tensor | None:
    """A layer's output as (B, C, h, w), or None where it does not have the layout of the picture."""
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return None
    if output.ndim == 4:
        if _fits(output.shape[2], output.shape[3], image_size):
            return output
        return output.permute(0, 3, 1, 2) if _fits(output.shape[1], output.shape[2], image_size) else None
    if output.ndim == 3:  # tokens: the fewest leading ones are dropped that leave a grid like the picture
        for prefix in _PREFIXES:
            n = output.shape[1] - prefix
            height = round((n * image_size[0] / image_size[1]) ** 0.5) if n > 1 else 0
            if height and n % height == 0 and _fits(height, n // height, image_size):
                return output[:, prefix:].transpose(1, 2).unflatten(2, (height, n // height))
    return None


def _fits(height: int, width: int, image_size: tuple[int, int]) -> bool:
    """Whether a grid has several cells, is not finer than the picture, and has its aspect ratio up to one cell."""
    rows, columns = image_size
    alike = abs(height * columns - width * rows) <= max(rows, columns)
    return height * width > 1 and height <= rows and width <= columns and alike


@contextmanager
def outputs_of(network: nn.Module, names: list[str]) -> Iterator[dict[str, Any]]:
    """Inside the context, a dictionary that collects the last output of each of these layers by name."""
    layers = dict(network.named_modules())
    outputs: dict[str, Any] = {}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            outputs.pop(name, None)  # a layer may run twice: the dictionary is in the order of the last calls
            outputs[name] = output

        return hook

    handles = [layers[name].register_forward_hook(keep(name)) for name in names]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


# Finding the layers costs a forward and a backward pass. Weak keys: a network that is gone leaves the dictionary.
_known: WeakKeyDictionary[nn.Module, dict[tuple[int, int], list[SpatialLayer]]] = WeakKeyDictionary()


def spatial_layers(model: nn.Module, images: torch.Tensor) -> list[SpatialLayer]:
    """All layers with a spatial output that the model's output depends on, in the order of the forward pass.

    In a transformer with a class token, no gradient reaches the other tokens after the last attention; layers there are
    left out.
    """
    network = network_of(model)
    size = (int(images.shape[2]), int(images.shape[3]))
    by_size = _known.setdefault(network, {})
    if size not in by_size:
        by_size[size] = _find(model, network, images[:1], size)
    return by_size[size]


def _find(model: nn.Module, network: nn.Module, image: torch.Tensor, size: tuple[int, int]) -> list[SpatialLayer]:
    names = [name for name, module in network.named_modules() if name and not isinstance(module, _PASSING)]
    with torch.enable_grad(), outputs_of(network, names) as outputs:
        best = model(image.detach().clone().requires_grad_()).amax(dim=1).sum()
        kept = {n: o for n, o in outputs.items() if as_grid(o, size) is not None and o.requires_grad}
        kept = _of_one_width(kept)
        gradients = torch.autograd.grad(best, list(kept.values()), allow_unused=True) if kept else ()
    layers = []
    for (name, _), gradient in zip(kept.items(), gradients, strict=True):
        grid = as_grid(gradient, size)
        if grid is not None and bool(grid.any()):
            layers.append(SpatialLayer(name, int(grid.shape[2]), int(grid.shape[3])))
    return layers


def _of_one_width(outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The outputs without tokens of another width than the last ones: those are inside attention and MLP."""
    widths = [o.shape[2] for o in outputs.values() if o.ndim == 3]
    return {n: o for n, o in outputs.items() if o.ndim != 3 or o.shape[2] == widths[-1]}


def last_layer(model: nn.Module, images: torch.Tensor) -> str:
    """The name of the layer to explain by: the model entry's `explain_layer`, else the last spatial layer."""
    named = getattr(getattr(model, "entry", None), "explain_layer", None)
    return named or _last(model, images).name


def finer_layer(model: nn.Module, images: torch.Tensor) -> str:
    """The name of the layer at the end of the stage before the last.

    It is the last of the least nested layers with the next finer grid. Where no grid is finer, it is `last_layer`.
    """
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
