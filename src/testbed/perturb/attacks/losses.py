"""The losses that attacks maximise, one number per image, and their gradients: those of the images alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from testbed.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor

Loss = Callable[["Tensor", "Tensor"], "Tensor"]  # higher the nearer the model is to a wrong answer


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
    """For each image its loss, the gradient of the loss, and whether the model predicts the target.

    An image without a label has some loss, and is never right.
    """
    import torch

    with torch.enable_grad():
        inputs = images.detach().requires_grad_()
        logits = model(inputs)
        value = loss(logits, targets.clamp_min(0))  # -1 is no column
        # A sum, not a mean: an image's gradient must not depend on the size of its batch.
        (gradient,) = torch.autograd.grad(value.sum(), inputs)
    return value.detach(), gradient, logits.detach().argmax(dim=1) == targets


@contextmanager
def weights_set_aside(model: Any, always: bool = False) -> Iterator[None]:
    """Inside the context the weights of a compiled network require no gradient; afterwards, those that did do so again.

    loss_gradient leaves the weights' gradients out by itself. Only the backward pass of a compiled network computes all
    of them, whatever is asked for: half as much time again. Other networks are left alone: without gradients of the
    weights nn.MultiheadAttention multiplies matrices one by one, and a ViT-B/16 of torchvision takes a quarter longer.
    `always` is for somebody else's attack, which may call backward() and so leave gradients in the weights.
    """
    network = getattr(model, "network", model)  # the testbed's classifier, or a bare model
    concerned = hasattr(model, "parameters") and (always or hasattr(network, "_orig_mod"))
    required = [parameter for parameter in model.parameters() if parameter.requires_grad] if concerned else []
    try:
        for parameter in required:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in required:
            parameter.requires_grad_(True)
