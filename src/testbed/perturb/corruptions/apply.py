"""A corruption at one severity, as the value an eval setting carries: `corruption("fog", 3)`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    import numpy as np
    import torch

    from testbed.perturb.seeding import Random

# The module of each corruption, which is its function of that name: f(images, rng, **constants). Loaded when used.
_MODULES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    "blur": ("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "fog", "frost"),
    "digital": ("brightness", "contrast", "saturate", "jpeg_compression", "pixelate", "elastic_transform"),
    "spatter": ("spatter",),
    "bar_light": ("sparkles", "inverse_sparkles", "checkerboard_cutout", "caustic_refraction"),
    "bar_noise": (
        *("single_frequency_greyscale", "cocentric_sine_waves", "plasma_noise", "brownish_noise"),
        *("blue_noise_sample", "perlin_noise"),
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

_READ_FILES = ("frost",)  # they read textures from the data roots of the run

# These run on the CPU, whatever the device, and why.
CPU_ONLY = {
    "jpeg_compression": "bytes of a file, by libjpeg",
    "spatter": "the edges of drops are followed from pixel to pixel, by Canny's hysteresis",
}

# Without random numbers: their pictures have stayed the same, but for rounding.
_DETERMINISTIC = frozenset(
    ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "gaussian_blur", "saturate")
)

# In the published order; the last four of ImageNet-C are its extra (validation) corruptions.
CORRUPTIONS: tuple[str, ...] = tuple(IMAGENET_C)
BAR_CORRUPTIONS: tuple[str, ...] = tuple(IMAGENET_C_BAR)


@dataclass(frozen=True)
class Corruption:
    """A corruption at one severity, of batches on any device; called as a perturbation_fn_cpu it takes one picture.

    The published programs return bytes. Here values stay floats and are not rounded to whole grey levels, except by
    JPEG and pixelate, which work on bytes.
    """

    name: str
    severity: int
    size: int | None = None

    def __post_init__(self) -> None:
        if self.name not in _MODULE_OF:
            raise ValueError(f"corruption: expected {_names_near(self.name)}, got {self.name!r}")
        # Not isinstance: True is an int, and would be severity 1.
        if type(self.severity) is not int or self.severity not in SEVERITIES:
            raise ValueError(f"corruption {self.name!r}: expected a severity from 1 to 5, got {self.severity!r}")
        if self.size is not None and self.size not in SIZES:
            raise ValueError(f"corruption {self.name!r}: expected size 32, 64, 224 or None, got {self.size!r}")

    def __call__(self, image: torch.Tensor, rng: np.random.Generator, data_roots: Sequence[str] = ()) -> torch.Tensor:
        """One picture (3, height, width), with the random numbers of a NumPy generator."""
        from testbed.perturb.seeding import GeneratorRandom

        if image.ndim != 3 or image.shape[0] != 3 or min(image.shape) < 2:
            raise ValueError(
                f"corruption {self.name!r}: expected one image of shape (3, height, width), at least 2 pixels a side, "
                f"got {tuple(image.shape)}"
            )
        return self.on_batch(image[None].float(), GeneratorRandom(rng), data_roots)[0]

    def on_batch(self, images: torch.Tensor, rng: Random, data_roots: Sequence[str] = ()) -> torch.Tensor:
        """Pictures (N, 3, height, width) in [0, 1], float32, on any device, or on the CPU if `cpu_only`."""
        _, parameters = self.constants_for(min(images.shape[-2:]))
        files: dict[str, Any] = {"data_roots": data_roots} if self.name in _READ_FILES else {}
        return _function(self.name)(images.contiguous(), rng, **parameters, **files)

    @property
    def cpu_only(self) -> bool:
        return self.name in CPU_ONLY

    @property
    def version(self) -> int:
        """For the `version` of settings: 2 where random numbers are drawn, which are counted bits since then."""
        return 1 if self.name in _DETERMINISTIC else 2

    def constants_for(self, side: int) -> tuple[int, dict[str, float]]:
        """For a picture with this shorter side: the size whose published constants are used, and the constants."""
        return constants(self.name, self.severity, self.size or size_for(side))

    def describe(self, side: int = 224) -> str:
        """One line for the record, with the constants used for a picture with this shorter side."""
        published, parameters = self.constants_for(side)
        values = ", ".join(f"{name}={value:g}" for name, value in parameters.items())
        return f"{self.name}, severity {self.severity}, constants for {published} pixels ({values})"


def _function(name: str) -> Callable[..., torch.Tensor]:
    module = import_module(f"testbed.perturb.corruptions.{_MODULE_OF[name]}")
    function: Callable[..., torch.Tensor] = getattr(module, name)
    return function


def corruption(name: str, severity: int, size: int | None = None) -> Corruption:
    """One of CORRUPTIONS or BAR_CORRUPTIONS at a severity from 1 to 5.

    `size` forces the constants published for 32, 64 or 224 pixels; without it the picture's shorter side decides
    (up to 48: 32; up to 128: 64; else 224).
    """
    return Corruption(name, severity, size)


def _names_near(name: object) -> str:
    near = difflib.get_close_matches(str(name), TABLES, n=3, cutoff=0.5)
    return " or ".join(near) if near else "one of " + ", ".join(TABLES)
