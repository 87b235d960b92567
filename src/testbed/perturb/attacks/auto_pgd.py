"""Auto-PGD (Croce and Hein 2020): PGD that adapts its step size, so only the number of steps is left to choose.

The step size starts at twice the radius. At a few checkpoints it is halved for an image, and the image goes back to
its best point, if its loss rose in too few of the steps since the last checkpoint, or if neither its step size nor
its best loss has changed since then.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from testbed.perturb.attacks.balls import Attack, BatchRandom, check_arguments, on_sphere, per_image, project, steepest
from testbed.perturb.attacks.losses import LOSSES, loss_gradient, weights_set_aside
from testbed.perturb.attacks.standing import Attacked, let_go, looks, places_of

if TYPE_CHECKING:
    from torch import Tensor

MOMENTUM = 0.75  # the paper's alpha: weight of the new step; the rest goes to the last move
ENOUGH_RISES = 0.75  # the paper's rho: share of the steps between two checkpoints


def checkpoints(steps: int) -> list[int]:
    """The steps after which step sizes are checked: at 22 % of all steps, then every 19 %, 16 %, ... down to 6 %."""
    shares = [0.0, 0.22]
    while shares[-1] < 1:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    # Rounded before it is rounded up: 0.41 x 100 is a little more than 41 in binary.
    candidates = (ceil(round(share * steps, 6)) for share in shares[1:])
    return sorted({step for step in candidates if 0 < step <= steps})


def auto_pgd(norm: str, eps: float, loss: str = "ce", steps: int = 100, restarts: int = 1) -> Attack:
    """APGD-CE (loss="ce") or APGD-DLR (loss="dlr") with `steps` steps from each random start.

    `eps` is in pixel values from 0 to 1. As in projected_gradient_descent an image is final once the model
    misclassifies it; a restart is for the images that are still classified right. One that remains so comes back as
    the point with the highest loss of all restarts.
    """
    check_arguments("auto_pgd", norm, eps=eps, steps=steps)
    if loss not in LOSSES:
        raise ValueError(f"auto_pgd: expected loss to be one of {tuple(LOSSES)}, got {loss!r}")
    if restarts < 1:
        raise ValueError(f"auto_pgd: expected at least 1 restart, got {restarts}")

    def attack(images: Tensor, model: Any, targets: Tensor, rng: BatchRandom) -> Tensor:
        import torch

        adversarial = images.clone()
        highest = torch.full((len(images),), -torch.inf, device=images.device, dtype=images.dtype)
        with weights_set_aside(model):
            standing = places_of(model(images).argmax(dim=1) == targets)
            for restart in range(restarts):
                if len(standing) == 0:
                    break
                # Drawn for the whole batch: `rng` has one generator per image of the batch.
                start = (images + on_sphere(images, norm, eps, rng)).clamp(0, 1)
                climb = _Climb(images[standing], targets[standing], norm, eps, model, loss)
                outcome = climb.run(start[standing], steps)
                better = outcome.fooled | (outcome.loss > highest[standing])
                kept = adversarial[standing]
                adversarial[standing] = outcome.images.where(per_image(better, kept), kept)
                highest[standing] = outcome.loss.where(better, highest[standing])
                if restart + 1 < restarts:
                    standing = standing[places_of(~outcome.fooled)]
        return adversarial

    return attack


@dataclass
class _Outcome:
    """The final point of each image, its loss, and whether the model misclassifies it."""

    images: Tensor
    loss: Tensor
    fooled: Tensor

    def write_down(self, state: _State) -> None:
        """Where the images of the state are: fallen ones where they fell, others at their best point."""
        self.images[state.row] = state.best.where(per_image(state.standing, state.best), state.current)
        self.loss[state.row] = state.best_loss.where(state.standing, state.loss)
        self.fooled[state.row] = ~state.standing


@dataclass
class _State(Attacked):
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


class _Climb:
    """The ascent of the loss from one start."""

    def __init__(self, images: Tensor, targets: Tensor, norm: str, eps: float, model: Any, loss: str) -> None:
        self.images, self.targets, self.norm, self.eps = images, targets, norm, eps
        self.model, self.loss = model, LOSSES[loss]

    def run(self, start: Tensor, steps: int) -> _Outcome:
        import torch

        nobody = torch.zeros(len(start), dtype=torch.bool, device=start.device)
        outcome = _Outcome(start.clone(), start.new_empty(len(start)), nobody)
        state = self._begin(start)
        marks = checkpoints(steps)
        last = 0
        for k in range(1, steps + 1):
            if looks(k - 1, start):
                let_go(state, outcome.write_down)
                if len(state.row) == 0:
                    break
            self._move(state, first=k == 1)
            self._evaluate(state)
            if k in marks:
                _adapt(state, steps_since=k - last)
                last = k
        outcome.write_down(state)
        return outcome

    def _begin(self, start: Tensor) -> _State:
        import torch

        loss, gradient, right = loss_gradient(start, self.model, self.targets, self.loss)
        return _State(
            row=torch.arange(len(start), device=start.device),
            standing=right,
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

    def _move(self, state: _State, first: bool) -> None:
        """A projected gradient step, mixed with the last move (momentum)."""
        images = self.images[state.row]
        uphill = state.current + per_image(state.step, images) * steepest(state.gradient, self.norm)
        uphill = self._within(images, uphill)
        if not first:  # the first step has no last move
            last_move = state.current - state.previous
            uphill = state.current + MOMENTUM * (uphill - state.current) + (1 - MOMENTUM) * last_move
            uphill = self._within(images, uphill)
        state.previous = state.current
        state.current = uphill.where(per_image(state.standing, uphill), state.current)

    def _within(self, images: Tensor, moved: Tensor) -> Tensor:
        """The points brought back into the ball around the images, and into [0, 1]."""
        return (images + project(moved - images, self.norm, self.eps)).clamp(0, 1)

    def _evaluate(self, state: _State) -> None:
        """Evaluate the current points: update losses, gradients, best points, and which images still stand."""
        loss, state.gradient, right = loss_gradient(state.current, self.model, self.targets[state.row], self.loss)
        state.rises = state.rises + (loss > state.loss)
        state.loss = loss
        _replace(state, loss > state.best_loss, {"best": "current", "best_gradient": "gradient", "best_loss": "loss"})
        state.standing = state.standing & right


def _adapt(state: _State, steps_since: int) -> None:
    """A checkpoint: halve the step size of images that make no progress, and send these back to their best point."""
    oscillates = state.rises < ENOUGH_RISES * steps_since  # the paper's condition 1
    stuck = ~state.halved_before & (state.best_loss_before >= state.best_loss)  # its condition 2
    halve = (oscillates | stuck) & state.standing  # a fallen image stays where it fell
    state.step = state.step.where(~halve, state.step / 2)
    _replace(state, halve, {"current": "best", "gradient": "best_gradient", "loss": "best_loss"})
    state.halved_before, state.best_loss_before = halve, state.best_loss
    state.rises = state.rises * 0


def _replace(state: _State, rows: Tensor, names: dict[str, str]) -> None:
    """In these rows (a mask) set each entry of the state to another one: `names` is entry -> source."""
    for name, source in names.items():
        old, new = getattr(state, name), getattr(state, source)
        setattr(state, name, new.where(per_image(rows, new), old))
