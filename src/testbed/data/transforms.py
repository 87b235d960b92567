"""Transforms that bring a picture to a model's input size. They are plain data: hashable, comparable, recorded.

The results equal those of torchvision on PIL images to the last pixel (a test compares them); torch is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from testbed.data.images import MOST_PIXELS
from testbed.errors import EntryError, ImageError

_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
_MOST_SIDE = 10_000  # in pixels; a square of that side takes 300 MB


@dataclass(frozen=True)
class StandardTransform:
    """Resize the shorter side to a number, or the picture to an exact (height, width); then crop the centre.

    None leaves out the resize or the crop.
    """

    img_resize_size: int | tuple[int, int] | None = 256
    img_crop_size: int | tuple[int, int] | None = 224
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if self.interpolation not in _INTERPOLATIONS:
            raise EntryError(
                f"StandardTransform: interpolation must be one of {', '.join(_INTERPOLATIONS)}, "
                f"got {self.interpolation!r}"
            )
        for label in ("img_resize_size", "img_crop_size"):
            value = getattr(self, label)
            if isinstance(value, list):
                value = tuple(value)
                object.__setattr__(self, label, value)
            sides = value if isinstance(value, tuple) else (value,)
            if value is not None and not all(isinstance(s, int) and s >= 1 for s in sides):
                raise EntryError(f"StandardTransform: {label} must be at least 1, got {value!r}")
            if value is not None and max(sides) > _MOST_SIDE:
                raise EntryError(f"StandardTransform: {label} must be at most {_MOST_SIDE}, got {value!r}")

    def __call__(self, image: Any) -> Any:
        image = self._resized(image)
        return image if self.img_crop_size is None else _centre_crop(image, _pair(self.img_crop_size))

    def whole(self) -> StandardTransform:
        """The transform that shows the whole picture at the same input size: one resize to it, and no crop."""
        if self.img_crop_size is None:
            return self
        return StandardTransform(_pair(self.img_crop_size), None, self.interpolation)

    def usual(self) -> StandardTransform:
        """The usual preparation of ImageNet classifiers for the same input size: 256 and 224 for one of 224 pixels."""
        height, width = _pair(size) if (size := self.img_crop_size or self.img_resize_size) else (224, 224)
        return StandardTransform(int(min(height, width) * 256 / 224), (height, width), self.interpolation)

    def leaves_as_it_is(self, height: int, width: int) -> bool:
        """Whether every picture of this size comes out unchanged."""
        crop = self.img_crop_size
        return self._new_size(height, width) == (height, width) == (_pair(crop) if crop else (height, width))

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after the resize."""
        size = self.img_resize_size
        if size is None:
            return height, width
        if isinstance(size, tuple):
            return size
        # int() cuts off rather than rounds, as torchvision does.
        return (int(size * height / width), size) if width <= height else (size, int(size * width / height))

    def _resized(self, image: Any) -> Any:
        from PIL import Image

        width, height = image.size
        new_height, new_width = self._new_size(height, width)
        if (new_width, new_height) == (width, height):
            return image
        if new_width * new_height > MOST_PIXELS:  # a line of pixels as long as a thousand pictures
            raise ImageError(
                f"expected at most {MOST_PIXELS:,} pixels after the resize, got {new_width} x {new_height} "
                f"from a picture of {width} x {height}"
            )
        return image.resize((new_width, new_height), Image.Resampling[self.interpolation.upper()])


@dataclass(frozen=True)
class CropBorder:
    """Cut `pixels` off every side (ObjectNet's red frame is 2 pixels wide)."""

    pixels: int

    def __post_init__(self) -> None:
        if not isinstance(self.pixels, int) or not 0 <= self.pixels <= _MOST_SIDE:
            raise EntryError(f"CropBorder: pixels must be from 0 to {_MOST_SIDE}, got {self.pixels!r}")

    def __call__(self, image: Any) -> Any:
        width, height = image.size
        return image.crop((self.pixels, self.pixels, width - self.pixels, height - self.pixels))


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _centre_crop(image: Any, size: tuple[int, int]) -> Any:
    crop_height, crop_width = size
    width, height = image.size
    if crop_width > width or crop_height > height:  # too small: padded with black on both sides, as by torchvision
        left = max((crop_width - width) // 2, 0)
        top = max((crop_height - height) // 2, 0)
        right = max((crop_width - width + 1) // 2, 0)
        bottom = max((crop_height - height + 1) // 2, 0)
        image = image.crop((-left, -top, width + right, height + bottom))
        width, height = image.size
    top = int(round((height - crop_height) / 2.0))
    left = int(round((width - crop_width) / 2.0))
    return image.crop((left, top, left + crop_width, top + crop_height))


def leaves_as_it_is(transform: Callable[[Any], Any], height: int, width: int) -> bool:
    """Whether a transform is known to leave every picture of this size unchanged."""
    return isinstance(transform, StandardTransform) and transform.leaves_as_it_is(height, width)


def transform_key(transform: Callable[[Any], Any] | None) -> str | None:
    """A text that identifies a transform in every run, for cache keys; None for a function of somebody else's."""
    if transform is None:
        return "none"
    if isinstance(transform, StandardTransform | CropBorder):
        return repr(transform)
    return None
