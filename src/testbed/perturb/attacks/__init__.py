"""Attacks: images in [0, 1] changed within a small ball so that the model no longer sees their class."""

from testbed.perturb.attacks.auto_attack import auto_attack
from testbed.perturb.attacks.auto_pgd import auto_pgd
from testbed.perturb.attacks.balls import NORMS, Attack, BatchRandom
from testbed.perturb.attacks.pgd import projected_gradient_descent

__all__ = ["NORMS", "Attack", "BatchRandom", "auto_attack", "auto_pgd", "projected_gradient_descent"]
