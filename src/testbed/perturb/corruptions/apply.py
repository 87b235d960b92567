"""A corruption at one severity, as the value an eval setting carries: `corruption("fog", 3)`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from testbed.perturb.corruptions import bar_light, bar_noise, blur, digital, noise, spatter, weather
from testbed.perturb.corruptions.constants import (
    IMAGENET_C,
    IMAGENET_C_BAR,
    SEVERITIES,
    SIZES,
    TABLES,
    constants,
    size_for,
)

if TYPE_CHECKING:
    import torch

    from testbed.perturb.corruptions.on_device import Generators

Function = Callable[..., np.ndarray]

# Each corruption is the function with the name of its table of constants.
_FUNCTIONS: dict[str, Function] = {
    name: getattr(module, name)
    for module in (noise, blur, weather, digital, spatter, bar_light, bar_noise)
    for name in TABLES
    if hasattr(module, name)
}

_READ_FILES = ("frost",)  # they read textures from the data roots of the run

# In the published order; the last four of ImageNet-C are its extra (validation) corruptions.
CORRUPTIONS: tuple[str, ...] = tuple(IMAGENET_C)
BAR_CORRUPTIONS: tuple[str, ...] = tuple(IMAGENET_C_BAR)


@dataclass(frozen=True)
class Corruption:
    """A corruption at one severity, called as a perturbation_fn_cpu: float CHW tensor in [0, 1] in and out.

    The published programs return bytes. Here values stay floats and are not rounded to whole grey levels, except by
    JPEG and pixelate, which work on bytes.
    """

    name: str
    severity: int
    size: int | None = None

    def __post_init__(self) -> None:
        if self.name not in _FUNCTIONS:
            raise ValueError(f"corruption: expected {_names_near(self.name)}, got {self.name!r}")
        # Not isinstance: True is an int, and would be severity 1.
        if type(self.severity) is not int or self.severity not in SEVERITIES:
            raise ValueError(f"corruption {self.name!r}: expected a severity from 1 to 5, got {self.severity!r}")
        if self.size is not None and self.size not in SIZES:
            raise ValueError(f"corruption {self.name!r}: expected size 32, 64, 224 or None, got {self.size!r}")

    def __call__(self, image: torch.Tensor, rng: np.random.Generator, data_roots: Sequence[str] = ()) -> torch.Tensor:
        import torch

        if image.ndim != 3 or image.shape[0] != 3 or min(image.shape) < 2:
            raise ValueError(
                f"corruption {self.name!r}: expected one image of shape (3, height, width), at least 2 pixels a side, "
                f"got {tuple(image.shape)}"
            )
        # Transposed to HWC, but contiguous by plane: most functions run fastest on that layout.
        planes = np.ascontiguousarray(image.detach().cpu().numpy(), dtype=np.float32)
        out = self.on_array(planes.transpose(1, 2, 0), rng, data_roots).transpose(2, 0, 1)
        return torch.from_numpy(np.ascontiguousarray(out, dtype=np.float32))

    def on_array(self, pixels: np.ndarray, rng: np.random.Generator, data_roots: Sequence[str] = ()) -> np.ndarray:
        """The corruption of float32 HWC pixels in [0, 1]."""
        _, parameters = self.constants_for(min(pixels.shape[:2]))
        files = {"data_roots": data_roots} if self.name in _READ_FILES else {}
        return _FUNCTIONS[self.name](pixels, rng, **parameters, **files)

    @property
    def on_batch(self) -> Callable[[torch.Tensor, Generators], torch.Tensor] | None:
        """The function for a batch on a GPU, equal up to float32 rounding; None if this corruption has none."""
        from testbed.perturb.corruptions.on_device import BATCHED

        if self.name not in BATCHED:
            return None

        def perturb(images: torch.Tensor, rng: Generators) -> torch.Tensor:
            _, parameters = self.constants_for(min(images.shape[-2:]))
            return BATCHED[self.name](images, rng, **parameters)

        return perturb

    def constants_for(self, side: int) -> tuple[int, dict[str, float]]:
        """For a picture with this shorter side: the size whose published constants are used, and the constants."""
        return constants(self.name, self.severity, self.size or size_for(side))

    def describe(self, side: int = 224) -> str:
        """One line for the record, with the constants used for a picture with this shorter side."""
        published, parameters = self.constants_for(side)
        values = ", ".join(f"{name}={value:g}" for name, value in parameters.items())
        return f"{self.name}, severity {self.severity}, constants for {published} pixels ({values})"


def corruption(name: str, severity: int, size: int | None = None) -> Corruption:
    """One of CORRUPTIONS or BAR_CORRUPTIONS at a severity from 1 to 5.

    `size` forces the constants published for 32, 64 or 224 pixels; without it the picture's shorter side decides
    (up to 48: 32; up to 128: 64; else 224).
    """
    return Corruption(name, severity, size)


def _names_near(name: object) -> str:
    near = difflib.get_close_matches(str(name), _FUNCTIONS, n=3, cutoff=0.5)
    return " or ".join(near) if near else "one of " + ", ".join(_FUNCTIONS)
