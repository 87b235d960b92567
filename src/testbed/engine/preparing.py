"""From rows to batches of pictures, ahead of the device that takes them, by threads of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np
import torch

from testbed.data.rows import Rows
from testbed.data.samples import Dataset, Samples
from testbed.engine.pictures import Filled, Form, Pictures
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.options import RunOptions

_BATCHES_AHEAD = 2
_MOST_OPEN = 4  # settings whose pictures are kept open


@dataclass(frozen=True)
class Batch:
    """Pictures and their rows: float in [0, 1] (N, 3, H, W), or uint8 (N, H, W, 3) while nothing has perturbed them."""

    rows: Rows
    images: torch.Tensor
    # Gives the same pictures in memory that may be written into, where that needs no copy.
    again: Callable[[], torch.Tensor] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, start: int, stop: int) -> Batch:
        again = self.again
        return Batch(
            self.rows.take(slice(start, stop)),
            self.images[start:stop],
            None if again is None else lambda: again()[start:stop],
        )


class Copies:
    """Copies of batches that may be written into. Each takes the memory of the one before, where that is alike."""

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None

    def of(self, batch: Batch) -> Batch:
        if batch.again is not None:
            return Batch(batch.rows, batch.again())
        if self._memory is None or self._memory.requires_grad or _form(self._memory) != _form(batch.images):
            self._memory = torch.empty_like(batch.images)
        return Batch(batch.rows, self._memory.copy_(batch.images))


def _form(images: torch.Tensor) -> tuple[object, ...]:
    return images.shape, images.stride(), images.dtype, images.device


@dataclass(frozen=True)
class Order:
    """Which pictures are wanted: rows of a setting in batches of `size`, as `model` takes them.

    Without `perturb` the setting's perturbation_fn_cpu is left to whoever takes the batches.
    """

    setting: EvalSetting
    model: Model
    rows: Rows
    size: int
    perturb: bool = True

    def batch_from(self, first: int) -> Rows:
        return self.rows.take(slice(first, first + self.size))


@dataclass
class Tally:
    """What is learnt while batches are prepared."""

    content: int | None = 0  # sum of the digests of all files that were asked for; None where there are none
    waited_s: float = 0.0  # by the one who takes the batches

    def add(self, filled: Filled) -> None:
        if self.content is not None:
            self.content = None if filled.content is None else self.content + filled.content


class Preparer(Protocol):
    """Whoever makes batches: threads of this process, or processes of the machine."""

    def samples(self, setting: EvalSetting) -> Samples:
        """The setting's dataset, listed once."""

    def batches(self, order: Order, tally: Tally) -> Iterator[Batch]:
        """What was ordered. A batch is valid until the next one is asked for.

        Pictures that cannot be read are an error or, with options.skip_bad_images, left out.
        """

    def close(self) -> None: ...


class Opened:
    """Datasets that were listed, and pictures of the last settings with their caches open."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._samples: dict[Dataset, Samples] = {}
        self._pictures: dict[tuple[object, ...], tuple[object, Pictures]] = {}

    def samples(self, setting: EvalSetting) -> Samples:
        dataset = setting.dataset
        assert dataset is not None, f"{setting.name} has no dataset of its own: run Registry.runnable's form of it"
        if dataset not in self._samples:
            self._samples[dataset] = dataset.open([Path(root) for root in self._options.data_roots])
        return self._samples[dataset]

    def pictures(self, setting: EvalSetting, model: Model, perturb: bool) -> Pictures:
        key = (setting.name, setting.dataset, perturb)
        transforms = setting.transforms_for(model)
        kept, pictures = self._pictures.get(key, (None, None))
        if pictures is None or kept != transforms:  # transforms can be compared, but need not be hashable
            while len(self._pictures) >= _MOST_OPEN:
                del self._pictures[next(iter(self._pictures))]
            pictures = Pictures(self.samples(setting), setting, model, self._options, perturb)
            self._pictures[key] = transforms, pictures
        return pictures


class LocalPreparer:
    """Threads of this process: for entries that exist only here, and where no other process may be started."""

    def __init__(self, options: RunOptions) -> None:
        self._opened = Opened(options)
        # A perturbation must not depend on how many threads torch may use in this process.
        self._threads = ThreadPoolExecutor(
            max(1, options.workers or 2), "images", initializer=lambda: torch.set_num_threads(1)
        )

    def samples(self, setting: EvalSetting) -> Samples:
        return self._opened.samples(setting)

    def batches(self, order: Order, tally: Tally) -> Iterator[Batch]:
        pictures = self._opened.pictures(order.setting, order.model, order.perturb)
        form: Form | None = None
        pending: deque[_Pending] = deque()
        for first in range(0, len(order.rows), order.size):
            rows = order.batch_from(first)
            indices = rows.indices.tolist()
            form = form or self._threads.submit(pictures.form, indices).result()
            if form is None:  # no picture up to here can be read
                tally.add(self._threads.submit(pictures.fill, np.empty((len(indices), 0)), indices).result())
                continue
            out = np.empty((len(indices), *form.shape), dtype=form.dtype)
            parts = [(part, self._fill(pictures, out, indices, part)) for part in form.slices(len(indices))]
            pending.append(_Pending(rows, out, parts))
            if len(pending) > _BATCHES_AHEAD:
                yield from pending.popleft().batch(tally)
        while pending:
            yield from pending.popleft().batch(tally)

    def _fill(self, pictures: Pictures, out: np.ndarray, indices: Sequence[int], part: range) -> Future[Filled]:
        return self._threads.submit(pictures.fill, out[part.start : part.stop], indices[part.start : part.stop])

    def close(self) -> None:
        """Images that threads were to load are not waited for: one that blocks would hold up whoever waits."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _Pending:
    """A batch that threads are at."""

    rows: Rows
    out: np.ndarray
    parts: list[tuple[range, Future[Filled]]]

    def batch(self, tally: Tally) -> Iterator[Batch]:
        began = perf_counter()
        filled = [(part, future.result()) for part, future in self.parts]
        tally.waited_s += perf_counter() - began
        yield from readable(self.rows, self.out, filled, tally)


def readable(rows: Rows, out: np.ndarray, filled: Sequence[tuple[range, Filled]], tally: Tally) -> Iterator[Batch]:
    """The readable pictures of a batch; nothing where none is."""
    bad = []
    for part, of_part in filled:
        tally.add(of_part)
        bad += [part.start + place for place in of_part.bad]
    if not bad:
        yield Batch(rows, torch.from_numpy(out))
    elif len(bad) < len(rows):
        kept = np.setdiff1d(np.arange(len(rows)), bad)
        yield Batch(rows.take(kept), torch.from_numpy(out[kept]))
