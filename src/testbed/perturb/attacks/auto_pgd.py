"""Auto-PGD (Croce and Hein 2020): the step size looks after itself, so there is nothing to tune but the budget.

It starts at twice the radius. At a few checkpoints the step of an image is halved, and the image goes back to the
best point found, if its loss rose in too few of the steps since the last checkpoint, or if neither the step nor the
best loss has changed since then.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil
from typing import TYPE_CHECKING, Any

from testbed.perturb.attacks.balls import Attack, BatchRandom, check_arguments, on_sphere, per_image, project, steepest
from testbed.perturb.attacks.losses import LOSSES, loss_gradient

if TYPE_CHECKING:
    from torch import Tensor

MOMENTUM = 0.75  # the weight of the new direction; the rest goes to the last move
ENOUGH_RISES = 0.75  # of the steps between two checkpoints


def checkpoints(steps: int) -> list[int]:
    """The steps after which step sizes are looked at: at 22 % of all, then at ever shorter distances, at least 6 %."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    # Rounded before it is rounded up: 0.41 x 100 is a little more than 41 in binary.
    found = (ceil(round(share * steps, 6)) for share in shares[1:])
    return sorted({step for step in found if 0 < step <= steps})


def auto_pgd(norm: str, eps: float, loss: str = "ce", steps: int = 100, restarts: int = 1) -> Attack:
    """APGD-CE (loss="ce") or APGD-DLR (loss="dlr"): the strongest point found in `steps` steps from a random start.

    `eps` counts in pixel values from 0 to 1. As in projected_gradient_descent an image is left alone from the moment
    the model misclassifies it; each restart is for the images that still stand. One that stands to the end comes back
    as the point with the highest loss.
    """
    check_arguments("auto_pgd", norm, eps=eps, steps=steps)
    if loss not in LOSSES:
        raise ValueError(f"auto_pgd: expected loss to be one of {tuple(LOSSES)}, got {loss!r}")
    if restarts < 1:
        raise ValueError(f"auto_pgd: expected at least 1 restart, got {restarts}")

    def attack(images: Tensor, model: Any, targets: Tensor, rng: BatchRandom) -> Tensor:
        import torch

        adversarial = images.clone()
        standing = (model(images).argmax(dim=1) == targets).nonzero().flatten()
        highest = torch.full((len(images),), -torch.inf, device=images.device, dtype=images.dtype)
        for _ in range(restarts):
            if len(standing) == 0:
                break
            # Drawn for the whole batch, since that is what the generator counts in.
            start = (images + on_sphere(images, norm, eps, rng)).clamp(0, 1)
            climb = _Climb(images[standing], targets[standing], norm, eps, model, loss)
            found = climb.run(start[standing], steps)
            better = found.fooled | (found.loss > highest[standing])
            adversarial[standing[better]] = found.images[better]
            highest[standing[better]] = found.loss[better]
            standing = standing[~found.fooled]
        return adversarial

    return attack


@dataclass
class _Found:
    """The best point of each image: its loss, and whether the model is wrong there."""

    images: Tensor
    loss: Tensor
    fooled: Tensor


@dataclass
class _State:
    """What is known of the images that still stand; row i of everything is image i."""

    row: Tensor  # its place in the batch
    current: Tensor
    previous: Tensor
    gradient: Tensor
    loss: Tensor
    best: Tensor
    best_gradient: Tensor
    best_loss: Tensor
    step: Tensor
    rises: Tensor  # steps since the last checkpoint in which the loss rose
    best_loss_before: Tensor  # at the last checkpoint
    halved_before: Tensor

    def keep(self, rows: Tensor) -> None:
        for entry in fields(self):
            setattr(self, entry.name, getattr(self, entry.name)[rows])


class _Climb:
    """One run from one start."""

    def __init__(self, images: Tensor, targets: Tensor, norm: str, eps: float, model: Any, loss: str) -> None:
        self.images, self.targets, self.norm, self.eps = images, targets, norm, eps
        self.model, self.loss = model, LOSSES[loss]

    def run(self, start: Tensor, steps: int) -> _Found:
        import torch

        nobody = torch.zeros(len(start), dtype=torch.bool, device=start.device)
        found = _Found(start.clone(), start.new_empty(len(start)), nobody)
        state = self._begin(start, found)
        marks = checkpoints(steps)
        last = 0
        for k in range(1, steps + 1):
            if len(state.row) == 0:
                break
            self._move(state, first=k == 1)
            self._look(state, found)
            if k in marks:
                _adapt(state, steps_since=k - last)
                last = k
        found.images[state.row], found.loss[state.row] = state.best, state.best_loss
        return found

    def _begin(self, start: Tensor, found: _Found) -> _State:
        import torch

        loss, gradient, right = loss_gradient(start, self.model, self.targets, self.loss)
        state = _State(
            row=torch.arange(len(start), device=start.device),
            current=start,
            previous=start,
            gradient=gradient,
            loss=loss,
            best=start,
            best_gradient=gradient,
            best_loss=loss,
            step=torch.full_like(loss, 2 * self.eps),
            rises=torch.zeros_like(loss),
            best_loss_before=loss,
            halved_before=torch.ones_like(right),  # nothing has had time to improve before the first checkpoint
        )
        _let_go(state, right, found)
        return state

    def _move(self, state: _State, first: bool) -> None:
        """A step uphill, then a point between it and where the last move was heading."""
        images = self.images[state.row]
        uphill = state.current + per_image(state.step, images) * steepest(state.gradient, self.norm)
        uphill = self._within(images, uphill)
        if not first:
            last_move = state.current - state.previous
            uphill = state.current + MOMENTUM * (uphill - state.current) + (1 - MOMENTUM) * last_move
            uphill = self._within(images, uphill)
        state.previous, state.current = state.current, uphill

    def _within(self, images: Tensor, moved: Tensor) -> Tensor:
        return (images + project(moved - images, self.norm, self.eps)).clamp(0, 1)

    def _look(self, state: _State, found: _Found) -> None:
        loss, state.gradient, right = loss_gradient(state.current, self.model, self.targets[state.row], self.loss)
        state.rises = state.rises + (loss > state.loss)
        state.loss = loss
        _replace(state, loss > state.best_loss, {"best": "current", "best_gradient": "gradient", "best_loss": "loss"})
        _let_go(state, right, found)


def _let_go(state: _State, right: Tensor, found: _Found) -> None:
    """Images that the model gets wrong are done."""
    wrong = state.row[~right]
    found.images[wrong], found.loss[wrong], found.fooled[wrong] = state.current[~right], state.loss[~right], True
    if len(wrong):
        state.keep(right)


def _adapt(state: _State, steps_since: int) -> None:
    """A checkpoint: halve the steps that lead nowhere, and start those images again from their best point."""
    oscillates = state.rises < ENOUGH_RISES * steps_since
    stuck = ~state.halved_before & (state.best_loss_before >= state.best_loss)
    halve = oscillates | stuck
    state.step = state.step.where(~halve, state.step / 2)
    _replace(state, halve, {"current": "best", "gradient": "best_gradient", "loss": "best_loss"})
    state.halved_before, state.best_loss_before = halve, state.best_loss
    state.rises = state.rises * 0


def _replace(state: _State, rows: Tensor, names: dict[str, str]) -> None:
    """Put the values of one entry into another, in some rows."""
    for name, source in names.items():
        old, new = getattr(state, name), getattr(state, source)
        setattr(state, name, new.where(per_image(rows, new), old))
