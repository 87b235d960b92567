"""The corruptions as they were before they took batches: NumPy, one picture at a time; what benchmarks compare with.

Called as `apply(name, pixels HWC in [0, 1], rng, parameters)`; the constants are those of testbed.perturb.corruptions.
"""

from __future__ import annotations

import numpy as np

from numpy_corruptions import bar_light, bar_noise, blur, digital, noise, spatter, weather

_MODULES = (noise, blur, weather, digital, spatter, bar_light, bar_noise)


def apply(name: str, image: np.ndarray, rng: np.random.Generator, parameters: dict[str, float]) -> np.ndarray:
    """What the corruption makes of one picture."""
    function = next(getattr(module, name) for module in _MODULES if hasattr(module, name))
    return function(image, rng, **parameters)
