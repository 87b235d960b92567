"""AutoAttack through somebody else's package: a stand-in for `autoattack`, the real others where installed."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from attacked_models import random_images, run, small_network
from testbed.errors import TestbedError
from testbed.perturb.attacks import auto_attack, auto_pgd


@pytest.fixture
def absent(monkeypatch):
    """None of the packages is installed."""
    adapter = sys.modules["testbed.perturb.attacks.auto_attack"]
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    return monkeypatch


def test_a_missing_package_is_named_with_the_command_that_installs_it(absent) -> None:
    images, model = random_images(2), small_network()
    with pytest.raises(TestbedError, match="pip install pyautoattack, or its authors' git"):
        run(auto_attack("linf", 0.1), images, model, torch.zeros(2).long())


def test_the_authors_package_gets_its_own_words_and_labelled_images_only(absent) -> None:
    """With a stand-in: `autoattack` is on no package index. The words are those of its README."""
    calls = []

    class AutoAttack:
        def __init__(self, model, norm, eps, seed, verbose, version, device):
            calls.append({"norm": norm, "eps": eps, "version": version, "seed": seed, "verbose": verbose})

        def run_standard_evaluation(self, x, y, bs):
            calls.append((len(x), y.tolist(), bs, torch.is_grad_enabled()))
            return x + 0.01

    stand_in = ModuleType("autoattack")
    stand_in.AutoAttack = AutoAttack
    absent.setitem(sys.modules, "autoattack", stand_in)
    adapter = sys.modules["testbed.perturb.attacks.auto_attack"]
    absent.setattr(adapter, "find_spec", lambda name: name == "autoattack")
    images = random_images(3, 0.2, 0.8)
    targets = torch.tensor([1, -1, 2])
    result = run(auto_attack("l2", 0.5, "plus"), images, small_network(), targets)
    again = run(auto_attack("l2", 0.5, "plus"), images, small_network(), targets)
    assert torch.equal(result, again)
    options, arguments = calls[:2]
    assert options["seed"] == calls[2]["seed"] > 0
    assert options | {"seed": 0} == {"norm": "L2", "eps": 0.5, "version": "plus", "seed": 0, "verbose": False}
    assert arguments == (2, [1, 2], 2, True)
    assert (result - images).flatten(1).amax(dim=1).tolist() == pytest.approx([0.01, 0, 0.01], abs=1e-6)


@pytest.mark.parametrize("package", ["pyautoattack", "torchattacks"])
def test_a_package_finds_adversarial_images_inside_the_ball(absent, package: str) -> None:
    pytest.importorskip(package, reason=f"pip install --no-deps {package}")
    absent.setattr(sys.modules["testbed.perturb.attacks.auto_attack"], "find_spec", lambda name: name == package)
    images, model = random_images(8), small_network()
    targets = model(images).argmax(dim=1)
    targets[3] = -1
    result = run(auto_attack("linf", 0.3, "rand"), images, model, targets)
    assert torch.equal(result[3], images[3])
    assert (result - images).abs().max() <= 0.3 + 1e-6
    assert result.min() >= 0
    assert result.max() <= 1
    labelled = targets >= 0
    assert (model(result).argmax(dim=1) != targets)[labelled].all()


@pytest.mark.long
def test_pyautoattack_gives_the_same_images_again_and_is_no_weaker_than_our_apgd(absent) -> None:
    """Its first attack is APGD-CE with 100 steps; every later one can only fool more."""
    pytest.importorskip("pyautoattack", reason="pip install pyautoattack")
    absent.setattr(sys.modules["testbed.perturb.attacks.auto_attack"], "find_spec", lambda name: name == "pyautoattack")
    images, model = random_images(16), small_network()
    targets = model(images).argmax(dim=1)
    first, again = (run(auto_attack("linf", 0.02, "rand"), images, model, targets) for _ in range(2))
    ours = run(auto_pgd("linf", 0.02, "ce", steps=100), images, model, targets)
    left, left_by_ours = (int((model(result).argmax(dim=1) == targets).sum()) for result in (first, ours))
    assert torch.equal(first, again)
    assert 0 < left <= left_by_ours


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("l1", 1), "auto_attack: expected norm"), (("l2", 1, "best"), "expected version to be one of .*, got 'best'")],
)
def test_a_wrong_argument_is_refused_when_the_attack_is_made(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        auto_attack(*arguments)
