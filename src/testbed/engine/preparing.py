"""From rows to batches of pictures: decode, transform, perturb on the CPU. Prepared pictures are cached on disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from testbed.data.cache import PreparedCache, open_cache, reopen_cache
from testbed.data.rows import Rows
from testbed.data.samples import Dataset, Samples
from testbed.data.transforms import transform_key
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name
from testbed.entries.model import Model
from testbed.errors import DataError, ImageError
from testbed.options import RunOptions
from testbed.perturb.seeding import image_generator

_BATCHES_AHEAD = 2
_SMALLEST_SLICE = 8  # pictures a thread takes at once: handing over fewer costs more than it gains

Loaded = list[tuple[int, Any]]  # (position among the rows, picture); None for one that cannot be read


@dataclass(frozen=True)
class Batch:
    """Pictures and their rows: float in [0, 1] (N, 3, H, W), or uint8 (N, H, W, 3) while nothing has perturbed them."""

    rows: Rows
    images: torch.Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def copy(self) -> Batch:
        return Batch(self.rows, self.images.clone())

    def part(self, start: int, stop: int) -> Batch:
        return Batch(self.rows.take(slice(start, stop)), self.images[start:stop])


class Preparer:
    """Makes the batches of one process, ahead of the device that takes them.

    It keeps what outlives one chunk: open datasets, the cache of prepared pictures, and perturbed pictures of small
    sets for the next model. Everything a setting does on the CPU happens here and nowhere else.
    """

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._threads = ThreadPoolExecutor(max(1, options.workers), thread_name_prefix="images")
        self._opened: dict[Dataset, Samples] = {}
        self._prepared: dict[tuple[object, ...], PreparedImages] = {}  # of the last setting only
        self._perturbed = PerturbedMemory(int(options.perturbed_gb * 1e9))

    def samples(self, setting: EvalSetting) -> Samples:
        """The setting's dataset, listed once."""
        dataset = setting.dataset
        assert dataset is not None, f"{setting.name} has no dataset of its own: run Registry.runnable's form of it"
        if dataset not in self._opened:
            self._opened[dataset] = dataset.open([Path(root) for root in self._options.data_roots])
        return self._opened[dataset]

    def batches(
        self, setting: EvalSetting, model: Model, rows: Rows, size: int, perturb: bool = True
    ) -> Iterator[Batch]:
        """The rows in batches of `size`, as `model` wants its pictures. Unreadable ones are an error, or left out.

        Without `perturb` the setting's perturbation_fn_cpu is left to whoever takes the batches.
        """
        images = self._images(setting, model)
        try:
            images.open_cache_of(int(rows.indices[0]))
        except ImageError:
            pass  # the same picture is asked for again below, where a bad one is dealt with
        loader = _Loader(images, setting, rows, self._options, self._perturbed if perturb else None)
        pending: deque[list[Future[Loaded]]] = deque()
        for first in range(0, len(rows), size):
            pending.append(self._submit(loader, range(first, min(first + size, len(rows)))))
            if len(pending) > _BATCHES_AHEAD:
                yield from loader.batch(pending.popleft())
        while pending:
            yield from loader.batch(pending.popleft())

    def _images(self, setting: EvalSetting, model: Model) -> PreparedImages:
        samples = self.samples(setting)
        key = (setting.dataset, *setting.transforms_for(model))
        if key not in self._prepared:
            self._prepared = {key: PreparedImages(samples, setting, model, self._options)}
        return self._prepared[key]

    def _submit(self, loader: _Loader, positions: range) -> list[Future[Loaded]]:
        """A batch in as many slices as there are threads; small batches in fewer."""
        step = max(_SMALLEST_SLICE, -(-len(positions) // max(1, self._options.workers)))
        slices = [positions[i : i + step] for i in range(0, len(positions), step)]
        return [self._threads.submit(loader.load, part) for part in slices]

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)


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
        self._folder = Path(options.cache_folder)
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
            self._make_cache(image)
        if self._cache is not None:
            self._cache.put(index, image)
        return image

    def open_cache_of(self, index: int) -> None:
        """Open the cache before the threads ask for images; a new one needs the shape of a first image."""
        if self._cache_sought:
            return
        assert self.key is not None
        self._cache = reopen_cache(self._folder, self.key, len(self._samples), self._budget)
        self._cache_sought = self._cache is not None
        if not self._cache_sought:
            self[index]  # makes the cache, and keeps this image in it

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

    def _make_cache(self, image: Any) -> None:
        self._cache_sought = True
        if isinstance(image, np.ndarray):
            assert self.key is not None
            self._cache = open_cache(self._folder, self.key, len(self._samples), image.shape, self._budget)


class PerturbedMemory:
    """Perturbed images kept for the next model, as many as fit: the noise is the same for everyone.

    Nothing is dropped for another: with models taken one after the other, what was used longest ago comes next.
    """

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._images: dict[tuple[object, ...], torch.Tensor] = {}

    def get(self, key: tuple[object, ...]) -> torch.Tensor | None:
        return self._images.get(key)

    def keep(self, key: tuple[object, ...], image: torch.Tensor) -> None:
        if image.nbytes <= self._left:
            self._left -= image.nbytes
            self._images[key] = image


class _Loader:
    """The pictures of some rows of one setting, loaded by threads and collected to batches."""

    def __init__(
        self,
        images: PreparedImages,
        setting: EvalSetting,
        rows: Rows,
        options: RunOptions,
        memory: PerturbedMemory | None,
    ) -> None:
        self._images, self._setting, self._rows, self._options = images, setting, rows, options
        self._perturb = setting.perturbation_fn_cpu if memory is not None else None
        # Only a set whose pictures have a key can be told from another one.
        self._memory = memory if self._perturb is not None and images.key is not None else None

    def load(self, positions: range) -> Loaded:
        """An unreadable image is an error, or None where such are skipped."""
        loaded: Loaded = []
        for position in positions:
            try:
                loaded.append((position, self._load(position)))
            except ImageError:
                if not self._options.skip_bad_images:
                    raise
                loaded.append((position, None))
        return loaded

    def _load(self, position: int) -> Any:
        index = int(self._rows.indices[position])
        key = (self._setting.name, self._setting.noise_key, self._images.key, index)
        kept = self._memory.get(key) if self._memory is not None else None
        if kept is not None:
            return kept
        image = self._images[index]
        if self._perturb is None:
            return image
        tensor = image if isinstance(image, torch.Tensor) else unit_range(torch.from_numpy(image)[None])[0]
        perturbed = self._perturbed(tensor, str(self._rows.ids[position]))
        if self._memory is not None:
            self._memory.keep(key, perturbed)
        return perturbed

    def _perturbed(self, image: torch.Tensor, image_id: str) -> torch.Tensor:
        assert self._perturb is not None
        changed = call_by_name(
            self._perturb,
            self._setting.arguments["perturbation_fn_cpu"],
            image=image,
            rng=image_generator(self._options.seed, self._setting.noise_key, image_id),
            data_roots=self._options.data_roots,
        )
        changed = torch.as_tensor(changed, dtype=torch.float32)
        if changed.shape != image.shape:
            raise DataError(
                f"perturbation_fn_cpu of '{self._setting.name}': expected an image of shape "
                f"{tuple(image.shape)}, got {tuple(changed.shape)}"
            )
        return changed

    def batch(self, slices: list[Future[Loaded]]) -> Iterator[Batch]:
        """The readable pictures of a batch; nothing where none is."""
        loaded = [(p, image) for part in slices for p, image in part.result() if image is not None]
        if not loaded:
            return
        images = [image for _, image in loaded]
        shapes = {tuple(image.shape) for image in images}
        if len(shapes) > 1:
            raise DataError(
                f"images of '{self._setting.name}' differ in size after the model's transform "
                f"({', '.join(map(str, sorted(shapes)[:2]))}): give the model a transform that crops"
            )
        stack: torch.Tensor = (
            torch.stack(images) if isinstance(images[0], torch.Tensor) else torch.from_numpy(np.stack(images))
        )
        yield Batch(self._rows.take(np.array([p for p, _ in loaded])), stack)


def unit_range(images: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2).contiguous().float().div_(255)
