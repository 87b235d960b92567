"""The losses that attacks maximise: one number per image, higher the nearer the model is to a wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from testbed.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

Loss = Callable[["Tensor", "Tensor"], "Tensor"]


def cross_entropy_gap(logits: Tensor, targets: Tensor) -> Tensor:
    """logsumexp of the other logits, minus the target's logit.

    The cross-entropy is log(1 + exp(gap)), so both have the same direction of ascent. But where a model is very sure,
    the gradient of the cross-entropy vanishes in float32, which makes the model look robust; that of the gap does not.
    """
    import torch

    column = targets[:, None]
    return logits.scatter(1, column, -torch.inf).logsumexp(dim=1) - logits.gather(1, column)[:, 0]


def logits_ratio(logits: Tensor, targets: Tensor) -> Tensor:
    """The difference of logits ratio (DLR; Croce and Hein 2020): the margin over the spread of the top three logits.

    It does not change when all logits are shifted or scaled.
    """
    import torch

    if logits.shape[1] < 3:
        raise ModelError(
            f"the DLR loss compares three logits, the model has {logits.shape[1]} classes: attack it with loss='ce'"
        )
    column = targets[:, None]
    highest = logits.topk(3, dim=1).values
    rival = logits.scatter(1, column, -torch.inf).amax(dim=1)
    return (rival - logits.gather(1, column)[:, 0]) / (highest[:, 0] - highest[:, 2]).clamp_min(1e-12)


LOSSES: dict[str, Loss] = {"ce": cross_entropy_gap, "dlr": logits_ratio}


def loss_gradient(images: Tensor, model: Any, targets: Tensor, loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
    """For each image its loss, the gradient of the loss, and whether the model predicts the target."""
    import torch

    with torch.enable_grad():
        inputs = images.detach().requires_grad_()
        logits = model(inputs)
        value = loss(logits, targets)
        # A sum, not a mean: an image's gradient must not depend on the size of its batch.
        (gradient,) = torch.autograd.grad(value.sum(), inputs)
    return value.detach(), gradient, logits.detach().argmax(dim=1) == targets
