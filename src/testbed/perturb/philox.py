"""Philox4x64-10: random bits that are a function of a key and a counter, the same on every device.

Published by Salmon, Moraes, Dror and Shaw ("Parallel random numbers: as easy as 1, 2, 3", SC 2011). The CPU takes
NumPy's implementation; other devices compute the same bits with integer tensors, without a word to the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)  # added to the key after every round
_ROUNDS = 10
_WORD = (1 << 64) - 1
_HALF = (1 << 32) - 1
_PER_BLOCK = 8  # one counter gives four words of 64 bits


def random_bits(keys: Sequence[int], draw: int, count: int, device: torch.device) -> torch.Tensor:
    """`count` times 32 bits for each key of 128 bits, as an int32 tensor (keys, count).

    `draw` numbers the draws of a key: two draws share no bits.
    """
    if device.type == "cpu":
        return _by_numpy(keys, draw, count)
    return by_tensors(keys, draw, count, device)


def _by_numpy(keys: Sequence[int], draw: int, count: int) -> torch.Tensor:
    import torch

    words = -(-count // 2)
    bits = np.empty((len(keys), 2 * words), dtype="<i4")
    for row, key in zip(bits.view("<u8"), keys, strict=True):
        row[:] = np.random.Philox(key=key, counter=[0, draw, 0, 0]).random_raw(words)
    return torch.from_numpy(bits)[:, :count]


def by_tensors(keys: Sequence[int], draw: int, count: int, device: torch.device) -> torch.Tensor:
    """The same bits, computed on any device."""
    import torch

    halves = torch.tensor([[_signed(key & _WORD), _signed(key >> 64)] for key in keys], dtype=torch.int64)
    k0, k1 = halves.to(device, non_blocking=True)[:, :, None].unbind(1)
    blocks = -(-count // _PER_BLOCK)
    # NumPy counts up before it computes, so that the first block has counter 1.
    c0 = torch.arange(1, blocks + 1, dtype=torch.int64, device=device).expand(len(keys), blocks)
    c1 = torch.full_like(c0, draw)
    c2 = c3 = torch.zeros_like(c0)
    for number in range(_ROUNDS):
        if number:
            k0, k1 = k0 + _signed(_WEYL[0]), k1 + _signed(_WEYL[1])
        (high0, low0), (high1, low1) = _product(c0, _MULTIPLIERS[0]), _product(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
    return torch.stack((c0, c1, c2, c3), dim=-1).reshape(len(keys), -1).view(torch.int32)[:, :count]


def _product(words: torch.Tensor, factor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The upper and the lower 64 bits of a product of two words, by halves of 32 bits."""
    low, high = words & _HALF, (words >> 32) & _HALF
    f_low, f_high = factor & _HALF, factor >> 32
    lowest, cross, other = low * f_low, high * f_low, low * f_high
    # No sum below goes beyond 64 bits; what is shifted right is masked, since int64 shifts its sign in.
    middle = cross + ((lowest >> 32) & _HALF)
    carry = other + (middle & _HALF)
    upper = high * f_high + ((middle >> 32) & _HALF) + ((carry >> 32) & _HALF)
    return upper, words * _signed(factor)


def _signed(word: int) -> int:
    """A word of 64 bits as the int64 with the same bits."""
    return word - (1 << 64) if word >> 63 else word
