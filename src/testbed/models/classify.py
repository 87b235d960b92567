"""Ready-made `classify` functions for a Model: randomised smoothing, and the mean over a picture and its mirror."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from testbed.errors import EntryError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["flip_averaged", "smoothed"]


def smoothed(
    sigma: float,
    votes: int = 100,
    batch: int = 256,
    std: Sequence[float] = (1.0, 1.0, 1.0),
    gradient_draws: int = 8,
) -> Callable[..., Any]:
    """Randomised smoothing (Cohen et al. 2019): the number of votes for each class among `votes` noisy copies.

    `sigma` is the noise in pixel values from 0 to 1. classify gets normalised images, so `std` must be that of the
    Model's normalization if it has one. With a class_sublist only its classes get votes. Votes have no gradient: for an
    attack the output is the logarithm of the mean probability over `gradient_draws` copies (Salman et al. 2019).
    """
    for label, value in (("sigma", sigma), *((f"std[{i}]", s) for i, s in enumerate(std))):
        if not value > 0:
            raise EntryError(f"smoothed: {label} must be above 0, got {value!r}")
    for label, count in (("votes", votes), ("batch", batch), ("gradient_draws", gradient_draws)):
        if count < 1:
            raise EntryError(f"smoothed: {label} must be at least 1, got {count!r}")

    def classify(images: Tensor, model: Any, class_sublist: Sequence[int] | None, rng: Any) -> Tensor:
        import torch
        from torch.nn.functional import one_hot

        scale = sigma / torch.tensor(tuple(std), device=images.device).view(-1, 1, 1)

        def noisy_logits(copies: int) -> Tensor:
            """(images, copies, classes)"""
            # A draw for each copy: how many are shown at once must not change the noise.
            noise = scale * torch.stack([rng.normal(images.shape[1:]) for _ in range(copies)], dim=1)
            logits = model((images[:, None] + noise).flatten(0, 1))
            logits = logits if class_sublist is None else logits[:, list(class_sublist)]
            return logits.unflatten(0, (len(images), copies))

        if images.requires_grad:
            # An image that asks for its gradient is being attacked.
            mean = noisy_logits(gradient_draws).float().softmax(dim=-1).mean(dim=1)
            # A probability of 0 in float32 would give -inf, and a gradient of NaN.
            return mean.clamp_min(torch.finfo(mean.dtype).tiny).log()
        step = max(1, batch // len(images))
        counts: Any = 0
        for start in range(0, votes, step):
            logits = noisy_logits(min(step, votes - start))
            counts = counts + one_hot(logits.argmax(dim=-1), logits.shape[-1]).sum(dim=1)
        return counts.float()

    return classify


def flip_averaged() -> Callable[..., Any]:
    """The mean of the logits of a picture and of its mirror image."""

    def classify(images: Tensor, model: Any) -> Tensor:
        logits: Tensor = (model(images) + model(images.flip(-1))) / 2
        return logits

    return classify
