"""Pictures of one setting as one model wants them: decode, transform, perturb on the CPU, into arrays that are given.

Everything a setting does on the CPU happens here and nowhere else, whichever process or thread calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from testbed.data.cache import PreparedCache, open_cache, reopen_cache
from testbed.data.content import digest_of, digest_with, stored_bytes
from testbed.data.samples import Samples
from testbed.data.transforms import leaves_as_it_is, transform_key
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name
from testbed.entries.model import Model
from testbed.errors import DataError, ImageError, in_words
from testbed.options import RunOptions
from testbed.perturb.seeding import BatchRandom, image_generator

_PIXELS_AT_ONCE = 65_536  # what a perturbation of batches gets in one call: more falls out of a core's own cache
_PIXELS_OF_A_SLICE = 16 * 224 * 224  # what is prepared in one go: handing over less costs more than it gains
_LEAST_OF_A_SLICE = 8
_OVERSHOOT = 0.2  # of values in [0, 1] after a bicubic or Lanczos resize


@dataclass(frozen=True)
class Form:
    """Shape and type of a prepared picture: uint8 (H, W, 3), or float32 (3, H, W) in [0, 1]."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape)) * np.dtype(self.dtype).itemsize

    def slices(self, count: int) -> Iterator[range]:
        """The places of a batch in parts that are prepared in one go. They depend on nothing but the batch."""
        pixels = int(np.prod(self.shape)) // 3
        step = max(_LEAST_OF_A_SLICE, _PIXELS_OF_A_SLICE // max(1, pixels))
        for first in range(0, count, step):
            yield range(first, min(first + step, count))


@dataclass
class Filled:
    """What became of some pictures."""

    bad: list[int] = field(default_factory=list)  # places of those that cannot be read
    content: int | None = 0  # sum of the digests of their files; None for a dataset that has none


class Pictures:
    """The pictures of a setting, prepared for one model, by their place in the dataset."""

    def __init__(
        self, samples: Samples, setting: EvalSetting, model: Model, options: RunOptions, perturb: bool = True
    ) -> None:
        self._samples, self._setting, self._options = samples, setting, options
        self._images = PreparedImages(samples, setting, model, options)
        self._perturb = setting.perturbation_fn_cpu if perturb else None
        self._on_batch = getattr(self._perturb, "on_batch", None)
        self._form: Form | None = None
        self._looked_at: dict[int, tuple[Any, bytes]] = {}  # the picture that told the form: it is not decoded again

    def form(self, indices: Sequence[int]) -> Form | None:
        """The form of the first picture that can be read, where unreadable ones are left out; None if none can."""
        for index in indices if self._form is None else ():
            image, digest = self._loaded(index)
            if image is not None:
                self._form = self._form_of(image)
                self._looked_at = {index: (image, digest)}
                break
        return self._form

    def _form_of(self, image: Any) -> Form:
        if self._perturb is not None:
            height, width = image.shape[-2:] if isinstance(image, torch.Tensor) else image.shape[:2]
            return Form((3, int(height), int(width)), "float32")
        return Form(tuple(map(int, image.shape)), "float32" if isinstance(image, torch.Tensor) else "uint8")

    def fill(self, out: np.ndarray, indices: Sequence[int]) -> Filled:
        """Put the pictures into `out`. An unreadable one is an error, or told where such are left out."""
        filled = Filled(content=0 if self._samples.read is not None else None)
        waiting: list[tuple[int, torch.Tensor]] = []  # for a perturbation of batches
        for place, index in enumerate(indices):
            image, digest = self._loaded(index)
            if filled.content is not None:
                filled.content += int.from_bytes(digest, "big")
            if image is None:
                filled.bad.append(place)
            elif self._perturb is None:
                self._put(out, place, image)
            elif self._on_batch is None:
                self._put(out, place, self._perturbed(_unit_picture(image), self._samples.ids[index]))
            else:
                waiting.append((place, _unit_picture(image)))
                if len(waiting) * waiting[0][1][0].numel() >= _PIXELS_AT_ONCE:
                    self._put_together(out, waiting, indices)
                    waiting = []
        if waiting:
            self._put_together(out, waiting, indices)
        return filled

    def _loaded(self, index: int) -> tuple[Any, bytes]:
        """The picture, or None for one that cannot be read, and the digest of its file."""
        if index in self._looked_at:
            return self._looked_at.pop(index)
        try:
            return self._images.load(index)
        except ImageError:
            if not self._options.skip_bad_images:
                raise
            return None, digest_of(self._samples, index) if self._samples.read is not None else b""

    def _put(self, out: np.ndarray, place: int, image: Any) -> None:
        if tuple(image.shape) != out.shape[1:]:
            raise self._differ(tuple(image.shape), out.shape[1:])
        out[place] = image

    def _put_together(
        self, out: np.ndarray, waiting: Sequence[tuple[int, torch.Tensor]], indices: Sequence[int]
    ) -> None:
        """What the setting's perturbation of batches makes of some pictures."""
        shapes = {tuple(image.shape) for _, image in waiting} | {out.shape[1:]}
        if len(shapes) > 1:
            raise self._differ(*sorted(shapes)[:2])
        ids = [self._samples.ids[indices[place]] for place, _ in waiting]
        images = waiting[0][1][None] if len(waiting) == 1 else torch.stack([image for _, image in waiting])
        rng = BatchRandom(self._options.seed, self._setting.noise_key, ids, "cpu")
        assert self._on_batch is not None
        changed = self._on_batch(images, rng, data_roots=self._options.data_roots)
        self._check_shape(changed[0], images[0])
        for (place, _), image in zip(waiting, changed, strict=True):
            out[place] = image

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
        self._check_shape(changed, image)
        return changed

    def _check_shape(self, changed: torch.Tensor, image: torch.Tensor) -> None:
        if changed.shape != image.shape:
            raise DataError(
                f"perturbation_fn_cpu of '{self._setting.name}': expected an image of shape "
                f"{tuple(image.shape)}, got {tuple(changed.shape)}"
            )

    def _differ(self, one: tuple[int, ...], other: tuple[int, ...]) -> DataError:
        sizes = " and ".join(str(shape) for shape in sorted((one, other)))
        return DataError(
            f"images of '{self._setting.name}' differ in size after the model's transform ({sizes}), expected one "
            "size: give the model or the setting a transform that crops, such as transform=StandardTransform("
            "img_resize_size=256, img_crop_size=224), or choose a model that is made for photographs"
        )


class PreparedImages:
    """Decode, the setting's transform, the model's transform: a uint8 image (H, W, 3), cached where it can be.

    A transform that is not plain data may return a float array or tensor (3, H, W) in [0, 1]; such images
    are not cached.
    """

    def __init__(self, samples: Samples, setting: EvalSetting, model: Model, options: RunOptions) -> None:
        self._samples, self._model = samples, model.name
        chain = setting.transforms_for(model)
        self._transforms = [t for t in chain if t is not None]
        self._any_range = any(getattr(t, "any_range", False) for t in self._transforms)
        self._raw = self._untouched(getattr(samples.load, "raw", None))
        keys = [transform_key(t) for t in chain]
        self.key = None if None in keys else "|".join((samples.fingerprint, samples.cache_salt, *map(str, keys)))
        self._folder = Path(options.cache_folder)
        self._budget = int(options.cache_gb * 1e9)
        self._cache: PreparedCache | None = None
        self._cache_sought = self._raw is not None or self.key is None or options.cache_gb <= 0

    def _untouched(self, raw: np.ndarray | None) -> np.ndarray | None:
        """The array of all images, if there is one and no transform would change its pictures."""
        if raw is None or not all(leaves_as_it_is(t, *raw.shape[1:3]) for t in self._transforms):
            return None
        return raw

    def load(self, index: int) -> tuple[Any, bytes]:
        """The picture, which the caller may change, and the digest of its file (empty for a dataset without)."""
        if self._raw is not None:
            return np.array(self._raw[index]), self._digest(index)
        if not self._cache_sought:
            self._reopen_cache()
        if self._cache is not None:
            stored = self._cache.get(index)
            if stored is not None:
                return stored, self._cache.digest(index) or self._digest(index)
        data = stored_bytes(self._samples, index) if self._samples.read is not None else None
        image = self._prepare(index, data)
        digest = digest_with(self._samples, index, data) if self._samples.read is not None else b""
        if not self._cache_sought:
            self._make_cache(image)
        if self._cache is not None:
            self._cache.put(index, image, digest)
        return image, digest

    def _digest(self, index: int) -> bytes:
        return digest_of(self._samples, index) if self._samples.read is not None else b""

    def _prepare(self, index: int, data: bytes | None) -> Any:
        """The picture from its stored bytes, where there are such; else from wherever the dataset has it."""
        decode = self._samples.decode
        image = self._samples.load(index) if data is None or decode is None else decode(index, data)
        try:
            for transform in self._transforms:
                image = transform(image)
        except (Exception, SystemExit) as error:
            name = self._samples.ids[index]
            raise ImageError(f"transform of image {name} failed: {in_words(error)}") from error
        if isinstance(image, torch.Tensor) or (isinstance(image, np.ndarray) and image.dtype != np.uint8):
            return self._in_range(torch.as_tensor(image, dtype=torch.float32))
        return np.array(image, dtype=np.uint8)

    def _in_range(self, image: torch.Tensor) -> torch.Tensor:
        """Perturbations work in [0, 1]. A sharp resize may leave it a little; a normalised picture leaves it by far."""
        low, high = (float(end) for end in torch.aminmax(image))
        if not self._any_range and (low < -_OVERSHOOT or high > 1 + _OVERSHOOT):
            raise DataError(
                f"transform of model '{self._model}': expected pixels from 0 to 1, got {low:.3g} to {high:.3g}; give a "
                "normalisation as normalization=StandardNormalization(mean, std), not in the transform"
            )
        return image

    def _reopen_cache(self) -> None:
        """A cache that exists is opened before any picture is prepared; a new one needs the shape of the first."""
        assert self.key is not None
        self._cache = reopen_cache(self._folder, self.key, len(self._samples), self._budget)
        self._cache_sought = self._cache is not None

    def _make_cache(self, image: Any) -> None:
        self._cache_sought = True
        if isinstance(image, np.ndarray):
            assert self.key is not None
            self._cache = open_cache(self._folder, self.key, len(self._samples), image.shape, self._budget)


def _unit_picture(image: Any) -> torch.Tensor:
    """float32 (3, H, W) in [0, 1]."""
    return image if isinstance(image, torch.Tensor) else unit_range(torch.from_numpy(image)[None])[0]


def unit_range(images: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) -> float32 (N, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2).contiguous().float().div_(255)
