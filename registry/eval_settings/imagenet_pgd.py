"""PGD with the radii, steps and step sizes of the ImageNet Testbed, against true labels and inside [0, 1].

The testbed attacked the model's own prediction and let pixels leave [0, 1], so its accuracies are higher.
`pgd.*_as-published` does the same (docs/differences.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed import registry
from testbed.metrics.aggregates import Mean
from testbed.perturb.attacks import projected_gradient_descent

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))

STEPS = 100
SIDE = 224  # side of the images for which the l2 radii are given
# Name -> (norm, radius, step), in pixel values from 0 to 1
ATTACKS = {
    "pgd.l2.eps0.1": ("l2", 0.1, 0.01),
    "pgd.l2.eps0.5": ("l2", 0.5, 0.05),
    "pgd.linf.eps0.5": ("linf", 0.5 / 255, 0.03 * 0.5 / 255),
    "pgd.linf.eps2": ("linf", 2 / 255, 0.03 * 2 / 255),
}
# What the ImageNet Testbed did differently.
AS_PUBLISHED = {"labels": "predicted", "clip": False}


def attack(norm: str, eps: float, step: float, **how: Any) -> Any:
    """The attack. An l2 radius is for a side of 224 pixels and grows with the side, as published; the step does not."""

    def perturb(images: Any, model: Any, targets: Any, rng: Any) -> Any:
        height, width = images.shape[-2:]
        scale = (height * width) ** 0.5 / SIDE if norm == "l2" else 1.0
        return projected_gradient_descent(norm, eps * scale, step, STEPS, **how)(images, model, targets, rng)

    return perturb


def parameters(norm: str, eps: float, step: float, **how: Any) -> dict[str, Any]:
    """The attack's parameters, as recorded with a result and passed to models that run the attack themselves."""
    recorded = {"name": "projected_gradient_descent", "norm": norm, "eps": eps, "step": step, "steps": STEPS, **how}
    return recorded | ({"eps_is_for_side": SIDE} if norm == "l2" else {})  # a side of 448 has twice the radius


for _suffix, _how, _tags in (("", {}, (imagenet.PUBLISHED,)), ("_as-published", AS_PUBLISHED, ())):
    for _name, _sizes in ATTACKS.items():
        imagenet.add_with_tenth(
            f"{_name}{_suffix}",
            "adversarial",
            *_tags,
            dataset=imagenet.VAL,
            adversarial_attack=parameters(*_sizes, **_how),
            perturbation_fn_gpu=attack(*_sizes, **_how),
            version=2,  # its random starts are made of counted bits since then
        )

registry.add_group("pgd", list(ATTACKS), aggregate=Mean())
registry.add_group("pgd_as-published", [f"{name}_as-published" for name in ATTACKS], aggregate=Mean())
