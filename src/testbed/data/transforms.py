"""Transforms that bring a picture to a model's input size. They are plain data: hashable, comparable, recorded.

The results equal those of torchvision on PIL images to the last pixel (a test compares them); torch is not needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from testbed.data.images import MOST_PIXELS
from testbed.errors import EntryError, ImageError

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
# How a picture comes to an exact (height, width): drawn out of shape; or in shape, as small as covers it or as large as
# fits into it.
_FITS = ("stretch", "cover", "contain")
_ROUNDINGS = ("even", "down")
_FIRST_WORDS = ("img_resize_size", "img_crop_size", "interpolation")
_MOST_SIDE = 10_000  # in pixels; a square of that side takes 300 MB


@dataclass(frozen=True)
class StandardTransform:
    """Resize the shorter side to a number, or the picture to an exact (height, width); then crop the centre.

    None leaves out the resize or the crop. The further words are for transforms that others have defined: `fit` says
    how an exact size is reached, `fill` what colour surrounds a picture that is smaller than its crop, `crop_rounding`
    where a centre lies that falls between two pixels: "even" as in torchvision, "down" as in transformers.
    """

    img_resize_size: int | tuple[int, int] | None = 256
    img_crop_size: int | tuple[int, int] | None = 224
    interpolation: str = "bilinear"
    fit: str = "stretch"
    fill: tuple[int, int, int] = (0, 0, 0)
    crop_rounding: str = "even"

    def __post_init__(self) -> None:
        for label, known in (("interpolation", INTERPOLATIONS), ("fit", _FITS), ("crop_rounding", _ROUNDINGS)):
            if getattr(self, label) not in known:
                raise EntryError(
                    f"StandardTransform: {label} must be one of {', '.join(known)}, got {getattr(self, label)!r}"
                )
        object.__setattr__(self, "fill", tuple(self.fill))
        if len(self.fill) != 3 or not all(isinstance(v, int) and 0 <= v <= 255 for v in self.fill):
            raise EntryError(f"StandardTransform: fill must be three numbers from 0 to 255, got {self.fill!r}")
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

        if self.fit != "stretch" and not isinstance(self.img_resize_size, tuple):
            raise EntryError(
                f"StandardTransform: fit={self.fit!r} needs an img_resize_size (height, width), "
                f"got {self.img_resize_size!r}"
            )

    def __repr__(self) -> str:
        """The key of prepared pictures: words that came later stand in it only where they say something."""
        told = [f for f in fields(self) if f.name in _FIRST_WORDS or getattr(self, f.name) != f.default]
        return f"StandardTransform({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in told)})"

    def __call__(self, image: Any) -> Any:
        image = self._resized(image)
        return image if self.img_crop_size is None else self._cropped(image, _pair(self.img_crop_size))

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
            if self.fit == "stretch":
                return size
            choose = min if self.fit == "cover" else max
            ratio = choose(height / size[0], width / size[1])
            return max(round(height / ratio), 1), max(round(width / ratio), 1)
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

    def _cropped(self, image: Any, size: tuple[int, int]) -> Any:
        """The centre; a picture that is too small is surrounded by `fill`."""
        from PIL import Image

        height, width = size
        left, top = self._start(image.width, width), self._start(image.height, height)
        larger = image.width >= width and image.height >= height
        if larger or self.fill == (0, 0, 0):  # PIL itself surrounds with black
            return image.crop((left, top, left + width, top + height))
        whole = Image.new(image.mode, (width, height), self.fill)
        whole.paste(image, (-left, -top))
        return whole

    def _start(self, side: int, crop: int) -> int:
        """The first pixel of a centre crop; below 0 where the picture is smaller."""
        if self.crop_rounding == "down":
            return (side - crop) // 2
        return round((side - crop) / 2) if side >= crop else -((crop - side) // 2)


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
