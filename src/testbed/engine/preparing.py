"""From a dataset index to a prepared image, decoded once and then read from the cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from testbed.data.cache import PreparedCache, open_cache, reopen_cache
from testbed.data.samples import Samples
from testbed.data.transforms import transform_key
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name
from testbed.entries.model import Model
from testbed.errors import DataError, ImageError
from testbed.options import RunOptions
from testbed.perturb.seeding import image_generator

_BATCHES_AHEAD = 2
_SMALLEST_SLICE = 8


class PreparedImages:
    """Decode, the setting's transform, the model's transform: a uint8 image (H, W, 3), cached where it can be.

    A transform that is not plain data may return a float array or tensor (3, H, W) in [0, 1]; such images
    are not cached.
    """

    def __init__(self, samples: Samples, setting: EvalSetting, model: Model, options: RunOptions) -> None:
        self._samples = samples
        chain = setting.transforms_for(model)
        self._transforms = [t for t in chain if t is not None]
        self._raw = None if self._transforms else getattr(samples.load, "raw", None)
        keys = [transform_key(t) for t in chain]
        self.key = None if None in keys else "|".join((samples.fingerprint, samples.cache_salt, *map(str, keys)))
        self._options = options
        self._budget = int(options.cache_gb * 1e9)
        self._cache: PreparedCache | None = None
        self._cache_sought = self._raw is not None or self.key is None or options.cache_gb <= 0

    def __getitem__(self, index: int) -> Any:
        if self._raw is not None:
            return np.array(self._raw[index])  # a copy: perturbations may write to it
        if self._cache is not None:
            stored = self._cache.get(index)
            if stored is not None:
                return stored
        image = self._prepare(index)
        if not self._cache_sought:
            self._open_cache(image)
        if self._cache is not None:
            self._cache.put(index, image)
        return image

    def open_early(self, index: int) -> None:
        """Open the cache before the threads ask for images; a new one needs the shape of a first image."""
        if self._cache_sought:
            return
        assert self.key is not None
        self._cache = reopen_cache(Path(self._options.cache_folder), self.key, len(self._samples), self._budget)
        self._cache_sought = self._cache is not None
        if not self._cache_sought:
            self[index]

    def _prepare(self, index: int) -> Any:
        image = self._samples.load(index)
        try:
            for transform in self._transforms:
                image = transform(image)
        except Exception as error:
            name = self._samples.ids[index]
            raise ImageError(f"transform of image {name} failed: {type(error).__name__}: {error}") from error
        if isinstance(image, torch.Tensor) or (isinstance(image, np.ndarray) and image.dtype != np.uint8):
            return torch.as_tensor(image, dtype=torch.float32)
        return np.array(image, dtype=np.uint8)

    def _open_cache(self, image: Any) -> None:
        self._cache_sought = True
        if isinstance(image, np.ndarray):
            folder = Path(self._options.cache_folder)
            assert self.key is not None
            self._cache = open_cache(folder, self.key, len(self._samples), image.shape, self._budget)


class PerturbedMemory:
    """Perturbed images of small sets, kept for the next model: the noise is the same for everyone.

    A set is kept whole or not at all, and nothing is dropped for another: with models taken one after the other, what
    was used longest ago is what comes next.
    """

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._sets: dict[tuple[str, ...], dict[int, torch.Tensor]] = {}

    def of(self, images: PreparedImages, setting: EvalSetting, n: int, index: int) -> dict[int, torch.Tensor] | None:
        """By dataset index the images of this setting, to be filled by whoever makes them; None where there is no
        room for `n` like the one at `index`, or nothing tells two sets apart."""
        if images.key is None:
            return None
        key = (setting.name, setting.noise_key, images.key)
        if key not in self._sets and self._left > 0:
            try:
                first = images[index]
            except ImageError:
                return None
            size = n * (first.nbytes if isinstance(first, torch.Tensor) else 4 * first.size)
            if size <= self._left:
                self._left -= size
                self._sets[key] = {}
        return self._sets.get(key)


@dataclass(frozen=True)
class Batch:
    """Images in [0, 1] (still uint8 where nothing has perturbed them) with the rows they belong to."""

    rows: list[int]
    ids: list[str]
    targets: torch.Tensor
    images: torch.Tensor

    def split(self) -> tuple[Batch, Batch]:
        middle = len(self.rows) // 2
        halves = (slice(None, middle), slice(middle, None))
        a, b = (Batch(self.rows[h], self.ids[h], self.targets[h], self.images[h]) for h in halves)
        return a, b


class BatchLoader:
    """Batches of an evaluation's rows, prepared ahead by threads."""

    def __init__(
        self,
        images: PreparedImages,
        ids: Sequence[str],
        indices: np.ndarray,
        targets: np.ndarray,
        setting: EvalSetting,
        options: RunOptions,
        threads: Executor,
        memory: PerturbedMemory | None = None,
        perturb: bool = True,
    ) -> None:
        """`perturb`: apply the setting's perturbation_fn_cpu; without, whoever takes the batches does what it does."""
        self._images = images
        self._perturb = setting.perturbation_fn_cpu if perturb else None
        self._kept: dict[int, torch.Tensor] | None = None
        if memory is not None and self._perturb is not None:
            self._kept = memory.of(images, setting, len(indices), int(indices[0]))
        self._ids = ids
        self._indices = indices
        self._targets = targets
        self._setting = setting
        self._options = options
        self._threads = threads
        self.bad_rows: list[int] = []

    def batches(self, start: int, stop: int, size: int) -> Iterator[Batch]:
        """Rows start..stop in batches of `size`; unreadable images end the run or are noted in bad_rows."""
        self.bad_rows = []
        try:
            self._images.open_early(int(self._indices[start]))
        except ImageError:
            pass  # the same image is asked for again below, where a bad one is dealt with
        pending: deque[list[Future[list[Any]]]] = deque()
        for first in range(start, stop, size):
            pending.append(self._submit(range(first, min(first + size, stop))))
            if len(pending) > _BATCHES_AHEAD:
                yield from self._collect(pending.popleft())
        while pending:
            yield from self._collect(pending.popleft())

    def _submit(self, rows: range) -> list[Future[list[Any]]]:
        """A batch in as many slices as there are threads; small pictures in fewer, since handing over costs time."""
        step = max(_SMALLEST_SLICE, -(-len(rows) // self._options.workers))
        return [self._threads.submit(self._load_slice, rows[i : i + step]) for i in range(0, len(rows), step)]

    def _load_slice(self, rows: range) -> list[Any]:
        """(row, image) of each; an unreadable image is an error, or None where such are skipped."""
        loaded = []
        for row in rows:
            try:
                loaded.append((row, self._load(row)))
            except ImageError:
                if not self._options.skip_bad_images:
                    raise
                loaded.append((row, None))
        return loaded

    def _load(self, row: int) -> Any:
        index = int(self._indices[row])
        if self._kept is not None and index in self._kept:
            return self._kept[index]
        image = self._images[index]
        if self._perturb is None:
            return image
        tensor = image if isinstance(image, torch.Tensor) else unit_range(torch.from_numpy(image)[None])[0]
        rng = image_generator(self._options.seed, self._setting.noise_key, self._ids[row])
        taken = self._setting.arguments["perturbation_fn_cpu"]
        changed = torch.as_tensor(call_by_name(self._perturb, taken, image=tensor, rng=rng), dtype=torch.float32)
        if changed.shape != tensor.shape:
            raise DataError(
                f"perturbation_fn_cpu of '{self._setting.name}': expected an image of shape "
                f"{tuple(tensor.shape)}, got {tuple(changed.shape)}"
            )
        if self._kept is not None:
            self._kept[index] = changed
        return changed

    def _collect(self, loading: list[Future[list[Any]]]) -> Iterator[Batch]:
        loaded = [pair for future in loading for pair in future.result()]
        self.bad_rows += [row for row, image in loaded if image is None]
        rows = [row for row, image in loaded if image is not None]
        images = [image for _, image in loaded if image is not None]
        if not rows:
            return
        shapes = {tuple(i.shape) for i in images}
        if len(shapes) > 1:
            raise DataError(
                f"images of '{self._setting.name}' differ in size after the model's transform "
                f"({', '.join(map(str, sorted(shapes)[:2]))}): give the model a transform that crops"
            )
        stack: torch.Tensor = (
            torch.stack(images) if isinstance(images[0], torch.Tensor) else torch.from_numpy(np.stack(images))
        )
        targets = torch.from_numpy(self._targets[rows])
        yield Batch(rows, [self._ids[r] for r in rows], targets, stack)


def unit_range(images: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2).contiguous().float().div_(255)
