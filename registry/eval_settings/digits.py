"""Handwritten digits, clean, corrupted, shifted and attacked: a demo that runs from a clone, without a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed import ArrayDataset, EvalSetting, registry
from testbed.perturb import geometry
from testbed.perturb.attacks import projected_gradient_descent
from testbed.perturb.corruptions import corruption

data = registry.load_module(Path(__file__).with_name("_digits_data.py"))

TEST = ArrayDataset(make=data.digits_test_images, num_classes=data.NUM_CLASSES)

# Corruption -> the image size whose published constants are used. A digit is a few broad strokes: with the weaker
# constants for 32 pixels every model would be as good as on clean images, so those for 224 are used. Only blur is
# measured in pixels, and its widths for 224 would leave nothing of a digit: it uses those for 64.
# Pixelate is left out: a digit is drawn from 8x8 values, and the squares of some severities meet these values while
# those of weaker ones cut across them, so that accuracy goes up and down. JPEG hardly hurts broad strokes.
CORRUPTIONS = {
    "gaussian_noise": 224,
    "impulse_noise": 224,
    "gaussian_blur": 64,
    "brightness": 224,
    "contrast": 224,
    "jpeg_compression": 224,
}

# The CNNs halve the picture twice: a shift of four pixels falls on their grid again and can hurt them less than one of
# three. The other models, which have no such grid, fall steadily.
SHIFTS: dict[str, Callable[..., Any]] = {
    "digits.translate.1": geometry.translation(pixels=2),
    "digits.translate.2": geometry.translation(pixels=3),
    "digits.translate.3": geometry.translation(pixels=4),
    "digits.rotate.1": geometry.rotation(degrees=10),
    "digits.rotate.2": geometry.rotation(degrees=20),
    "digits.rotate.3": geometry.rotation(degrees=30),
    "digits.thin": geometry.thinner_strokes(radius=2),
    "digits.thick": geometry.thicker_strokes(radius=2),
}


def add(name: str, *tags: str, **what: Any) -> None:
    """Add a setting on the test digits; its clean setting is `digits`."""
    registry.add_eval_setting(
        EvalSetting(
            name=name,
            dataset=TEST,
            size=data.TEST_SIZE,
            parent_eval_setting=None if name == "digits" else "digits",
            tags=tags,
            **what,
        )
    )


add("digits", "clean")

for kind, size in CORRUPTIONS.items():
    for severity in range(1, 6):
        perturbation = corruption(kind, severity, size=size)
        add(
            f"digits.{kind}.{severity}",
            "corruption",
            perturbation_fn_cpu=perturbation,
            version=perturbation.version,
        )

for name, perturbation in SHIFTS.items():
    add(name, "shift", perturbation_fn_cpu=perturbation)

# At 16 of 255 grey levels the strokes are still clearly visible.
ATTACK = {"norm": "linf", "eps": 16 / 255, "step": 4 / 255, "steps": 20}
add(
    "digits.pgd.linf.eps16",
    "adversarial",
    adversarial_attack={"name": "projected_gradient_descent", **ATTACK},
    perturbation_fn_gpu=projected_gradient_descent(**ATTACK),
    version=2,  # its random starts are made of counted bits since then
)

registry.add_eval_setting(
    EvalSetting(
        name="digits-even",
        logits_from="digits",
        class_sublist=(0, 2, 4, 6, 8),
        tags=("subset",),
    )
)

registry.add_group("digits-corruptions", [f"digits.{kind}.*" for kind in CORRUPTIONS])
registry.add_group("digits-shifts", list(SHIFTS))
registry.add_group(
    "digits-demo", ["digits", "digits-corruptions", "digits-shifts", "digits.pgd.linf.eps16", "digits-even"]
)
