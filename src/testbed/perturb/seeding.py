"""Random generators seeded by (run seed, setting, image id) alone: every model sees the same noise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def image_generator(seed: int, key: str, image_id: str) -> np.random.Generator:
    """The generator of one image; `key` names the setting."""
    digest = hashlib.blake2b(f"{seed}|{key}|{image_id}".encode(), digest_size=16).digest()
    # Philox takes the whole digest (128 bits) as its key.
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


class BatchRandom:
    """Random tensors for a batch, each image's part from its own generator: no result depends on the batch."""

    def __init__(self, seed: int, key: str, image_ids: Iterable[str], device: Any) -> None:
        self._generators = [image_generator(seed, key, str(image_id)) for image_id in image_ids]
        self._device = device

    def each(self, draw: Callable[[np.random.Generator], Any]) -> list[Any]:
        """The results of `draw(generator)`, for the generator of each image."""
        return [draw(generator) for generator in self._generators]

    def normal(self, shape: Sequence[int]) -> Any:
        return self._stack(self.each(lambda own: own.standard_normal(tuple(shape), dtype=np.float32)))

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Any:
        return self._stack(self.each(lambda own: own.uniform(low, high, tuple(shape)).astype(np.float32)))

    def _stack(self, arrays: list[np.ndarray]) -> Any:
        import torch

        return torch.from_numpy(np.stack(arrays)).to(self._device)


class SharedRandom(BatchRandom):
    """The same random numbers for every image, whatever the batch: for images that carry no id."""

    def __init__(self, seed: int, key: str, n_images: int, device: Any) -> None:
        super().__init__(seed, key, [""], device)
        self._n_images = n_images

    def _stack(self, arrays: list[np.ndarray]) -> Any:
        shared = super()._stack(arrays)
        return shared.expand(self._n_images, *shared.shape[1:]).contiguous()
