"""AutoAttack (Croce and Hein 2020), run by its authors' package, by pyautoattack or by torchattacks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from testbed.errors import TestbedError
from testbed.perturb.attacks.balls import Attack, BatchRandom, check_arguments
from testbed.perturb.attacks.losses import weights_set_aside
from testbed.perturb.attacks.standing import places_of

if TYPE_CHECKING:
    from torch import Tensor

VERSIONS = ("standard", "plus", "rand")
_THEIR_NORMS = {"linf": "Linf", "l2": "L2"}
_MISSING = (
    "AutoAttack comes as a package of its own: pip install pyautoattack, or its authors' "
    "git+https://github.com/fra31/auto-attack, or pip install --no-deps torchattacks"
)


def auto_attack(norm: str, eps: float, version: str = "standard") -> Attack:
    """APGD-CE, targeted APGD-DLR, targeted FAB and Square in this order, each on the images that are still right.

    The authors' package `autoattack` is used where it is installed, else `pyautoattack`, which continues it on the
    package index, else `torchattacks`. All draw random numbers for the whole batch at once, so unlike with our own
    attacks the result depends a little on the batch size. The seed comes from the first image's generator: a rerun with
    the same batches gives the same images.
    """
    check_arguments("auto_attack", norm, eps=eps)
    if version not in VERSIONS:
        raise ValueError(f"auto_attack: expected version to be one of {VERSIONS}, got {version!r}")

    def attack(images: Tensor, model: Any, targets: Tensor, rng: BatchRandom) -> Tensor:
        import torch

        # Looked for when the attack runs: a setting can be declared and listed without any of the packages.
        run = next((runner for package, runner in _RUNNERS.items() if find_spec(package)), None)
        if run is None:
            raise TestbedError(_MISSING)
        seed = int(rng.uniform(0, 2**31, (1,))[0])
        adversarial = images.clone()
        labelled = places_of(targets >= 0)  # without a label there is nothing to attack
        if len(labelled):
            options = {"norm": _THEIR_NORMS[norm], "eps": eps, "version": version, "seed": seed}
            with torch.enable_grad(), weights_set_aside(model, always=True):
                attacked = run(model, images[labelled], targets[labelled], options)
            adversarial[labelled] = attacked.detach().to(images)
        return adversarial

    return attack


def _authors_package(model: Any, images: Tensor, targets: Tensor, options: dict[str, Any]) -> Tensor:
    from autoattack import AutoAttack

    adversary = AutoAttack(model, verbose=False, device=images.device, **options)
    adversarial: Tensor = adversary.run_standard_evaluation(images, targets, bs=len(images))
    return adversarial


def _pyautoattack(model: Any, images: Tensor, targets: Tensor, options: dict[str, Any]) -> Tensor:
    from pyautoattack import AutoAttack

    adversary = AutoAttack(model, device=images.device, **options)
    adversarial, _ = adversary.run_standard_evaluation(images, targets, batch_size=len(images))
    return cast("Tensor", adversarial)


def _torchattacks(model: Any, images: Tensor, targets: Tensor, options: dict[str, Any]) -> Tensor:
    import torch
    from torchattacks import AutoAttack

    class OnDevice(torch.nn.Module):
        """The model with one parameter: torchattacks asks the first one for its device, and our classifier has none."""

        def __init__(self) -> None:
            super().__init__()
            self.where = torch.nn.Parameter(torch.zeros((), device=images.device), requires_grad=False)

        def forward(self, inputs: Tensor) -> Tensor:
            logits: Tensor = model(inputs)
            return logits

    with torch.no_grad():
        classes = model(images[:1]).shape[1]
    adversary = AutoAttack(OnDevice().eval(), n_classes=classes, verbose=False, **options)
    adversarial: Tensor = adversary(images, targets)
    return adversarial


# In the order in which they are preferred.
_RUNNERS = {"autoattack": _authors_package, "pyautoattack": _pyautoattack, "torchattacks": _torchattacks}
