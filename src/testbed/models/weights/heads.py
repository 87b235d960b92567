"""The head of a fine-tuned network: as many outputs as its checkpoint has, and the names of their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.models.weights.checkpoints import State, fitted

# Keys under which training scripts save the classes: a list of names, or a dictionary between names and numbers.
_NAMES = ("class_to_idx", "classes", "class_names", "idx_to_class")


@dataclass(frozen=True)
class Head:
    """The outputs of a network whose classes are its own."""

    outputs: int
    classes: tuple[str, ...] = ()  # the class of each output, where the checkpoint or the entry tells
    origin: str = "checkpoint"  # or "entry"


def take_head(network: Any, state: State, content: Any) -> Head | None:
    """Give the network the outputs of the state, if that is all that differs; None where nothing was changed.

    Only a layer that nothing else depends on can differ in the number of its outputs alone: of any other, the layers
    that follow would differ too. A network may have several heads, as Inception and distilled transformers do.
    """
    from torch import nn

    own = network.state_dict() if isinstance(network, nn.Module) else {}
    state = fitted(state, own) if own else state
    other = {name for name in own if name in state and own[name].shape != state[name].shape}
    widths = {(own[name].shape[:1], state[name].shape[:1]) for name in other}
    if len(widths) != 1 or any(own[name].shape[1:] != state[name].shape[1:] for name in other):
        return None
    ((_, (outputs,)),) = widths
    layers = {name.rpartition(".")[0] for name in other}
    if not all(isinstance(network.get_submodule(layer), nn.Linear | nn.Conv2d) for layer in layers):
        return None
    for layer in layers:
        parent, _, place = layer.rpartition(".")
        setattr(network.get_submodule(parent), place, _wider(network.get_submodule(layer), outputs))
    if hasattr(network, "num_classes"):
        network.num_classes = outputs
    names = class_names(content)
    return Head(outputs, names if len(names) == outputs else ())


def _wider(layer: Any, outputs: int) -> Any:
    """An empty layer like this one, with another number of outputs."""
    from torch import nn

    if isinstance(layer, nn.Linear):
        return nn.Linear(layer.in_features, outputs, layer.bias is not None)
    sizes = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups
    return nn.Conv2d(layer.in_channels, outputs, *sizes, layer.bias is not None)


def class_names(content: Any) -> tuple[str, ...]:
    """The names of the outputs, in their order, as a checkpoint tells them; empty where it does not."""
    for key in _NAMES:
        told = content.get(key) if isinstance(content, Mapping) else None
        if isinstance(told, Mapping):
            pairs = [(v, k) if isinstance(v, int) else (k, v) for k, v in told.items()]
            numbers = {int(number): str(name) for number, name in pairs if str(number).isdecimal()}
            if set(numbers) == set(range(len(told))):
                return tuple(numbers[i] for i in range(len(told)))
        elif isinstance(told, list | tuple) and all(isinstance(name, str) for name in told):
            return tuple(told)
    return ()
