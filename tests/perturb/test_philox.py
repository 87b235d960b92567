"""Counted random bits: the form for other devices against NumPy's generator and Random123's known answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.perturb.philox import by_tensors, random_bits

CPU = torch.device("cpu")
KEYS = [0, 1, 2**63, 2**64 - 1, 2**64, 2**128 - 1, 0x243F6A8885A308D313198A2E03707344]


def by_numpy(key: int, draw: int, count: int) -> np.ndarray:
    words = np.random.Philox(key=key, counter=[0, draw, 0, 0]).random_raw(-(-count // 2))
    return words.astype("<u8").view("<i4")[:count]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 1000])
@pytest.mark.parametrize("draw", [0, 1, 2, 1000, 2**62])
def test_both_forms_give_the_bits_of_numpy(draw: int, count: int) -> None:
    expected = torch.from_numpy(np.stack([by_numpy(key, draw, count) for key in KEYS]))
    for form in (by_tensors, random_bits):
        found = form(KEYS, draw, count, CPU)
        assert found.dtype == torch.int32
        assert torch.equal(found, expected)


def test_bits_are_those_that_random123_publishes() -> None:
    """kat_vectors: philox4x64-10, counter 0 and key 0."""
    published = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    # NumPy counts up first, so that the counter before 0 gives the block of counter 0.
    assert list(np.random.Philox(key=0, counter=[2**64 - 1] * 4).random_raw(4)) == published


def test_form_for_devices_counts_as_numpy_does() -> None:
    """Its first block is that of counter (1, draw, 0, 0): NumPy's second from counter (-1, draw - 1, 0, 0) on."""
    before = np.array([2**64 - 1, 2, 0, 0], dtype=np.uint64)
    carried = np.random.Philox(key=5, counter=before).random_raw(8)[4:]
    assert torch.equal(by_tensors([5], 3, 8, CPU)[0], torch.from_numpy(carried.astype("<u8").view("<i4")))


def test_key_gives_the_same_bits_in_any_batch() -> None:
    together = by_tensors(KEYS, 4, 100, CPU)
    for key, row in zip(KEYS, together, strict=True):
        assert torch.equal(by_tensors([key], 4, 100, CPU)[0], row)
        assert torch.equal(by_tensors([key], 4, 30, CPU)[0], row[:30])


def test_two_draws_share_no_bits() -> None:
    """Words of 64 bits of 20 draws of 3 keys: none appears twice, as it would if counters overlapped."""
    words = torch.cat([by_tensors(KEYS[:3], draw, 2000, CPU).view(torch.int64).flatten() for draw in range(20)])
    assert len(words) == 60_000
    assert len(words.unique()) == len(words)
