"""PGD as the published runs did it: the model's own prediction as label, all the steps, pixels outside [0, 1]."""

from __future__ import annotations

import pytest
import torch

from attacked_models import random_images, run, small_network
from testbed.perturb.attacks import projected_gradient_descent

PUBLISHED = {"labels": "predicted", "clip": False}


def test_an_image_that_was_wrong_is_attacked_too_and_may_become_right() -> None:
    images, model = random_images(64), small_network()
    predicted = model(images).argmax(dim=1)
    targets = (predicted + 1) % 5  # all wrong
    sizes = ("linf", 0.2, 0.05, 10)
    untouched = run(projected_gradient_descent(*sizes), images, model, targets)
    assert torch.equal(untouched, images)
    attacked = run(projected_gradient_descent(*sizes, **PUBLISHED), images, model, targets)
    assert (model(attacked).argmax(dim=1) == targets).any()
    assert (model(attacked).argmax(dim=1) != predicted).all()


def test_the_label_does_not_matter() -> None:
    images, model = random_images(8), small_network()
    attack = projected_gradient_descent("l2", 0.4, 0.1, 4, **PUBLISHED)
    first = run(attack, images, model, torch.zeros(8).long())
    second = run(attack, images, model, torch.full((8,), -1))
    assert torch.equal(first, second)


@pytest.mark.parametrize(("norm", "order"), [("linf", torch.inf), ("l2", 2)])
def test_pixels_may_leave_the_range_but_not_the_ball(norm: str, order: float) -> None:
    images, model = random_images(16), small_network()
    images[0], images[1] = 0.0, 1.0
    result = run(projected_gradient_descent(norm, 0.3, 0.1, 6, **PUBLISHED), images, model, torch.zeros(16).long())
    assert result.min() < 0
    assert result.max() > 1
    assert (result - images).flatten(1).norm(order, dim=1).max() <= 0.3 + 1e-6


@pytest.mark.parametrize(("norm", "order"), [("linf", float("inf")), ("l2", 2)])
def test_the_same_images_as_cleverhans(norm: str, order: float) -> None:
    """The library of the published runs, with its defaults y=None, clip_min=None, clip_max=None."""
    theirs = pytest.importorskip("cleverhans.torch.attacks.projected_gradient_descent", exc_type=ImportError)
    images, model = random_images(16), small_network()
    sizes = (0.3, 0.02, 25)
    expected = theirs.projected_gradient_descent(model, images, *sizes, order, rand_init=False, sanity_checks=False)
    attack = projected_gradient_descent(norm, *sizes, random_start=False, **PUBLISHED)
    result = run(attack, images, model, torch.zeros(16).long())
    assert torch.allclose(result, expected.detach(), atol=1e-5)


def test_a_wrong_word_for_labels_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected labels to be one of \('true', 'predicted'\), got 'own'"):
        projected_gradient_descent("l2", 1, 1, 1, labels="own")
