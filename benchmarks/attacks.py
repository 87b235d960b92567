"""PGD-100 on the demo's networks: image-passes and time beside a plain loop that keeps every image for all steps.

    python benchmarks/attacks.py [--gpus 0]

Both attack the same digits from the same starts, in turn within one run, and should leave the same images right. A
pass is one image once forward and backward. The plain loop is a textbook one: it calls backward(), which also gives
every weight its gradient, and knows nothing of images that are fooled already.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from testbed.entries.registry import load_registry
from testbed.models.classifier import Classifier, LoadedModel
from testbed.options import RunOptions
from testbed.perturb.attacks import auto_pgd, pgd, projected_gradient_descent
from testbed.perturb.attacks.balls import inside_ball
from testbed.perturb.attacks.losses import cross_entropy_gap
from testbed.perturb.attacks.standing import STEPS_BETWEEN_LOOKS
from testbed.perturb.seeding import BatchRandom

IMAGES, STEPS, ROUNDS = 200, 100, 3
RADII = {"linf 16/255": 16 / 255, "linf 24/255": 24 / 255}
NETWORKS = ("digits_cnn", "digits_cnn_adversarial")


class Counting(torch.nn.Module):
    """The model, with a count of the images that pass while gradients are wanted."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.passes = model, 0

    def forward(self, images: torch.Tensor) -> Any:
        self.passes += len(images) if images.requires_grad else 0
        return self.model(images)


def plain_loop(eps: float) -> Callable[..., torch.Tensor]:
    def attack(images: torch.Tensor, model: Any, targets: torch.Tensor, rng: Any) -> torch.Tensor:
        moved = (images + inside_ball(images, "linf", eps, rng)).clamp(0, 1)
        for _ in range(STEPS):
            moved = moved.detach().requires_grad_()
            with torch.enable_grad():
                cross_entropy_gap(model(moved), targets).sum().backward()
            nearest = images + (moved + eps / 4 * moved.grad.sign() - images).clamp(-eps, eps)
            moved = nearest.clamp(0, 1)
        return moved.detach()

    return attack


def looking_as_on_a_gpu(attack: Any) -> Callable[..., torch.Tensor]:
    """The attack, whose fooled images leave every few steps only, whatever the device."""

    def wrapped(*args: Any) -> torch.Tensor:
        usual, pgd.looks = pgd.looks, lambda step, images: step % STEPS_BETWEEN_LOOKS == 0
        try:
            result: torch.Tensor = attack(*args)
        finally:
            pgd.looks = usual
        return result

    return wrapped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", default="cpu", help="a device such as 0, or cpu")
    chosen = parser.parse_args().gpus
    device = f"cuda:{chosen}" if chosen.isdigit() else chosen
    registry = load_registry()
    setting = registry.runnable("digits")
    samples = setting.dataset.open([])
    pictures = np.stack([np.array(samples.load(i)) for i in range(IMAGES)])
    images = (torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255).to(device)
    targets = torch.from_numpy(samples.targets[:IMAGES]).to(device)
    print(f"{IMAGES} digits, {STEPS} steps, {torch.get_num_threads()} threads, {device}")
    print(f"{'':<60} {'right':>6} {'passes':>8} {'seconds':>8}")
    for name in NETWORKS:
        model = Counting(Classifier(LoadedModel(registry.model(name), device, RunOptions()), setting).eval())
        for label, eps in RADII.items():
            attacks = {
                "plain loop": plain_loop(eps),
                "PGD": projected_gradient_descent("linf", eps, eps / 4, STEPS),
                "PGD, looks as on a GPU": looking_as_on_a_gpu(projected_gradient_descent("linf", eps, eps / 4, STEPS)),
                "APGD-CE": auto_pgd("linf", eps, "ce", STEPS),
            }
            compare(f"{name}, {label}", attacks, model, images, targets)


def compare(title: str, attacks: dict[str, Any], model: Counting, images: torch.Tensor, targets: torch.Tensor) -> None:
    best = dict.fromkeys(attacks, float("inf"))
    right, passes = {}, {}
    for _ in range(ROUNDS):  # in turn, so that a busy machine slows all of them
        for name, attack in attacks.items():
            rng = BatchRandom(0, "benchmark", [str(i) for i in range(IMAGES)], images.device)
            model.passes, started = 0, time.perf_counter()
            with torch.no_grad():
                adversarial = attack(images, model, targets, rng)
                right[name] = int((model(adversarial).argmax(dim=1) == targets).sum())  # waits for the device
            best[name] = min(best[name], time.perf_counter() - started)
            passes[name] = model.passes
    for name in attacks:
        against = f"{passes['plain loop'] / passes[name]:5.1f} x fewer, {best['plain loop'] / best[name]:5.1f} x faster"
        print(f"{title + ', ' + name:<60} {right[name]:>6} {passes[name]:>8} {best[name]:>8.2f}  {against}")


if __name__ == "__main__":
    main()
