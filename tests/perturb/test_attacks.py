"""Projected gradient descent, against linear models whose worst case is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from attacked_models import SHAPE, Linear, random_images, random_weight, run, small_network
from testbed.entries.functions import argument_names
from testbed.perturb.attacks import projected_gradient_descent

EPS = 8 / 255


@pytest.mark.parametrize(("norm", "dual_norm"), [("linf", 1), ("l2", 2)])
def test_on_a_linear_model_the_margin_falls_by_eps_times_the_dual_norm(norm: str, dual_norm: int) -> None:
    images, weight = random_images(6, 0.2, 0.8), random_weight()  # far enough from 0 and 1 not to be clipped
    model = Linear(weight, 100.0, classes=2)  # so sure that no image falls, and that float32 cross-entropy is flat
    result = run(projected_gradient_descent(norm, EPS, EPS / 4, 20), images, model, torch.zeros(6).long())
    lost = (model.margin(images) - model.margin(result)).detach()
    assert lost.numpy() == pytest.approx(np.full(6, EPS * weight.norm(dual_norm).item()), rel=1e-3)


def test_near_black_and_white_the_linf_optimum_is_the_clipped_corner_of_the_ball() -> None:
    images, weight = random_images(6), random_weight()
    eps = 0.4
    result = run(
        projected_gradient_descent("linf", eps, eps / 4, 12),
        images,
        Linear(weight, 100.0, classes=2),
        torch.zeros(6).long(),
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
    model = Linear(weight, -12 + 24 * 2.5 * step, classes=2)  # the third step crosses the boundary
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
