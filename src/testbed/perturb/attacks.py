"""Attacks: images in [0, 1] changed within a small ball so that the model no longer sees their class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor

NORMS = ("linf", "l2")


class BatchRandom(Protocol):
    """Random numbers drawn per image: what one image gets does not depend on the rest of its batch."""

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Tensor: ...

    def normal(self, shape: Sequence[int]) -> Tensor: ...


Attack = Callable[["Tensor", Any, "Tensor", BatchRandom], "Tensor"]


def projected_gradient_descent(norm: str, eps: float, step: float, steps: int, random_start: bool = True) -> Attack:
    """Untargeted ascent of the cross-entropy inside the ball of radius `eps` around each image.

    `eps` and `step` count in pixel values from 0 to 1: 8/255, not 8. An image is left alone from the moment
    the model misclassifies it, so one that is wrong from the start (or has no label) comes back unchanged.
    """
    if norm not in NORMS:
        raise ValueError(f"projected_gradient_descent: expected norm to be one of {NORMS}, got {norm!r}")
    for label, value in (("eps", eps), ("step", step), ("steps", steps)):
        if value < 0:
            raise ValueError(f"projected_gradient_descent: expected {label} of at least 0, got {value}")

    def attack(images: Tensor, model: Any, targets: Tensor, rng: BatchRandom) -> Tensor:
        adversarial = images.clone()
        standing = (model(images).argmax(dim=1) == targets).nonzero().flatten()
        if random_start:
            # Drawn for the whole batch, since that is what the generator counts in.
            start = _inside_ball(images, norm, eps, rng)
            adversarial[standing] = (images + start).clamp(0, 1)[standing]
        for _ in range(steps):
            if len(standing) == 0:
                break
            gradient, right = _loss_gradient(adversarial[standing], model, targets[standing])
            standing, gradient = standing[right], gradient[right]
            origin = images[standing]
            moved = adversarial[standing] + step * _steepest(gradient, norm)
            adversarial[standing] = (origin + _project(moved - origin, norm, eps)).clamp(0, 1)
        return adversarial

    return attack


def _loss_gradient(images: Tensor, model: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The direction in which each image's own loss rises, and which images the model still gets right."""
    import torch

    with torch.enable_grad():
        inputs = images.detach().requires_grad_()
        logits = model(inputs)
        column = targets[:, None]
        # The cross-entropy is log(1 + exp(gap)), so the gap has the same direction of ascent; but its gradient
        # does not vanish where a model is sure of itself, and such a model is not mistaken for a robust one.
        gap = logits.scatter(1, column, -torch.inf).logsumexp(dim=1) - logits.gather(1, column)[:, 0]
        # A sum, not a mean: an image's gradient must not depend on the size of its batch.
        (gradient,) = torch.autograd.grad(gap.sum(), inputs)
    return gradient, logits.detach().argmax(dim=1) == targets


def _inside_ball(images: Tensor, norm: str, eps: float, rng: BatchRandom) -> Tensor:
    """A point for each image, uniform over the ball's volume."""
    shape = tuple(images.shape[1:])
    if norm == "linf":
        return rng.uniform(-eps, eps, shape)
    direction = _steepest(rng.normal(shape), norm)
    radius = rng.uniform(0, 1, (1,) * len(shape)) ** (1 / images[0].numel())
    return eps * radius * direction


def _steepest(gradient: Tensor, norm: str) -> Tensor:
    """The step of length one in the norm that gains most along the gradient."""
    if norm == "linf":
        return gradient.sign()
    return gradient / _length(gradient).clamp_min(1e-12)


def _project(change: Tensor, norm: str, eps: float) -> Tensor:
    """The nearest change inside the ball."""
    if norm == "linf":
        return change.clamp(-eps, eps)
    return change * (eps / _length(change).clamp_min(1e-12)).clamp_max(1)


def _length(batch: Tensor) -> Tensor:
    return batch.flatten(1).norm(dim=1).view(-1, *[1] * (batch.dim() - 1))
