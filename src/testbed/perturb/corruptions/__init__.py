"""Image corruptions in memory: the 19 of ImageNet-C and the ten of ImageNet-C-bar, deterministic given a generator.

Importing this loads neither torch nor scipy nor PIL.
"""

from testbed.perturb.corruptions.apply import BAR_CORRUPTIONS, CORRUPTIONS, Corruption, corruption

__all__ = ["BAR_CORRUPTIONS", "CORRUPTIONS", "Corruption", "corruption"]
