"""Work in batches whose size is halved when the GPU runs out of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_batches(items: torch.Tensor, size: int, work: Callable[[torch.Tensor], Result]) -> list[Result]:
    """The results of work(part) for consecutive parts of `items`, each of at most `size` items.

    If a part does not fit into memory, it and all later ones are done in halves.
    """
    results: list[Result] = []
    start = 0
    while start < len(items):
        try:
            results.append(work(items[start : start + size]))
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size = size // 2
            torch.cuda.empty_cache()
        else:
            start += size
    return results
