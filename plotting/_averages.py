"""What x and y may be besides one eval setting: published averages, comma lists and globs, as weights of settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from testbed.errors import UnknownName, near_names

# base.corruption.severity, then how the images were made: imagenet-c.fog.3_on-disk, digits.contrast.1
SEVERITY = re.compile(r"(?P<base>.+)\.(?P<corruption>[^.]+)\.(?P<severity>[1-9])(?P<suffix>_[^.]+)?")

# Published averages of averages: each part is the mean of its settings, the average is the mean of the parts.
_CORRUPTIONS = (
    *("brightness", "contrast", "defocus_blur", "elastic_transform", "fog", "frost", "gaussian_blur"),
    *("gaussian_noise", "impulse_noise", "jpeg_compression", "motion_blur", "pixelate", "saturate", "shot_noise"),
    *("snow", "spatter", "speckle_noise", "zoom_blur"),
)
_IN_MEMORY = tuple(f"imagenet-c.{c}.[1-5]_in-memory" for c in _CORRUPTIONS)
_ON_DISK = tuple(f"imagenet-c.{c}.[1-5]_on-disk" for c in sorted((*_CORRUPTIONS, "glass_blur")))
AVERAGES: dict[str, tuple[str, ...]] = {
    "avg_corruptions": (*_IN_MEMORY, *_ON_DISK, "stylized_imagenet", "greyscale"),
    "avg_pgd": ("pgd.l2.eps0.1", "pgd.l2.eps0.5", "pgd.linf.eps0.5", "pgd.linf.eps2"),
    "avg_imagenet_c_in_memory": _IN_MEMORY,
    "avg_imagenet_c_on_disk": _ON_DISK,
}


def weights_of(expression: str, known: Sequence[str]) -> dict[str, float]:
    """Setting to weight, adding up to 1. One name has weight 1; globs and comma lists mean the mean.

    A published average is had only where all its parts are.
    """
    if expression in known:
        return {expression: 1.0}
    if expression in AVERAGES:
        return _mean_of_parts([_chosen(part, known) for part in AVERAGES[expression]])
    names = [name for part in expression.split(",") for name in _chosen(part.strip(), known)]
    return _mean_of_parts([[name] for name in dict.fromkeys(names)])


def _mean_of_parts(parts: list[list[str]]) -> dict[str, float]:
    return {name: 1 / len(parts) / len(part) for part in parts for name in part}


def _chosen(pattern: str, known: Sequence[str]) -> list[str]:
    found = [name for name in known if name == pattern] or [name for name in known if fnmatchcase(name, pattern)]
    if not found:
        raise UnknownName(f"no results on '{pattern}'{near_names(pattern, [*known, *AVERAGES])}")
    return found


def without_severity(setting: str) -> str | None:
    """The glob of all severities of a corruption, or None for another setting."""
    found = SEVERITY.fullmatch(setting)
    return f"{found['base']}.{found['corruption']}.[1-9]{found['suffix'] or ''}" if found else None
