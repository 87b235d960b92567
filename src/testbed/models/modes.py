"""Modules that were given from outside keep their modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def modes_kept(given: Iterable[Any]) -> Iterator[None]:
    """Whatever is trained or frozen is left so, layer by layer: `module.train()` would also thaw frozen layers."""
    from torch import nn

    layers = [layer for module in given if isinstance(module, nn.Module) for layer in module.modules()]
    modes = [layer.training for layer in layers]
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
