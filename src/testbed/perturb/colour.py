"""Changes of colour. Each function takes one float image (3, height, width) in [0, 1]."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def greyscale(image: Tensor) -> Tensor:
    """The luma on all three channels."""
    red, green, blue = image
    grey = LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue
    return grey.expand(3, *grey.shape).clone()
