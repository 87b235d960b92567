"""Reads torchvision transforms and Hugging Face processors as StandardTransform and StandardNormalization.

They are recognised by attributes and class names, so that neither torchvision nor transformers is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import StandardNormalization
from testbed.errors import ModelError

Size = int | tuple[int, int] | None

# Steps of a torchvision pipeline that change no pixel of an RGB picture read from a file.
_HARMLESS = ("ToTensor", "MaybeToTensor", "PILToTensor", "ToImage", "ToPILImage", "ConvertImageDtype", "ToDtype")


@dataclass(frozen=True)
class Preprocessing:
    """How a model's pictures are prepared."""

    transform: StandardTransform
    normalization: StandardNormalization | None


def read_processor(processor: Any) -> Preprocessing | None:
    """The preprocessing that a processor does; None if it cannot be expressed as data."""
    if hasattr(processor, "image_mean") and hasattr(processor, "image_std"):
        return _hugging_face(processor)
    if all(hasattr(processor, name) for name in ("resize_size", "crop_size", "mean", "std", "interpolation")):
        # ImageClassification, the preset of torchvision's weights.
        transform = _transform(_size(processor.resize_size), _size(processor.crop_size), processor.interpolation)
        return Preprocessing(transform, _normalization(processor.mean, processor.std))
    steps = getattr(processor, "transforms", None)
    return _pipeline(steps) if isinstance(steps, list | tuple) else None


def _hugging_face(processor: Any) -> Preprocessing | None:
    """transformers resizes, crops, flips the channels, scales and normalises, each unless it is switched off."""
    sizes = _sizes(processor)
    if sizes is None:
        return None
    transform = _transform(*sizes, getattr(processor, "resample", None))
    # Its centre crop begins at (side - crop) // 2.
    transform = replace(transform, crop_rounding="down") if sizes[1] else transform
    return Preprocessing(transform, read_normalization(processor))


def read_normalization(processor: Any) -> StandardNormalization | None:
    """What a processor of transformers does to pixels from 0 to 1 after all resizing; None where it leaves them."""
    mean, std = _three(processor.image_mean), _three(processor.image_std)
    if not getattr(processor, "do_normalize", True):
        mean, std = [0.0] * 3, [1.0] * 3
    elif getattr(processor, "include_top", False):
        std = [v * v for v in std]  # EfficientNet's is divided by once more before its head
    # Its pixels are scale * x + offset for x from 0 to 1.
    scale, offset = 255.0, 0.0
    if getattr(processor, "do_rescale", True):
        scale *= getattr(processor, "rescale_factor", 1 / 255)
        offset = -1.0 if getattr(processor, "rescale_offset", False) else 0.0
    flips = getattr(processor, "do_flip_channel_order", False)
    mean, std = [_rounded((v - offset) / scale) for v in mean], [_rounded(v / scale) for v in std]
    if (mean, std, flips) == ([0.0] * 3, [1.0] * 3, False):
        return None
    return StandardNormalization(mean, std, "BGR" if flips else "RGB")


def _sizes(processor: Any) -> tuple[Size, Size] | None:
    """(resize, crop) of a processor of transformers; None if it resizes in yet another way, or not at all."""
    size = getattr(processor, "size", None)
    if any(_part(size, name) for name in ("longest_edge", "max_height", "max_width")):
        return None
    resize = _size(size) if getattr(processor, "do_resize", True) else None
    # Checkpoints without these keys (the first DeiT ones) do not crop.
    crop = _size(getattr(processor, "crop_size", None)) if getattr(processor, "do_center_crop", False) else None
    portion, kind = getattr(processor, "crop_pct", None), type(processor).__name__.lower()
    if resize is not None and portion is not None:
        if kind.startswith("poolformer"):
            sides = resize if isinstance(resize, tuple) else (resize, resize)
            scaled = tuple(int(side / portion) for side in sides)
            resize = scaled[0] if scaled[0] == scaled[1] else (scaled[0], scaled[1])
        elif isinstance(resize, int) and getattr(processor, "crop_size", None) is None:
            resize, crop = _convnext_sizes(resize, portion)
        else:
            return None
    if kind.startswith("levit") and isinstance(resize, int):
        resize = int(256 / 224 * resize)
    return None if resize is None and crop is None else (resize, crop)


def _convnext_sizes(size: int, portion: float) -> tuple[Size, Size]:
    """(resize, crop) of ConvNextImageProcessor: it crops `portion` for sizes below 384 pixels, else it squashes."""
    return (int(size / portion), size) if size < 384 else ((size, size), None)


def _three(given: Any) -> list[float]:
    return [float(v) for v in given] if isinstance(given, list | tuple) else [float(given)] * 3


def _rounded(value: float) -> float:
    """Without the digits that scaling by 255 and back has left."""
    return float(f"{value:.12g}")


def _pipeline(steps: Sequence[Any]) -> Preprocessing | None:
    """A Compose of Resize, CenterCrop and Normalize, in this order and each at most once; None for any other."""
    by_kind: dict[str, Any] = {}
    for step in steps:
        kind = type(step).__name__
        if kind in ("Resize", "CenterCrop", "Normalize") and kind not in by_kind:
            by_kind[kind] = step
        elif kind not in _HARMLESS:
            return None
    if [k for k in ("Resize", "CenterCrop", "Normalize") if k in by_kind] != list(by_kind) or len(by_kind) < 2:
        return None
    resize, crop, normalize = (by_kind.get(kind) for kind in ("Resize", "CenterCrop", "Normalize"))
    transform = _transform(
        _size(resize.size) if resize is not None else None,
        _size(crop.size) if crop is not None else None,
        getattr(resize, "interpolation", None),
    )
    return Preprocessing(transform, _normalization(normalize.mean, normalize.std) if normalize is not None else None)


def _transform(resize: Size, crop: Size, interpolation: Any) -> StandardTransform:
    if isinstance(crop, tuple) and crop[0] == crop[1]:
        crop = crop[0]
    return StandardTransform(resize, crop, _interpolation(interpolation))


def _normalization(mean: Sequence[Any], std: Sequence[Any]) -> StandardNormalization:
    return StandardNormalization([float(v) for v in mean], [float(v) for v in std])


def _size(size: Any) -> Size:
    """A size for StandardTransform, from a side, (height, width), {"height", "width"} or {"shortest_edge"}."""
    if size is None or isinstance(size, int):
        return size
    if not isinstance(size, list | tuple):
        edge, height, width = (_part(size, name) for name in ("shortest_edge", "height", "width"))
        return int(edge) if edge else (int(height), int(width)) if height and width else None
    sides = [int(side) for side in size]
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _part(size: Any, name: str) -> Any:
    """An entry of a dictionary, or the attribute of the SizeDict that newer processors use."""
    return size.get(name) if hasattr(size, "get") else getattr(size, name, None)


def _interpolation(given: Any) -> str:
    """The name of a torchvision InterpolationMode, a PIL filter or a filter's number; bilinear for None."""
    if given is None:
        return "bilinear"
    value = getattr(given, "value", given)
    if isinstance(value, str):
        return value
    from PIL import Image

    try:
        return Image.Resampling(int(value)).name.lower()
    except ValueError as error:
        raise ModelError(
            f"processor: expected resample from 0 to 5, as PIL numbers its filters, got {value!r}"
        ) from error
