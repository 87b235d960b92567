"""A GPU that is not there: tensors that say they are on cuda, without values, for checking what runs on a device.

Under torch's FakeTensorMode tensors of two devices in one operation raise, and so does whatever has to wait for a value
of the device: DataDependentOutputException for a number, DynamicOutputShapeException for a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)

from testbed.entries.model import Model, StandardNormalization
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions

IMAGENET = StandardNormalization(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])


def raises_wait(device: str) -> Any:
    """As pytest.raises: inside, something waits for the device."""
    if device == "cuda":
        return pytest.raises((DataDependentOutputException, DynamicOutputShapeException))
    return pytest.raises((NotImplementedError, RuntimeError), match=r"nonzero|cannot be called on meta tensors")


@contextmanager
def fake_device(name: str, monkeypatch: Any) -> Iterator[None]:
    """`cuda`: fake tensors, whose gradients are made up. `meta`: tensors without values, with torch's own backward.

    torch's backward engine asks the driver for a context even for fake tensors (pytorch issue 92627), so each device
    checks what the other cannot.
    """
    # Networks are built on the device: moving one swaps its tensors, which fake ones do not allow.
    monkeypatch.setattr(nn.Module, "to", lambda self, *args, **kwargs: self)
    monkeypatch.setattr("testbed.models.classifier.state_sha256", lambda network: "0" * 64)
    if name == "cuda":
        monkeypatch.setattr(torch.autograd, "grad", _made_up)
        # Otherwise autocast turns itself off, with a warning.
        monkeypatch.setattr("torch.cuda.amp.common.amp_definitely_not_available", lambda: False)
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda *args: True)
    with FakeTensorMode() if name == "cuda" else nullcontext():
        yield


def _made_up(outputs: Tensor, inputs: Any, **how: Any) -> tuple[Tensor, ...]:
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    assert outputs.requires_grad and all(i.requires_grad for i in inputs)
    assert outputs.shape == () and all(i.device == outputs.device for i in inputs)
    return tuple(torch.zeros_like(i) for i in inputs)


def network() -> nn.Module:
    """With the layers that most classifiers are made of; built where torch.device says."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 10),
    )


def loaded_on(device: str, options: RunOptions | None = None, **entry: Any) -> LoadedModel:
    """A model of ten classes whose network was built on the device."""

    def load() -> nn.Module:
        with torch.device(device):
            return network()

    described: dict[str, Any] = {"normalization": IMAGENET, **entry}
    return LoadedModel(Model("net", None, load, 4, **described), device, options or RunOptions())


def images_on(device: str, n: int = 4, side: int = 32) -> Tensor:
    return torch.rand(n, 3, side, side, device=device)


def stops_after(function: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """The function, until it is called once more: then Enough is raised."""
    left = [calls]

    def counted(*args: Any, **kwargs: Any) -> Any:
        if not left[0]:
            raise Enough
        left[0] -= 1
        return function(*args, **kwargs)

    return counted


class Enough(Exception):
    """The part that was to be run has been."""
