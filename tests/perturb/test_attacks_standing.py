"""Images that are fooled leave the batch: fewer passes, the same images. Weights get no gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attacked_models import random_images, run, small_network
from testbed.perturb.attacks import auto_attack, auto_pgd, projected_gradient_descent
from testbed.perturb.attacks.losses import weights_set_aside

EVERY_STEP, NOW_AND_THEN, NEVER = (lambda k, _: True), (lambda k, _: k % 5 == 0), (lambda k, _: False)
ATTACKS = {
    "pgd.linf": projected_gradient_descent("linf", 0.06, 0.01, 12),
    "pgd.l2": projected_gradient_descent("l2", 0.2, 0.05, 12),
    "apgd-ce.linf": auto_pgd("linf", 0.06, "ce", 12, restarts=2),
    "apgd-dlr.l2": auto_pgd("l2", 0.2, "dlr", 12, restarts=2),
}


@pytest.fixture
def looking(monkeypatch):
    """Sets before which steps fallen images leave, as another device would."""

    def when(looks):
        monkeypatch.setattr("testbed.perturb.attacks.pgd.looks", looks)
        # The package exports a function of the module's name.
        monkeypatch.setitem(auto_pgd.__globals__, "looks", looks)

    return when


class Counting(nn.Module):
    """Counts the images that pass."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.passes = network, 0

    def forward(self, images):
        self.passes += len(images)
        return self.network(images)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_when_fallen_images_leave_does_not_matter(looking, name: str) -> None:
    images, model = random_images(48).double(), small_network().double()
    targets = model(images).argmax(dim=1)
    targets[::9] = (targets[::9] + 1) % 5
    targets[5] = -1
    results = []
    for looks in (EVERY_STEP, NOW_AND_THEN, NEVER):
        looking(looks)
        results.append(run(ATTACKS[name], images, model, targets))
    right = model(results[0]).argmax(dim=1) == targets
    assert 0 < right.sum() < (model(images).argmax(dim=1) == targets).sum()  # some stood, some fell
    for other in results[1:]:
        assert torch.allclose(results[0], other, atol=1e-9)


@pytest.mark.parametrize("looks", [EVERY_STEP, NOW_AND_THEN])
@pytest.mark.parametrize(
    "attack", [projected_gradient_descent("linf", 0.2, 0.02, 100), auto_pgd("linf", 0.2)], ids=["pgd", "apgd"]
)
def test_a_hundred_steps_cost_half_the_passes_of_the_plain_loop_once_most_are_fooled(looking, looks, attack) -> None:
    looking(looks)
    images, model = random_images(64), Counting(small_network())
    targets = model.network(images).argmax(dim=1)
    adversarial = run(attack, images, model, targets)
    fooled = (model.network(adversarial).argmax(dim=1) != targets).float().mean()
    assert fooled > 0.5
    assert model.passes <= 0.5 * 100 * len(images)


def test_a_device_is_waited_for_only_now_and_then() -> None:
    from testbed.perturb.attacks.standing import looks

    on_gpu = torch.empty(1, device="meta")  # any device but the CPU
    assert [k for k in range(12) if looks(k, on_gpu)] == [0, 5, 10]
    assert all(looks(k, torch.empty(1)) for k in range(12))


class Compiled(nn.Module):
    """What torch.compile makes of a network, as far as its name for it goes; notes which weights want gradients."""

    def __init__(self) -> None:
        super().__init__()
        self._orig_mod = small_network()
        self._orig_mod[0].bias.requires_grad_(False)
        self.wanted: list[list[bool]] = []

    def forward(self, images):
        self.wanted.append([p.requires_grad for p in self.parameters()])
        if len(self.wanted) == 3:
            raise RuntimeError("out of memory")
        return self._orig_mod(images)


def test_weights_of_a_compiled_network_want_no_gradient_during_an_attack_and_do_so_again_after_an_error() -> None:
    images, model = random_images(4), Compiled()
    before = [p.requires_grad for p in model.parameters()]
    assert before == [True, False, True, True]
    targets = model._orig_mod(images).argmax(dim=1)
    with pytest.raises(RuntimeError, match="out of memory"):
        run(projected_gradient_descent("linf", 0.01, 0.001, 9), images, model, targets)
    assert model.wanted == [[False] * 4] * 3
    assert [p.requires_grad for p in model.parameters()] == before


def test_a_package_that_calls_backward_leaves_no_gradients_in_the_weights(monkeypatch) -> None:
    def theirs(model, images, targets, options):
        moved = images.clone().requires_grad_()
        model(moved).sum().backward()
        return images + 0.01 * moved.grad.sign()

    adapter = auto_attack.__globals__
    monkeypatch.setitem(adapter, "find_spec", lambda name: name == "autoattack")
    monkeypatch.setitem(adapter, "_RUNNERS", {"autoattack": theirs})
    images, model = random_images(4), small_network()
    run(auto_attack("linf", 0.1), images, model, torch.zeros(4).long())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_plain_function_is_a_model_too() -> None:
    with weights_set_aside(lambda images: images, always=True):
        pass
