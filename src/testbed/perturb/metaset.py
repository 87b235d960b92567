"""Meta sets: many versions of one image set, each changed by three operations that its number selects.

Accuracy estimators are fitted on such sets (Deng and Zheng, CVPR 2021). Operations, magnitudes and rounding are those
of the authors' generator for CIFAR-10 with imgaug 0.4.0: bytes in, bytes out, magnitudes drawn for every image. Their
choice of operations is not seeded, so their sets cannot be made again; here set 7 is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from testbed.perturb.seeding import GeneratorRandom, Random

if TYPE_CHECKING:
    import torch
    from torch import Tensor

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


@dataclass(frozen=True)
class Operation:
    """One of the seven changes. It is called as apply(images, **magnitudes), with bytes (N, 3, height, width).

    `draw` returns the magnitudes, whose first axis is that of the images; `words` describe their range. Only a `share`
    of the images is changed.
    """

    draw: Callable[[Random], Mapping[str, Tensor | np.ndarray]]
    apply: Callable[..., Tensor]
    words: str
    share: float = 1

    def __call__(self, images: Tensor, rng: Random) -> Tensor:
        """Images with drawn magnitudes, or as they were."""
        changed = self.apply(images, **self.draw(rng))
        if self.share < 1:
            return changed.where(rng.uniform(0, 1, (1, 1, 1)) < self.share, images)
        return changed


# ---- the seven operations, each with its magnitudes given --------------------------------------------------


def autocontrast(images: Tensor, cutoff: Tensor) -> Tensor:
    """Stretch each channel to 0..255, ignoring `cutoff` percent (N) of its values at either end."""
    levels = images.flatten(2).long()
    n = levels.shape[2]
    counts = levels.new_zeros((len(images), 3, 256))
    up_to = counts.scatter_add_(2, levels, levels.new_ones(()).expand_as(levels)).cumsum(2)
    aside = (n * cutoff // 100)[:, None, None]
    # The values at these two places, were all values sorted.
    low, high = ((up_to <= place).sum(2, keepdim=True).double() for place in (aside, n - 1 - aside))
    flat = high <= low  # one value only: such a channel stays as it is
    stretched = (high - low).masked_fill_(flat, 255)
    scale = stretched.new_full((), 255) / stretched  # not 255 / stretched: torch would multiply by the reciprocal
    table = _cut(_all_levels(images.device) * scale - (low * scale).masked_fill_(flat, 0))
    return table.gather(2, levels).view_as(images)


def multiply(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply by one factor (N, 1), or by one for each channel (N, 3)."""
    return _cut(images.float().mul_(factor[..., None, None]))


def colour(images: Tensor, factor: Tensor) -> Tensor:
    """Change the saturation by a factor (N): 0 gives grey, 1 the image, more than 1 stronger colours."""
    whole = images.float()
    red, green, blue = whole.split(1, dim=1)
    # The luma in Pillow's integer arithmetic: (19595 red + 38470 green + 7471 blue + 2 ** 15) >> 16, exact in floats.
    grey = (red * 19595).add_(green * 38470).add_(blue * 7471).add_(0x8000).mul_(2**-16).floor_()
    return _cut(whole.sub_(grey).mul_(factor[:, None, None, None]).add_(grey))


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert all values from the threshold (N) on."""
    above = images.clone().ge_(threshold[:, None, None, None])  # 0 or 1
    return images ^ -above  # with all bits or with none: 255 minus the value, or the value


def contrast(images: Tensor, alpha: Tensor) -> Tensor:
    """Scale the distance of every value from grey level 127 by one number (N, 1), or one for each channel (N, 3)."""
    return _cut(images.float().sub_(127).mul_(alpha[..., None, None]).add_(127))


def affine(images: Tensor, scale: np.ndarray, shift: np.ndarray, degrees: np.ndarray) -> Tensor:
    """Scale (x, y) about the centre, rotate, then shift (x, y) by shares of the side; pixels from outside are black.

    Scale and shift are (N, 2), degrees (N): arrays, so that every device gets the same coordinates. As in OpenCV, these
    are rounded to 1/32 of a pixel, and weights are integers.
    """
    height, width = images.shape[-2:]
    turn = np.radians(degrees)
    cosine, sine = np.cos(turn), np.sin(turn)
    scale_x, scale_y = scale.T
    # From the new picture back to the old one: x = a * x' + b * y' + start, and y alike.
    back = ((cosine / scale_x, sine / scale_x), (-sine / scale_y, cosine / scale_y))
    centre = (width / 2 - 0.5, height / 2 - 0.5)
    moved = np.array(centre)[:, None] + shift.T * ((width,), (height,))
    starts = [middle - a * moved[0] - b * moved[1] for middle, (a, b) in zip(centre, back, strict=True)]
    (column, across), (row, down) = (_thirty_seconds(*back[i], starts[i], images) for i in (0, 1))
    # Wide enough for both neighbours of any place.
    framed = images.new_zeros((len(images), 3, height + 4, width + 4))
    framed[:, :, 2:-2, 2:-2] = images
    planes = framed.flatten(2)
    place = (row.clamp_(-2, height).add_(2) * (width + 4)).add_(column.clamp_(-2, width)).add_(2).long()

    def weighted(offset: int, weight: Tensor) -> Tensor:
        return planes.gather(2, (place + offset).expand(-1, 3, -1)).int().mul_(weight)

    total = weighted(0, (32 - down) * (32 - across)).add_(512)
    total.add_(weighted(1, (32 - down) * across))
    total.add_(weighted(width + 4, down * (32 - across)))
    total.add_(weighted(width + 5, down * across))
    return (total >> 10).byte().view_as(images)


def sharpen(images: Tensor, alpha: Tensor, lightness: Tensor) -> Tensor:
    """Mix the image, by weight `alpha` (N), with (8 + lightness) times itself minus its eight neighbours."""
    from torch.nn.functional import pad

    whole = images.float()
    framed = pad(whole, (1, 1, 1, 1), mode="reflect")  # the border row is the mirror
    lines = (framed[:, :, :-2] + framed[:, :, 1:-1]).add_(framed[:, :, 2:])
    neighbours = (lines[..., :-2] + lines[..., 1:-1]).add_(lines[..., 2:]).sub_(whole)
    mix = alpha.double()
    centre = (1 - mix + mix * (8 + lightness.double())).float()
    weighted = neighbours.mul_(mix.float()[:, None, None, None])
    return _cut(whole.mul_(centre[:, None, None, None]).sub_(weighted).round_())


def _cut(values: Tensor) -> Tensor:
    """To bytes by cutting off, not rounding, as the published libraries do."""
    return values.clamp_(0, 255).short().byte()  # torch turns floats to bytes one by one, but not to int16


def _all_levels(device: torch.device) -> Tensor:
    from torch import arange

    return arange(256, device=device)


def _thirty_seconds(a: np.ndarray, b: np.ndarray, start: np.ndarray, images: Tensor) -> tuple[Tensor, Tensor]:
    """The coordinate a * x + b * y + start at every pixel (x, y): whole pixels, and the rest in 1/32 of a pixel.

    a, b and start have a number for each image. Both tensors are (N, 1, height * width), int32.
    """
    from torch import from_numpy

    height, width = images.shape[-2:]
    along_x = np.rint(a[:, None] * 1024 * np.arange(width))
    along_y = np.rint((b[:, None] * np.arange(height) + start[:, None]) * 1024) + 16
    x, y = (from_numpy(along.astype(np.int32)).to(images.device, non_blocking=True) for along in (along_x, along_y))
    place = (y[:, None, :, None] + x[:, None, None]).flatten(2) >> 5
    return place >> 5, place & 31


# ---- their magnitudes ------------------------------------------------------------------------------------


def _one_or_three(rng: Random, apart: float, low: float, high: float) -> Tensor:
    """One magnitude for all channels, or, with probability `apart`, one for each."""
    drawn = rng.uniform(0, 1, (4,))
    magnitudes: Tensor = _between(drawn[:, :3], low, high)
    return magnitudes.where(drawn[:, 3:] < apart, magnitudes[:, :1])


def _between(share: Any, low: float, high: float) -> Any:
    return share * (high - low) + low


def _draw_affine(rng: Random) -> dict[str, np.ndarray]:
    drawn = np.array(rng.uniform(0, 1, (5,), on_host=True).tolist())
    scale, shift, turn = drawn[:, :2], drawn[:, 2:4], drawn[:, 4]
    return {"scale": _between(scale, *SCALE), "shift": _between(shift, *SHIFT), "degrees": _between(turn, *DEGREES)}


def _draw_sharpen(rng: Random) -> dict[str, Tensor]:
    drawn = rng.uniform(0, 1, (2,))
    return {"alpha": _between(drawn[:, 0], *SHARPNESS), "lightness": _between(drawn[:, 1], *LIGHTNESS)}


# `recipe` numbers them in this order: a change of order, or a new operation, would change all sets.
OPERATIONS = {
    "autocontrast": Operation(
        lambda rng: {"cutoff": rng.integers(CUTOFF[0], CUTOFF[1] + 1, ())},
        autocontrast,
        f"cutoff {CUTOFF[0]} to {CUTOFF[1]} % at either end",
    ),
    "multiply": Operation(
        lambda rng: {"factor": _one_or_three(rng, CHANNELS_APART, *FACTOR)},
        multiply,
        f"factor {FACTOR[0]} to {FACTOR[1]}, for each channel apart in {CHANNELS_APART:.0%} of the images",
    ),
    "colour": Operation(
        lambda rng: {"factor": rng.uniform(*COLOUR, ())}, colour, f"factor {COLOUR[0]:g} (grey) to {COLOUR[1]:g}"
    ),
    "solarize": Operation(
        lambda rng: {"threshold": rng.integers(*THRESHOLD, ())},
        solarize,
        f"{SOLARIZED:.0%} of the images, values from a threshold of {THRESHOLD[0]} to {THRESHOLD[1]} on inverted",
        SOLARIZED,
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
        MOVED,
    ),
    "sharpen": Operation(
        _draw_sharpen,
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
    """The recipe of `number` for batches on any device; called as a perturbation_fn_cpu it takes one picture."""

    number: int
    cpu_only: ClassVar[bool] = False
    version: ClassVar[int] = 2  # for settings: magnitudes are made of counted bits since then

    def __post_init__(self) -> None:
        if type(self.number) is not int or not 0 <= self.number < 2**32:
            raise ValueError(f"meta set: expected a whole number from 0 on, got {self.number!r}")

    def __call__(self, image: Tensor, rng: np.random.Generator) -> Tensor:
        """One picture (3, height, width), with the random numbers of a NumPy generator."""
        if image.ndim != 3 or image.shape[0] != 3 or min(image.shape) < 2:
            raise ValueError(
                f"meta set {self.number}: expected one image of shape (3, height, width), at least 2 pixels a side, "
                f"got {tuple(image.shape)}"
            )
        return self.on_batch(image[None].float(), GeneratorRandom(rng))[0]

    def on_batch(self, images: Tensor, rng: Random, data_roots: Sequence[str] = ()) -> Tensor:
        """Pictures (N, 3, height, width) in [0, 1], float32, on any device; what comes back are whole grey levels."""
        pixels = (images.contiguous() * 255).round_().byte()
        return self.on_bytes(pixels, rng).float().div_(255)

    def on_bytes(self, images: Tensor, rng: Random) -> Tensor:
        """The recipe applied to bytes (N, 3, height, width)."""
        for name in recipe(self.number):
            images = OPERATIONS[name](images, rng)
        return images

    def describe(self, side: int | None = None) -> str:
        """One line for the record; the operations are the same at every size."""
        steps = [f"{name} ({OPERATIONS[name].words})" for name in recipe(self.number)]
        return f"meta set {self.number}: " + ", then ".join(steps)

    def __repr__(self) -> str:
        return self.describe()


def meta_set(number: int) -> MetaSet:
    """The images of set `number`: three operations, with magnitudes drawn for every image."""
    return MetaSet(number)
