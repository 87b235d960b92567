"""Penultimate features of a network, recorded by hooks while it classifies, without a second forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from testbed.errors import ModelError

_HEADS = (nn.Linear, nn.Conv2d)


class FeatureWatch:
    """Records the penultimate features of a forward pass, one row per image.

    They are the output of the entry's `feature_layer` or, without one, the input of the last linear or convolutional
    layer that runs. A network without classes, as timm's self-supervised ones are, gives features itself. Maps are
    averaged over positions, and sequences over tokens.
    """

    def __init__(self, network: Any, name: str, layer: str | None) -> None:
        self._name = name
        # A compiled module keeps the network, under its own layer names, as _orig_mod.
        self._network = getattr(network, "_orig_mod", network)
        headless = isinstance(self._network, nn.Module) and getattr(self._network, "num_classes", None) == 0
        self._layer = "" if layer is None and headless else layer  # "" is the network itself
        self._seen: Any = None
        layers = dict(self._network.named_modules()) if isinstance(self._network, nn.Module) else {}
        if self._layer is not None and self._layer not in layers:
            raise ModelError(f"model '{self._name}' has no layer '{self._layer}' (feature_layer)")

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = []
        if isinstance(self._network, nn.Module):
            for name, module in self._network.named_modules():
                if name == self._layer:
                    handles.append(module.register_forward_hook(self._keep_output))
                elif self._layer is None and isinstance(module, _HEADS):
                    # Every candidate is watched: the last one called wins, which need not be the last one declared.
                    handles.append(module.register_forward_pre_hook(self._keep_input))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _keep_input(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._seen = inputs[0]

    def _keep_output(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        self._seen = output

    def features(self, n: int) -> torch.Tensor:
        """(n, d) features of the forward pass that was just watched."""
        # Forgotten at once, so that a pass that records nothing cannot return the features of the one before.
        seen, self._seen = self._seen, None
        if not isinstance(seen, torch.Tensor) or len(seen) != n:
            raise ModelError(
                f"model '{self._name}': no features found; name the layer whose output they are: "
                "Model(feature_layer=...)"
            )
        if seen.ndim == 4:
            seen = seen.mean(dim=(2, 3))
        elif seen.ndim == 3:
            seen = seen.mean(dim=1)
        return seen.float()
