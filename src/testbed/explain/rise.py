"""RISE (Petsiuk et al. 2018): a pixel's value is the mean probability over random masks that show the pixel."""

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
    *,
    masks: int = 256,
    cells: int = 7,
    keep: float = 0.5,
    seed: int = 0,
    batch_size: int = 64,
) -> torch.Tensor:
    """Maps (B, J, H, W) from `masks` forward passes per image, which all of its classes share.

    masks, cells, keep: number of masks, cells of their grid along each side, and the share of cells that are shown.
    The masks are the same for every image, batch and model. Hidden pixels are 0 after the model's normalisation, as in
    the published program.
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
    # By the expected number of masks that show a pixel, as published, not by the number that did.
    return maps / (masks * keep)


def random_masks(numbers: range, size: tuple[int, int], cells: int, keep: float, seed: int) -> torch.Tensor:
    """The masks with these numbers, (n, H, W) in [0, 1]: random coarse grids, enlarged smoothly and shifted.

    A mask depends on its number, the seed and the sizes only, not on which others are asked for.
    """
    height, width = size
    tall, wide = -(-height // cells), -(-width // cells)
    masks = []
    for number in numbers:
        rng = np.random.default_rng((seed, number))
        # One cell more than the picture has along each side, so that the mask can be shifted by up to a cell.
        coarse = torch.from_numpy((rng.random((cells + 1, cells + 1)) < keep).astype(np.float32))
        large = nn.functional.interpolate(
            coarse[None, None], size=((cells + 1) * tall, (cells + 1) * wide), mode="bilinear", align_corners=False
        )[0, 0]
        top, left = int(rng.integers(tall)), int(rng.integers(wide))
        masks.append(large[top : top + height, left : left + width])
    return torch.stack(masks)
