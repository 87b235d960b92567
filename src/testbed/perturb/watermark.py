"""The watermark of ImageNet-W (Li et al. 2023), drawn by its authors' package, which contains the font."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from torch import Tensor


def watermark(image: Tensor) -> Tensor:
    """Draw half-transparent Chinese characters across the middle of an image (3, height, width) in [0, 1]."""
    changed: Tensor = _writer(min(image.shape[-2:]))(image)
    return changed


@cache
def _writer(side: int) -> Any:
    try:
        from imagenet_w import AddWatermark
    except ImportError:
        raise TestbedError("ImageNet-W is drawn by a package of its own: pip install imagenet-w") from None
    return AddWatermark(side)
