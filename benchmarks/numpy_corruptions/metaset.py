"""Meta sets: many versions of one image set, each changed by three operations that its number selects.

Accuracy estimators are fitted on such sets (Deng and Zheng, CVPR 2021). Operations, magnitudes and rounding are those
of the authors' generator for CIFAR-10 with imgaug 0.4.0: bytes in, bytes out, magnitudes drawn for every image. Their
choice of operations is not seeded, so their sets cannot be made again; here set 7 is the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

LENGTH = 3  # operations in a recipe
CUTOFF = (0, 20)  # percent of the values at either end, whole numbers
FACTOR = (0.1, 1.9)
CHANNELS_APART = 0.2  # share of the images for which multiply draws a factor for every channel
COLOUR = (0.0, 3.0)
SOLARIZED = 0.5  # share of the images
THRESHOLD = (32, 128)
ALPHA = (0.5, 2.0)
ALPHAS_APART = 0.5  # share of the images for which contrast draws an alpha for every channel
MOVED = 0.5  # share of the images that affine changes
SCALE = (0.8, 1.2)
SHIFT = (-0.2, 0.2)  # of the side
DEGREES = (-30.0, 30.0)
SHARPNESS = (0.1, 1.0)
LIGHTNESS = (0.8, 1.2)

_VALUES = np.arange(256, dtype=np.float32)
_MIDDLE = np.float32(127)


@dataclass(frozen=True)
class Operation:
    """One of the seven changes. It is called as apply(pixels, **magnitudes), with bytes (3, height, width).

    `draw` returns the magnitudes for an image, or None to leave the image as it is. `words` describe their range.
    """

    draw: Callable[[np.random.Generator], dict[str, Any] | None]
    apply: Callable[..., np.ndarray]
    words: str


# ---- the seven operations, each with its magnitudes given --------------------------------------------------


def autocontrast(image: np.ndarray, cutoff: int) -> np.ndarray:
    """Stretch each channel to 0..255, ignoring `cutoff` percent of its values at either end."""
    ordered = np.sort(image.reshape(3, -1), axis=1, kind="stable")  # stable is by far the quickest on bytes
    n = ordered.shape[1]
    aside = n * cutoff // 100
    low, high = ordered[:, aside, None].astype(np.float64), ordered[:, n - 1 - aside, None]
    flat = high <= low  # one value only: such a channel stays as it is
    scale = 255 / np.where(flat, 255, high - low)
    return _looked_up(image, _cut(np.arange(256) * scale - np.where(flat, 0, low * scale)))


def multiply(image: np.ndarray, factor: Sequence[float]) -> np.ndarray:
    """Multiply by one factor, or by one for each channel."""
    return _looked_up(image, _cut(np.asarray(factor, dtype=np.float32)[:, None] * _VALUES))


def colour(image: np.ndarray, factor: float) -> np.ndarray:
    """Change the saturation: 0 gives grey, 1 the image, more than 1 stronger colours."""
    red, green, blue = image.astype(np.int32)
    # The luma in Pillow's integer arithmetic.
    grey = ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).astype(np.float32)
    return _cut(grey + np.float32(factor) * (image - grey))


def solarize(image: np.ndarray, threshold: int) -> np.ndarray:
    """Invert all values from the threshold on."""
    return np.where(image >= threshold, 255 - image, image)


def contrast(image: np.ndarray, alpha: Sequence[float]) -> np.ndarray:
    """Scale the distance of every value from grey level 127 by alpha, which is one number or one for each channel."""
    return _looked_up(image, _cut(_MIDDLE + np.asarray(alpha, dtype=np.float32)[:, None] * (_VALUES - _MIDDLE)))


def affine(image: np.ndarray, scale: Sequence[float], shift: Sequence[float], degrees: float) -> np.ndarray:
    """Scale (x, y) about the centre, rotate, then shift (x, y) by shares of the side; pixels from outside are black.

    As in OpenCV, coordinates are rounded to 1/32 of a pixel and weights are integers.
    """
    _, height, width = image.shape
    turn = math.radians(degrees)
    cosine, sine = math.cos(turn), math.sin(turn)
    # From the new picture back to the old one: x = a * x' + b * y' + start, and y alike.
    back = ((cosine / scale[0], sine / scale[0]), (-sine / scale[1], cosine / scale[1]))
    centre = (width / 2 - 0.5, height / 2 - 0.5)
    moved = (centre[0] + shift[0] * width, centre[1] + shift[1] * height)
    starts = [middle - a * moved[0] - b * moved[1] for middle, (a, b) in zip(centre, back, strict=True)]
    (column, across), (row, down) = (_thirty_seconds(*back[i], starts[i], height, width) for i in (0, 1))
    framed = np.zeros((3, height + 4, width + 4), dtype=np.int32)  # wide enough for both neighbours of any place
    framed[:, 2:-2, 2:-2] = image
    planes = framed.reshape(3, -1)
    place = (row.clip(-2, height) + 2) * (width + 4) + column.clip(-2, width) + 2
    total = planes.take(place, axis=1) * ((32 - down) * (32 - across))
    total += planes.take(place + 1, axis=1) * ((32 - down) * across)
    total += planes.take(place + (width + 4), axis=1) * (down * (32 - across))
    total += planes.take(place + (width + 5), axis=1) * (down * across)
    return ((total + 512) >> 10).astype(np.uint8)


def sharpen(image: np.ndarray, alpha: float, lightness: float) -> np.ndarray:
    """Mix the image, by weight `alpha`, with (8 + lightness) times itself minus its eight neighbours."""
    _, height, width = image.shape
    framed = np.empty((3, height + 2, width + 2), dtype=np.int16)
    framed[:, 1:-1, 1:-1] = image
    framed[:, 0, 1:-1], framed[:, -1, 1:-1] = image[:, 1], image[:, -2]  # the border row is the mirror
    framed[:, :, 0], framed[:, :, -1] = framed[:, :, 2], framed[:, :, -3]
    lines = framed[:, :-2] + framed[:, 1:-1] + framed[:, 2:]
    neighbours = lines[:, :, :-2] + lines[:, :, 1:-1] + lines[:, :, 2:] - image
    centre = np.float32(1 - alpha + alpha * (8 + lightness))
    return np.rint(centre * image - np.float32(alpha) * neighbours).clip(0, 255).astype(np.uint8)


def _cut(values: np.ndarray) -> np.ndarray:
    """To bytes by cutting off, not rounding, as the published libraries do."""
    return values.clip(0, 255).astype(np.uint8)


def _looked_up(image: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """Every value replaced by its entry in the table of its channel, or in the only table."""
    if len(tables) == 1:
        return tables[0].take(image)
    return np.stack([table.take(plane) for table, plane in zip(tables, image, strict=True)])


def _thirty_seconds(a: float, b: float, start: float, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The coordinate a * x + b * y + start at every pixel (x, y): whole pixels, and the rest in 1/32 of a pixel."""
    along_x = np.rint(a * 1024 * np.arange(width)).astype(np.intp)
    along_y = np.rint((b * np.arange(height) + start) * 1024).astype(np.intp) + 16
    place = (along_y[:, None] + along_x) >> 5
    return place >> 5, (place & 31).astype(np.int32)


# ---- their magnitudes ------------------------------------------------------------------------------------


def _one_or_three(rng: np.random.Generator, apart: float, low: float, high: float) -> np.ndarray:
    """One magnitude for all channels, or, with probability `apart`, one for each."""
    return rng.uniform(low, high, 3 if rng.random() < apart else 1)


def _draw_solarize(rng: np.random.Generator) -> dict[str, Any] | None:
    return {"threshold": int(rng.uniform(*THRESHOLD))} if rng.random() < SOLARIZED else None


def _draw_affine(rng: np.random.Generator) -> dict[str, Any] | None:
    if rng.random() >= MOVED:
        return None
    return {"scale": rng.uniform(*SCALE, 2), "shift": rng.uniform(*SHIFT, 2), "degrees": rng.uniform(*DEGREES)}


# `recipe` numbers them in this order: a change of order, or a new operation, would change all sets.
OPERATIONS = {
    "autocontrast": Operation(
        lambda rng: {"cutoff": int(rng.integers(CUTOFF[0], CUTOFF[1] + 1))},
        autocontrast,
        f"cutoff {CUTOFF[0]} to {CUTOFF[1]} % at either end",
    ),
    "multiply": Operation(
        lambda rng: {"factor": _one_or_three(rng, CHANNELS_APART, *FACTOR)},
        multiply,
        f"factor {FACTOR[0]} to {FACTOR[1]}, for each channel apart in {CHANNELS_APART:.0%} of the images",
    ),
    "colour": Operation(
        lambda rng: {"factor": rng.uniform(*COLOUR)}, colour, f"factor {COLOUR[0]:g} (grey) to {COLOUR[1]:g}"
    ),
    "solarize": Operation(
        _draw_solarize,
        solarize,
        f"{SOLARIZED:.0%} of the images, values from a threshold of {THRESHOLD[0]} to {THRESHOLD[1]} on inverted",
    ),
    "contrast": Operation(
        lambda rng: {"alpha": _one_or_three(rng, ALPHAS_APART, *ALPHA)},
        contrast,
        f"alpha {ALPHA[0]} to {ALPHA[1]:g}, for each channel apart in {ALPHAS_APART:.0%} of the images",
    ),
    "affine": Operation(
        _draw_affine,
        affine,
        f"{MOVED:.0%} of the images, scale {SCALE[0]} to {SCALE[1]} and shift {SHIFT[0]} to {SHIFT[1]} of the side "
        f"along x and y, {DEGREES[0]:g} to {DEGREES[1]:g} degrees",
    ),
    "sharpen": Operation(
        lambda rng: {"alpha": rng.uniform(*SHARPNESS), "lightness": rng.uniform(*LIGHTNESS)},
        sharpen,
        f"alpha {SHARPNESS[0]} to {SHARPNESS[1]:g}, lightness {LIGHTNESS[0]} to {LIGHTNESS[1]}",
    ),
}


# ---- sets ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def recipe(number: int) -> tuple[str, ...]:
    """The names of the three operations of set `number`, in the order of application: one of 210 such recipes."""
    # RandomState, because numpy promises that its numbers never change.
    chosen = np.random.RandomState(number).permutation(len(OPERATIONS))[:LENGTH]
    return tuple(list(OPERATIONS)[i] for i in chosen)


@dataclass(frozen=True, repr=False)
class MetaSet:
    """A perturbation_fn_cpu: the recipe of `number` on a float tensor (3, height, width) in [0, 1]."""

    number: int

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 0 <= self.number < 2**32:
            raise ValueError(f"meta set: expected a whole number from 0 on, got {self.number!r}")

    def __call__(self, image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        import torch

        if image.ndim != 3 or image.shape[0] != 3 or min(image.shape) < 2:
            raise ValueError(
                f"meta set {self.number}: expected one image of shape (3, height, width), at least 2 pixels a side, "
                f"got {tuple(image.shape)}"
            )
        pixels = self.on_bytes(np.rint(image.numpy() * np.float32(255)).astype(np.uint8), rng)
        return torch.from_numpy(pixels.astype(np.float32) / np.float32(255))

    def on_bytes(self, pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The recipe applied to bytes (3, height, width)."""
        for name in recipe(self.number):
            operation = OPERATIONS[name]
            magnitudes = operation.draw(rng)
            if magnitudes is not None:
                pixels = operation.apply(pixels, **magnitudes)
        return pixels

    def describe(self, side: int | None = None) -> str:
        """One line for the record; the operations are the same at every size."""
        steps = [f"{name} ({OPERATIONS[name].words})" for name in recipe(self.number)]
        return f"meta set {self.number}: " + ", then ".join(steps)

    def __repr__(self) -> str:
        return self.describe()


def meta_set(number: int) -> MetaSet:
    """The images of set `number`: three operations, with magnitudes drawn for every image."""
    return MetaSet(number)
