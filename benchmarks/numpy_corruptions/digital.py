"""Colour, compression, resolution and stretching of ImageNet-C: pixels HWC in [0, 1] in, pixels in [0, 1] out.

The published programs convert to HSV and back for brightness and saturation. While the hue is kept, every channel is
v * (1 - s * k) with v = max, d = max - min and k = (v - channel) / d; so both are computed on RGB, without the hue.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from numpy_corruptions.filters import sample, smooth


def brightness(image: np.ndarray, rng: np.random.Generator, shift: float) -> np.ndarray:
    """Add `shift` to the V of HSV. Black, which has no hue, becomes grey."""
    value = _largest(image)
    lifted = np.minimum(value + np.float32(shift), 1)
    black = value == 0
    scaled = image * (lifted / np.where(black, 1, value))[..., None]
    scaled[black] = np.float32(shift)
    return np.clip(scaled, 0, 1, out=scaled)


def contrast(image: np.ndarray, rng: np.random.Generator, factor: float) -> np.ndarray:
    """Scale the distance of every value from the mean of its channel by `factor`."""
    means = image.mean(axis=(0, 1), keepdims=True, dtype=np.float64).astype(np.float32)
    return np.clip((image - means) * np.float32(factor) + means, 0, 1)


def saturate(image: np.ndarray, rng: np.random.Generator, factor: float, shift: float) -> np.ndarray:
    """Set the S of HSV to S * factor + shift. As published, a grey pixel counts as red (hue 0)."""
    value = _largest(image)
    spread = value + _largest(-image)
    grey = spread == 0
    saturation = spread / np.where(value == 0, 1, value)
    saturation = np.clip(saturation * np.float32(factor) + np.float32(shift), 0, 1)
    stretch = value * saturation / np.where(grey, 1, spread)
    out = value[..., None] - (value[..., None] - image) * stretch[..., None]
    out[grey, 1:] = (value * (1 - saturation))[grey, None]  # red keeps the value, green and blue lose saturation
    return np.clip(out, 0, 1, out=out)


def jpeg_compression(image: np.ndarray, rng: np.random.Generator, quality: float) -> np.ndarray:
    """Encode as JPEG in memory and decode again (PIL's defaults, so 4:2:0 chroma subsampling)."""
    from PIL import Image

    file = io.BytesIO()
    _to_pil(image).save(file, "JPEG", quality=int(quality))
    return _from_pil(Image.open(file))


def pixelate(image: np.ndarray, rng: np.random.Generator, scale: float) -> np.ndarray:
    """Shrink by the factor `scale` and enlarge to the old size, both with a box filter."""
    from PIL import Image

    height, width = image.shape[:2]
    small = (max(int(width * scale), 1), max(int(height * scale), 1))
    box = Image.Resampling.BOX
    return _from_pil(_to_pil(image).resize(small, box).resize((width, height), box))


def elastic_transform(
    image: np.ndarray, rng: np.random.Generator, alpha: float, sigma: float, affine: float
) -> np.ndarray:
    """A random affine map (three points are moved), then a displacement of every pixel by a smoothed random field.

    As published the picture is resampled twice: for the affine map it is mirrored at the border pixel, for the field
    behind the border pixel, which is repeated.
    """
    height, width = image.shape[:2]
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    back = affine_back(height, width, affine, rng)
    x, y = (columns * back[0, axis] + rows * back[1, axis] + back[2, axis] for axis in (0, 1))
    image = sample(image, y, x, border="mirror")
    fields = np.stack([rng.uniform(-1, 1, (height, width)) for _ in "xy"], axis=2).astype(np.float32)
    if alpha:  # at severity 1 the programs for 32 and 64 pixels leave out the field
        push = smooth(fields, sigma, mode="reflect", truncate=3) * np.float32(alpha)
        image = sample(image, rows + push[..., 1], columns + push[..., 0], border="reflect")
    return np.clip(image, 0, 1)


def affine_back(height: int, width: int, affine: float, rng: np.random.Generator) -> np.ndarray:
    """A random affine map as a (3, 2) matrix: from (x, y, 1) in the new picture to (x, y) in the old one.

    It is the map that takes three points, each moved by up to `affine` pixels along x and y, back to where they were.
    """
    middle, arm = np.array([width // 2, height // 2]), min(height, width) // 3
    points = middle + arm * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = points + rng.uniform(-affine, affine, points.shape)
    return np.linalg.solve(np.column_stack([moved, np.ones(3)]), points)


def _largest(image: np.ndarray) -> np.ndarray:
    return np.maximum(np.maximum(image[..., 0], image[..., 1]), image[..., 2])


def _to_pil(image: np.ndarray) -> Any:
    from PIL import Image

    return Image.fromarray(np.rint(image * 255).astype(np.uint8))  # rounded: a cut would lose levels to float errors


def _from_pil(picture: Any) -> np.ndarray:
    return np.asarray(picture, dtype=np.float32) / 255
