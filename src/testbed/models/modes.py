"""Leaves the training mode of a user's module as it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def modes_kept(modules: Iterable[Any]) -> Iterator[None]:
    """Restore `training` of every layer at the end. One `module.train()` would switch frozen layers to training too."""
    from torch import nn

    layers = [layer for module in modules if isinstance(module, nn.Module) for layer in module.modules()]
    modes = [layer.training for layer in layers]
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode
