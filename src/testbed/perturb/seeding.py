"""Random numbers that depend on (run seed, setting, image id) alone: every model sees the same noise.

A function for one image gets a generator of NumPy. One for batches gets a `BatchRandom`, whose numbers are made of
counted bits (testbed.perturb.philox): no device, batch size or process changes them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from testbed.perturb.philox import random_bits

if TYPE_CHECKING:
    import torch

Shape = Sequence[int]


def image_key(seed: int, key: str, image_id: str) -> int:
    """128 bits that stand for one image under one setting; `key` names the setting."""
    text = f"{seed}|{key}|{image_id}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "little")


def image_generator(seed: int, key: str, image_id: str) -> np.random.Generator:
    """The generator of one image."""
    return np.random.Generator(np.random.Philox(key=image_key(seed, key, image_id)))


class Random(Protocol):
    """What a perturbation of batches draws from. Every tensor has the images as its first axis.

    Numbers that a program needs on the CPU, such as an angle for each image, are drawn with `on_host`: reading them
    from the device would wait for it.
    """

    def normal(self, shape: Shape, on_host: bool = False) -> torch.Tensor: ...

    def uniform(self, low: float, high: float, shape: Shape, on_host: bool = False) -> torch.Tensor: ...

    def integers(self, low: int, high: int, shape: Shape, on_host: bool = False) -> torch.Tensor: ...

    def permutation(self, n: int, on_host: bool = False) -> torch.Tensor: ...

    def each(self, draw: Callable[[np.random.Generator], Any]) -> list[Any]: ...


class BatchRandom:
    """Random tensors for a batch, on its device. Each image has a key of its own: no result depends on the batch."""

    def __init__(self, seed: int, key: str, image_ids: Iterable[str], device: Any) -> None:
        import torch

        self._keys = [image_key(seed, key, str(image_id)) for image_id in image_ids]
        self._device = torch.device(device)
        self._draws = 0

    def bits(self, shape: Shape, on_host: bool = False) -> torch.Tensor:
        """32 random bits for every number of the shape, as int32."""
        import torch

        self._draws += 1
        device = torch.device("cpu") if on_host else self._device
        drawn = random_bits(self._keys, self._draws, math.prod(shape), device)
        return drawn.reshape(len(self._keys), *shape)

    def normal(self, shape: Shape, on_host: bool = False) -> torch.Tensor:
        """Standard normal numbers, by the method of Box and Muller."""
        import torch

        count = math.prod(shape)
        half = -(-count // 2)
        share = self.uniform(0, 1, (2 * half,), on_host)
        radius = torch.log(1 - share[:, :half]).mul_(-2).sqrt_()  # 1 - share is never 0
        angle = share[:, half:] * (2 * math.pi)
        both = torch.cat([radius * angle.cos(), radius * angle.sin()], dim=1)
        return both[:, :count].reshape(-1, *shape)

    def uniform(self, low: float, high: float, shape: Shape, on_host: bool = False) -> torch.Tensor:
        """From `low` on and below `high`, in steps of 2 ** -24 of the range."""
        drawn = self.bits(shape, on_host)
        share = (drawn >> 8).float().mul_(2**-24).add_(0.5)  # int32 has a sign: from -0.5 to 0.5
        return share if (low, high) == (0, 1) else share.mul_(high - low).add_(low)

    def integers(self, low: int, high: int, shape: Shape, on_host: bool = False) -> torch.Tensor:
        """Whole numbers from `low` on and below `high`, as int64; at most 2 ** 31 of them."""
        if not 0 < high - low <= 2**31:
            raise ValueError(f"integers: expected a range of 1 to 2 ** 31 numbers, got {low} to {high}")
        drawn = self.bits(shape, on_host).long() & 0xFFFFFFFF
        return drawn.mul_(high - low).bitwise_right_shift_(32).add_(low)

    def permutation(self, n: int, on_host: bool = False) -> torch.Tensor:
        """0 to n - 1 in a random order."""
        return self.bits((n,), on_host).argsort(dim=1, stable=True)

    def each(self, draw: Callable[[np.random.Generator], Any]) -> list[Any]:
        """The results of `draw(generator)`, for a NumPy generator of each image: where shapes differ by image."""
        self._draws += 1
        streams = (np.random.Philox(key=key, counter=[0, 0, 0, self._draws]) for key in self._keys)
        return [draw(np.random.Generator(stream)) for stream in streams]


class SharedRandom(BatchRandom):
    """The same random numbers for every image, whatever the batch: for images that carry no id."""

    def __init__(self, seed: int, key: str, n_images: int, device: Any) -> None:
        super().__init__(seed, key, [""], device)
        self._n_images = n_images

    def bits(self, shape: Shape, on_host: bool = False) -> torch.Tensor:
        return super().bits(shape, on_host).expand(self._n_images, *shape)

    def each(self, draw: Callable[[np.random.Generator], Any]) -> list[Any]:
        return super().each(draw) * self._n_images


class GeneratorRandom:
    """A batch of one image that draws from a generator of NumPy: for calls with a single picture."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def normal(self, shape: Shape, on_host: bool = False) -> torch.Tensor:
        return _batch_of_one(self._generator.standard_normal(tuple(shape), dtype=np.float32))

    def uniform(self, low: float, high: float, shape: Shape, on_host: bool = False) -> torch.Tensor:
        return _batch_of_one(np.asarray(self._generator.uniform(low, high, tuple(shape)), dtype=np.float32))

    def integers(self, low: int, high: int, shape: Shape, on_host: bool = False) -> torch.Tensor:
        return _batch_of_one(np.asarray(self._generator.integers(low, high, tuple(shape))))

    def permutation(self, n: int, on_host: bool = False) -> torch.Tensor:
        return _batch_of_one(self._generator.permutation(n))

    def each(self, draw: Callable[[np.random.Generator], Any]) -> list[Any]:
        return [draw(self._generator)]


def _batch_of_one(array: np.ndarray) -> torch.Tensor:
    import torch

    return torch.from_numpy(array)[None]
