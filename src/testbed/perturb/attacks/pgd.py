"""Projected gradient descent: a fixed number of steps of a fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testbed.perturb.attacks.balls import Attack, BatchRandom, check_arguments, inside_ball, project, steepest
from testbed.perturb.attacks.losses import cross_entropy_gap, loss_gradient

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

    def attack(images: Tensor, model: Any, targets: Tensor, rng: BatchRandom) -> Tensor:
        adversarial = images.clone()
        predicted = model(images).argmax(dim=1)
        if labels == "predicted":
            targets = predicted
        standing = (predicted == targets).nonzero().flatten()
        if random_start:
            # Drawn for the whole batch: `rng` has one generator per image of the batch.
            start = within(images, images + inside_ball(images, norm, eps, rng))
            adversarial[standing] = start[standing]
        for _ in range(steps):
            if len(standing) == 0:
                break
            _, gradient, right = loss_gradient(adversarial[standing], model, targets[standing], cross_entropy_gap)
            if labels == "true":  # the published runs took all steps, whatever became of the prediction
                standing, gradient = standing[right], gradient[right]
            moved = adversarial[standing] + step * steepest(gradient, norm)
            adversarial[standing] = within(images[standing], moved)
        return adversarial

    return attack
