"""The ball of allowed changes around an image: random points, projection, and the steepest step in its norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

NORMS = ("linf", "l2")


class BatchRandom(Protocol):
    """Random tensors for a batch, drawn image by image: an image's numbers do not depend on its batch."""

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Tensor: ...

    def normal(self, shape: Sequence[int]) -> Tensor: ...


Attack = Callable[["Tensor", Any, "Tensor", BatchRandom], "Tensor"]


def check_arguments(attack: str, norm: str, **numbers: float) -> None:
    """Refuse an unknown norm and negative numbers, with a message that names the attack."""
    if norm not in NORMS:
        raise ValueError(f"{attack}: expected norm to be one of {NORMS}, got {norm!r}")
    for label, value in numbers.items():
        if value < 0:
            raise ValueError(f"{attack}: expected {label} of at least 0, got {value}")


def inside_ball(images: Tensor, norm: str, eps: float, rng: BatchRandom) -> Tensor:
    """A random change for each image, uniform over the volume of the ball."""
    shape = tuple(images.shape[1:])
    if norm == "linf":
        return rng.uniform(-eps, eps, shape)
    direction = steepest(rng.normal(shape), norm)
    # The volume within a radius grows with its d-th power, so a uniform share of the volume needs the d-th root.
    radius = rng.uniform(0, 1, (1,) * len(shape)) ** (1 / images[0].numel())
    return eps * radius * direction


def on_sphere(images: Tensor, norm: str, eps: float, rng: BatchRandom) -> Tensor:
    """A random change for each image whose norm is exactly `eps`."""
    shape = tuple(images.shape[1:])
    if norm == "l2":
        return eps * steepest(rng.normal(shape), norm)
    change = rng.uniform(-1, 1, shape)
    return eps * change / per_image(change.abs().flatten(1).amax(dim=1), change).clamp_min(1e-12)


def steepest(gradient: Tensor, norm: str) -> Tensor:
    """The change of norm 1 that increases a function with this gradient most."""
    if norm == "linf":
        return gradient.sign()
    return gradient / _length(gradient).clamp_min(1e-12)  # a gradient of zero gives no step instead of NaN


def project(change: Tensor, norm: str, eps: float) -> Tensor:
    """The nearest change inside the ball."""
    if norm == "linf":
        return change.clamp(-eps, eps)
    return change * (eps / _length(change).clamp_min(1e-12)).clamp_max(1)


def per_image(values: Tensor, batch: Tensor) -> Tensor:
    """One number per image, reshaped to broadcast against the batch."""
    return values.view(-1, *[1] * (batch.dim() - 1))


def _length(batch: Tensor) -> Tensor:
    return per_image(batch.flatten(1).norm(dim=1), batch)
