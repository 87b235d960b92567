"""Attacks without a step size to tune, at the usual radii: APGD-CE, APGD-DLR and AutoAttack.

ImageNet: linf 4/255. CIFAR-10: linf 8/255 and l2 0.5. AutoAttack needs another package (docs/attacks.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed import EvalSetting, registry
from testbed.metrics.classification import classification
from testbed.perturb.attacks import auto_attack, auto_pgd

imagenet = registry.load_module(Path(__file__).with_name("_imagenet.py"))
cifar = registry.load_module(Path(__file__).with_name("_cifar_data.py"))

STEPS = 100  # as in AutoAttack


def attacks(norm: str, eps: float) -> dict[str, dict[str, Any]]:
    """Attack -> its arguments of EvalSetting."""
    by_name: dict[str, dict[str, Any]] = {}
    for loss in ("ce", "dlr"):
        options = {"norm": norm, "eps": eps, "loss": loss, "steps": STEPS, "restarts": 1}
        by_name[f"apgd-{loss}"] = {
            "adversarial_attack": {"name": "auto_pgd", **options},
            "perturbation_fn_gpu": auto_pgd(**options),
            "version": 2,  # its random starts are made of counted bits since then
        }
    options = {"norm": norm, "eps": eps, "version": "standard"}
    by_name["autoattack"] = {
        "adversarial_attack": {"name": "auto_attack", **options},
        "perturbation_fn_gpu": auto_attack(**options),
        "version": 2,  # its seed is made of counted bits since then
    }
    return by_name


for _name, _attack in attacks("linf", 4 / 255).items():
    imagenet.add_with_tenth(f"{_name}.linf.eps4", "adversarial", dataset=imagenet.VAL, **_attack)

for _norm, _eps, _label in (("linf", 8 / 255, "8"), ("l2", 0.5, "0.5")):
    for _name, _attack in attacks(_norm, _eps).items():
        registry.add_eval_setting(
            EvalSetting(
                name=f"cifar10.{_name}.{_norm}.eps{_label}",
                dataset=cifar.TEST,
                size=cifar.TEST_SIZE,
                metrics_fn=classification,
                parent_eval_setting="cifar10-test",
                tags=("cifar", "cifar10", "adversarial"),
                **_attack,
            )
        )
