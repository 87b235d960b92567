"""Projected gradient descent: a fixed number of steps of a fixed size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.perturb.attacks.balls import (
    Attack,
    BatchRandom,
    check_arguments,
    inside_ball,
    per_image,
    project,
    steepest,
)
from testbed.perturb.attacks.losses import cross_entropy_gap, loss_gradient, weights_set_aside
from testbed.perturb.attacks.standing import Attacked, let_go, looks

if TYPE_CHECKING:
    from torch import Tensor

LABELS = ("true", "predicted")


def projected_gradient_descent(
    norm: str,
    eps: float,
    step: float,
    steps: int,
    random_start: bool = True,
    labels: str = "true",
    clip: bool = True,
) -> Attack:
    """Untargeted ascent of the cross-entropy inside the ball of radius `eps` around each image.

    `eps` and `step` are in pixel values from 0 to 1: 8/255, not 8. An image is final once the model misclassifies it,
    so one that is wrong from the start (or has no label) comes back unchanged.

    labels="predicted" attacks the model's prediction for the clean image, right or wrong, and takes all steps;
    clip=False lets pixels leave [0, 1]. The published runs did both (docs/differences.md).
    """
    check_arguments("projected_gradient_descent", norm, eps=eps, step=step, steps=steps)
    if labels not in LABELS:
        raise ValueError(f"projected_gradient_descent: expected labels to be one of {LABELS}, got {labels!r}")

    def within(origin: Tensor, moved: Tensor) -> Tensor:
        nearest = origin + project(moved - origin, norm, eps)
        return nearest.clamp(0, 1) if clip else nearest

    def advance(state: _State, model: Any) -> None:
        """One step of all images that stand. Nothing in it waits for the device."""
        _, gradient, right = loss_gradient(state.current, model, state.targets, cross_entropy_gap)
        if labels == "true":  # the published runs took all steps, whatever became of the prediction
            state.standing = state.standing & right
        moved = within(state.origin, state.current + step * steepest(gradient, norm))
        state.current = moved.where(per_image(state.standing, moved), state.current)

    def attack(images: Tensor, model: Any, targets: Tensor, rng: BatchRandom) -> Tensor:
        adversarial = images.clone()

        def put_back(state: _State) -> None:
            adversarial[state.row] = state.current

        with weights_set_aside(model):
            predicted = model(images).argmax(dim=1)
            start = within(images, images + inside_ball(images, norm, eps, rng)) if random_start else images
            state = _begin(images, start, predicted if labels == "predicted" else targets, predicted)
            for k in range(steps):
                if labels == "true" and looks(k, images):
                    let_go(state, put_back)
                    if not len(state.row):
                        break
                advance(state, model)
        put_back(state)
        return adversarial

    return attack


@dataclass
class _State(Attacked):
    origin: Tensor
    current: Tensor
    targets: Tensor


def _begin(images: Tensor, start: Tensor, targets: Tensor, predicted: Tensor) -> _State:
    """The state before the first step: an image that is wrong from the start stays as it is."""
    import torch

    standing = predicted == targets
    row = torch.arange(len(images), device=images.device)
    return _State(row, standing, images, start.where(per_image(standing, start), images), targets)
