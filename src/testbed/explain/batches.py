"""Work in batches that fit: where memory runs out, the batch is halved and the work goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_batches(items: torch.Tensor, size: int, work: Callable[[torch.Tensor], Result]) -> list[Result]:
    """work(part) for consecutive parts of `items` of at most `size`."""
    done: list[Result] = []
    start = 0
    while start < len(items):
        try:
            done.append(work(items[start : start + size]))
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size = size // 2
            torch.cuda.empty_cache()
        else:
            start += size
    return done
