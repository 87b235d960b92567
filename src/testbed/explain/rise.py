"""RISE (Petsiuk et al. 2018): the probability under random masks, averaged over the masks that show a pixel."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from testbed.explain.batches import in_batches
from testbed.explain.scores import Score
from testbed.explain.substrates import zero_colour

_AT_ONCE = 256  # masks held in memory


def rise(
    model: nn.Module,
    images: torch.Tensor,
    score: Score,
    masks: int = 256,
    cells: int = 7,
    keep: float = 0.5,
    seed: int = 0,
    batch_size: int = 64,
) -> torch.Tensor:
    """Maps (B, J, H, W) from `masks` forward passes per image, shared by all its classes.

    The masks are the same for every image, batch and model. Hidden is what becomes 0 in the model's own input, as
    the published program hides it.
    """
    probability = score.as_probability()
    size = (int(images.shape[2]), int(images.shape[3]))
    colour = zero_colour(model, images)
    maps = images.new_zeros(len(images), score.width, *size)
    with torch.no_grad():
        for start in range(0, masks, _AT_ONCE):
            shown = random_masks(range(start, min(start + _AT_ONCE, masks)), size, cells, keep, seed)
            shown = shown.to(images.device, images.dtype)
            pairs = torch.arange(len(shown) * len(images), device=images.device)

            def probabilities(part: torch.Tensor, shown: torch.Tensor = shown) -> torch.Tensor:
                veil, image = shown[part // len(images), None], part % len(images)
                return probability(model(images[image] * veil + colour * (1 - veil)), image)

            numbers = torch.cat(in_batches(pairs, batch_size, probabilities)).to(images.dtype)
            maps += torch.einsum("mbj,mhw->bjhw", numbers.view(len(shown), len(images), -1), shown)
    return maps / (masks * keep)


def random_masks(numbers: range, size: tuple[int, int], cells: int, keep: float, seed: int) -> torch.Tensor:
    """Masks (n, H, W) in [0, 1]: a coarse random grid, enlarged smoothly and shifted. Mask i is always the same."""
    height, width = size
    tall, wide = -(-height // cells), -(-width // cells)
    found = []
    for number in numbers:
        rng = np.random.default_rng((seed, number))
        coarse = torch.from_numpy((rng.random((cells + 1, cells + 1)) < keep).astype(np.float32))
        large = nn.functional.interpolate(
            coarse[None, None], size=((cells + 1) * tall, (cells + 1) * wide), mode="bilinear", align_corners=False
        )[0, 0]
        top, left = int(rng.integers(tall)), int(rng.integers(wide))
        found.append(large[top : top + height, left : left + width])
    return torch.stack(found)
