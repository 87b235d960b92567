"""Projected gradient descent, against linear models whose worst case is known in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from testbed.entries import argument_names
from testbed.perturb.attacks import projected_gradient_descent

SHAPE = (3, 4, 4)
EPS = 8 / 255


class PerImageRandom:
    """As the engine's: every image has a generator of its own, named by its id."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.generators = [np.random.default_rng(i) for i in ids]

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Tensor:
        return torch.from_numpy(np.stack([g.uniform(low, high, shape) for g in self.generators])).float()

    def normal(self, shape: Sequence[int]) -> Tensor:
        return torch.from_numpy(np.stack([g.normal(size=shape) for g in self.generators])).float()


class TwoClasses(nn.Module):
    """Logits (margin, 0) with margin = w.x + b: class 0 is seen while the margin is above 0."""

    def __init__(self, weight: Tensor, bias: float) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), bias

    def margin(self, images: Tensor) -> Tensor:
        return images.flatten(1) @ self.weight + self.bias

    def forward(self, images: Tensor) -> Tensor:
        margin = self.margin(images)
        return torch.stack([margin, torch.zeros_like(margin)], dim=1)


def random_images(n: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(3).uniform(low, high, (n, *SHAPE))).float()


def random_weight() -> Tensor:
    return torch.from_numpy(np.random.default_rng(4).normal(size=int(np.prod(SHAPE)))).float()


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(32, 5)).eval()


@torch.no_grad()
def run(attack, images: Tensor, model: nn.Module, targets: Tensor, ids: Sequence[int] | None = None) -> Tensor:
    random = PerImageRandom(range(len(images)) if ids is None else ids)
    return attack(images=images, model=model, targets=targets, rng=random)


@pytest.mark.parametrize(("norm", "dual_norm"), [("linf", 1), ("l2", 2)])
def test_on_a_linear_model_the_margin_falls_by_eps_times_the_dual_norm(norm: str, dual_norm: int) -> None:
    images, weight = random_images(6, 0.2, 0.8), random_weight()  # far enough from 0 and 1 not to be clipped
    model = TwoClasses(weight, bias=100.0)  # so sure that no image falls, and that float32 cross-entropy is flat
    result = run(projected_gradient_descent(norm, EPS, EPS / 4, 20), images, model, torch.zeros(6).long())
    lost = (model.margin(images) - model.margin(result)).detach()
    assert lost.numpy() == pytest.approx(np.full(6, EPS * weight.norm(dual_norm).item()), rel=1e-3)


def test_near_black_and_white_the_linf_optimum_is_the_clipped_corner_of_the_ball() -> None:
    images, weight = random_images(6), random_weight()
    eps = 0.4
    result = run(
        projected_gradient_descent("linf", eps, eps / 4, 12), images, TwoClasses(weight, 100.0), torch.zeros(6).long()
    )
    corner = (images - eps * weight.sign().view(SHAPE)).clamp(0, 1)
    assert torch.allclose(result, corner, atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("steps", [0, 7])
def test_the_ball_and_the_range_of_pixels_are_never_left(norm: str, steps: int) -> None:
    images, model = random_images(32), small_network()
    images[0], images[1] = 0.0, 1.0
    targets = model(images).argmax(dim=1)
    eps = 0.3
    result = run(projected_gradient_descent(norm, eps, eps, steps), images, model, targets)
    change = (result - images).flatten(1)
    size = change.abs().amax(dim=1) if norm == "linf" else change.norm(dim=1)
    assert size.max() <= eps + 1e-6
    assert size.min() > 0
    assert result.min() >= 0
    assert result.max() <= 1


def test_images_already_fooled_keep_their_adversarial_image() -> None:
    weight = torch.full((48,), 0.5)  # a linf step of s lowers the margin by 24 s
    images = torch.full((3, *SHAPE), 0.5)
    step = 1 / 256
    model = TwoClasses(weight, bias=-12 + 24 * 2.5 * step)  # the third step crosses the boundary
    attack = projected_gradient_descent("linf", 8 * step, step, 8, random_start=False)
    result = run(attack, images, model, torch.zeros(3).long())
    assert torch.equal(images - result, torch.full_like(images, 3 * step))
    assert (model(result).argmax(dim=1) == 1).all()


@pytest.mark.parametrize("random_start", [True, False])
def test_images_wrong_from_the_start_or_without_a_label_come_back_unchanged(random_start: bool) -> None:
    images, model = random_images(6), small_network()
    targets = model(images).argmax(dim=1)
    targets[1] = (targets[1] + 1) % 5
    targets[4] = -1
    attack = projected_gradient_descent("linf", EPS, EPS / 4, 5, random_start=random_start)
    changed = (run(attack, images, model, targets) != images).flatten(1).any(dim=1)
    assert changed.tolist() == [True, False, True, True, False, True]


@pytest.mark.parametrize(("norm", "sizes"), [("linf", (0.08, 0.02)), ("l2", (0.2, 0.05))])
def test_the_result_does_not_depend_on_the_batch(norm: str, sizes: tuple[float, float]) -> None:
    images, model = random_images(12).double(), small_network().double()
    targets = model(images).argmax(dim=1)
    attack = projected_gradient_descent(norm, *sizes, 6)
    together = run(attack, images, model, targets)
    alone = torch.cat([run(attack, images[i : i + 1], model, targets[i : i + 1], [i]) for i in range(12)])
    assert torch.allclose(together, alone, atol=1e-9)
    fooled = model(together).argmax(dim=1) != targets
    assert fooled.any()  # so that both images that fell and images that stood were compared
    assert not fooled.all()


def test_the_l2_start_is_uniform_over_the_disc() -> None:
    images = torch.full((4000, 1, 1, 2), 0.5)
    model = nn.Flatten()  # equal logits: class 0 is seen, and nothing is fooled
    start = run(projected_gradient_descent("l2", 0.4, 0.1, 0), images, model, torch.zeros(4000).long())
    squares = (start - images).flatten(1).square().sum(dim=1)
    # Uniform over a disc of radius r: the squared distance is uniform on [0, r^2].
    assert squares.mean().item() == pytest.approx(0.4**2 / 2, rel=0.05)
    assert squares.max() <= 0.4**2 + 1e-6


def test_weights_get_no_gradient_and_the_result_carries_no_graph() -> None:
    images, model = random_images(4), small_network()
    result = run(projected_gradient_descent("l2", 0.5, 0.1, 3), images, model, model(images).argmax(dim=1))
    assert not result.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_attack_may_be_the_perturbation_of_an_entry() -> None:
    attack = projected_gradient_descent("l2", 1, 0.1, 3)
    assert argument_names(attack, "perturbation_fn_gpu", "test") == {"images", "model", "targets", "rng"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("l1", 1, 1, 1), "expected norm to be one of .*linf.*, got 'l1'"),
        (("l2", -1, 1, 1), "expected eps of at least 0, got -1"),
        (("l2", 1, 1, -3), "expected steps of at least 0, got -3"),
    ],
)
def test_a_wrong_argument_is_refused_when_the_attack_is_made(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        projected_gradient_descent(*arguments)
