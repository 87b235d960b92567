"""One batch through one model: attack, classify, probe, check. Where memory runs out the batch is halved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch

from testbed.data.labels import imagenet_wnids, not_understood
from testbed.data.samples import Samples
from testbed.engine.pictures import unit_range
from testbed.engine.preparing import Batch
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name
from testbed.entries.model import StandardNormalization
from testbed.errors import DataError, ModelError
from testbed.metrics.labels import COLUMNS
from testbed.models.classifier import Classifier, LoadedModel
from testbed.models.recordings import Recordings
from testbed.options import RunOptions
from testbed.perturb.seeding import BatchRandom, image_generator
from testbed.store.outputs import Outputs

T = TypeVar("T")
_MOST_FLOAT16 = float(np.finfo(np.float16).max)


class Shown:
    """Brings batches to a device and perturbs them there, once for all models that are shown them."""

    def __init__(
        self, setting: EvalSetting, device: torch.device, options: RunOptions, channels_last: bool = True
    ) -> None:
        self._setting, self._device, self._options = setting, device, options
        self._channels_last = channels_last  # what those who look at the batches want
        self._batched = batched_form(setting, device)

    @property
    def cpu_perturbs(self) -> bool:
        """Whether the setting's perturbation_fn_cpu is the preparer's to call."""
        return self._batched is None

    def __call__(self, batch: Batch) -> Batch:
        images = batch.images.to(self._device, non_blocking=True)
        if images.dtype == torch.uint8:
            # Bytes lie channels last. Where nothing but networks that want it looks at them they stay so.
            perturbed = self._batched is not None or self._setting.perturbation_fn_gpu is not None
            stays = self._channels_last and not perturbed
            images = images.permute(0, 3, 1, 2).float().div_(255) if stays else unit_range(images)
        if self._batched is not None:
            rng = _random(self._setting, batch, self._device, self._options)
            images = self._batched(images, rng, data_roots=self._options.data_roots)
        if not needs_the_model(self._setting):
            images = _perturbed(self._setting, images, batch, self._options, model=None)
        return batch if images is batch.images else Batch(batch.rows, images)


class Forward:
    """One loaded model on one setting: from a batch on the device to outputs."""

    def __init__(self, loaded: LoadedModel, setting: EvalSetting, samples: Samples, options: RunOptions) -> None:
        self.loaded = self._loaded = loaded
        self._setting, self._samples, self._options = setting, samples, options
        self._classifier = Classifier(loaded, setting, samples).eval()
        self._recordings = Recordings(loaded, options)
        chain = [repr(t) for t in setting.transforms_for(loaded.entry) if t is not None]
        self._known_facts = {**loaded.facts(), "transform": " then ".join(chain) or "None"}  # the same for every batch
        # How many columns the logits must have; None where only the metric knows what its labels mean.
        self._columns = samples.num_classes if setting.targets_are == COLUMNS else None
        if setting.class_sublist is not None:
            self._columns = len(setting.class_sublist)

    @property
    def writes(self) -> bool:
        """Whether the images it is shown may be changed: by an in-place first layer, an attack or a probe."""
        copied = isinstance(self._loaded.entry.normalization, StandardNormalization)
        return not copied or needs_the_model(self._setting) or self._setting.probe is not None

    def outputs(self, batch: Batch, note: Callable[[str], None]) -> Iterator[Outputs]:
        """Of a batch, or of its parts where a whole one did not fit into memory before."""
        setting = self._setting

        def halved(size: int) -> None:
            if size < self._loaded.batch_size(setting, self._options):
                self._loaded.ran_out(setting, size)
                note(f"{self._loaded.entry.name} on {setting.name}: out of memory, batch size is now {size}")

        start = 0
        while start < len(batch):
            size = self._loaded.batch_size(setting, self._options)
            yield from within_memory(self._once, batch.part(start, start + size), halved)
            start += size
            if start <= len(batch):
                self._loaded.fitted(setting, self._options, size)

    def _once(self, batch: Batch) -> Outputs:
        try:
            return self._in_one_go(batch)
        except RuntimeError as error:
            if not self._loaded.channels_last or "view size is not compatible" not in str(error):
                raise
            self._loaded.without_channels_last()
            self._known_facts |= self._loaded.facts()
            return self._in_one_go(batch)

    def _in_one_go(self, batch: Batch) -> Outputs:
        device = self._loaded.device
        layout = torch.channels_last if self._loaded.channels_last else torch.contiguous_format
        images = batch.images.contiguous(memory_format=layout)
        targets = torch.from_numpy(batch.rows.targets).to(device)
        # A classify function that draws random numbers gives the same answer at every rerun.
        _seed_torch(self._setting, batch, self._options, device)
        self._classifier.image_ids = [str(image_id) for image_id in batch.rows.ids]
        with torch.no_grad():
            if needs_the_model(self._setting) and not self._attacks_itself:
                images = _perturbed(self._setting, images, batch, self._options, self._classifier)
            logits, recorded = self._recordings.classify(self._classifier, images)
            arrays = {name: _kept(array) for name, array in {"logits": logits, **recorded}.items()}
            arrays |= self._probed(images, targets, logits, batch)
        values = arrays.pop("logits")
        self._check(values, batch)
        return Outputs(batch.rows, values, arrays, self._loaded.entry.name, facts=self._facts(images))

    @property
    def _attacks_itself(self) -> bool:
        """A classify function that is told of the attack carries it out; no other is needed."""
        return bool(self._setting.adversarial_attack) and "adversarial_attack" in self._loaded.entry.classify_arguments

    def _probed(
        self, images: torch.Tensor, targets: torch.Tensor, logits: torch.Tensor, batch: Batch
    ) -> dict[str, np.ndarray]:
        if self._setting.probe is None:
            return {}
        probed = call_by_name(
            self._setting.probe,
            self._setting.arguments["probe"],
            images=images,
            model=self._classifier,
            targets=targets,
            logits=logits,
            image_paths=self._classifier.image_ids,
            rng=_random(self._setting, batch, self._loaded.device, self._options),
        )
        return {name: _kept(torch.as_tensor(array)) for name, array in probed.items()}

    def _check(self, logits: np.ndarray, batch: Batch) -> None:
        model, setting = self._loaded.entry.name, self._setting.name
        bad = ~np.isfinite(logits).all(axis=1)
        if bad.any():
            row = int(bad.argmax())
            image = batch.rows.ids[row]
            if np.isnan(logits[row]).any():
                raise DataError(f"model '{model}' gives NaN for image {image}")
            raise DataError(
                f"model '{model}' gives infinite logits for image {image}: expected finite numbers; a class that it "
                "never predicts can have the image's lowest logit"
            )
        largest = float(np.abs(logits).max(initial=0))
        if self._options.logits_dtype == "float16" and largest > _MOST_FLOAT16:
            raise DataError(
                f"model '{model}' gives logits up to {largest:g}, float16 ends at {_MOST_FLOAT16:g}: leave out "
                "--logits-dtype float16"
            )
        width, highest = logits.shape[1], int(batch.rows.targets.max())
        if self._columns is not None and width != self._columns:
            names = not_understood(list(self._samples.class_folders)) if width == len(imagenet_wnids()) else ""
            raise DataError(
                f"model '{model}' gives {width} classes, but the setting '{setting}' has {self._columns}{names}"
            )
        if self._setting.targets_are == COLUMNS and highest >= width:
            raise DataError(f"model '{model}' gives {width} classes, but an image of '{setting}' has label {highest}")

    def _facts(self, images: torch.Tensor) -> dict[str, Any]:
        """What the provenance says about these outputs."""
        size = self._loaded.batch_size(self._setting, self._options)
        facts = {**self._known_facts, "batch_size": size}
        # Corruptions have other constants for other sizes, so the record says which ones were met.
        describe = getattr(self._setting.perturbation_fn_cpu, "describe", None)
        return facts if describe is None else {**facts, "perturbation": describe(int(min(images.shape[-2:])))}


def _kept(array: torch.Tensor) -> np.ndarray:
    """A copy on the host: what a model returns may lie in the memory of its images, which is used again."""
    return np.asarray(array.to("cpu", copy=True))


def on_device(batches: Iterator[Batch], device: torch.device) -> Iterator[Batch]:
    """The batches on their device. On a GPU each is copied by a stream of its own while the one before is computed."""
    if device.type != "cuda":
        yield from batches
        return
    copying, ready = torch.cuda.Stream(device), None
    for batch in batches:
        with torch.cuda.stream(copying):
            images = batch.images.to(device, non_blocking=True)
        if ready is not None:
            yield ready
        computing = torch.cuda.current_stream(device)
        computing.wait_stream(copying)
        images.record_stream(computing)
        copying.synchronize()  # the memory it was copied from is used again when the next batch is asked for
        ready = Batch(batch.rows, images)
    if ready is not None:
        yield ready


def batched_form(setting: EvalSetting, device: torch.device) -> Callable[..., torch.Tensor] | None:
    """A perturbation_fn_cpu that takes batches on any device is called on a GPU, unless it says that it cannot be."""
    perturbation = setting.perturbation_fn_cpu
    if device.type == "cpu" or getattr(perturbation, "cpu_only", False):
        return None
    return getattr(perturbation, "on_batch", None)


def needs_the_model(setting: EvalSetting) -> bool:
    """Whether perturbation_fn_gpu must be called for each model: an attack, or one that stands for an attack."""
    taken = setting.arguments.get("perturbation_fn_gpu", frozenset())
    return "model" in taken or bool(setting.adversarial_attack)


def _perturbed(
    setting: EvalSetting, images: torch.Tensor, batch: Batch, options: RunOptions, model: Classifier | None
) -> torch.Tensor:
    """What perturbation_fn_gpu makes of the images; the images where there is none."""
    if setting.perturbation_fn_gpu is None:
        return images
    _seed_torch(setting, batch, options, images.device)
    with torch.no_grad():
        changed: torch.Tensor = call_by_name(
            setting.perturbation_fn_gpu,
            setting.arguments["perturbation_fn_gpu"],
            images=images,
            model=model,
            targets=torch.from_numpy(batch.rows.targets).to(images.device),
            rng=_random(setting, batch, images.device, options),
        )
    return changed


def within_memory(run: Callable[[Batch], T], batch: Batch, halved: Callable[[int], None]) -> Iterator[T]:
    """run(batch); where that does not fit into memory, its halves. `halved` is told their size."""
    try:
        result = run(batch)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        if len(batch) == 1:
            raise ModelError(f"out of memory on {batch.images.device} with a single image") from error
    else:
        yield result
        return
    torch.cuda.empty_cache()
    middle = len(batch) // 2
    halved(middle)
    for part in (batch.part(0, middle), batch.part(middle, len(batch))):
        yield from within_memory(run, part, halved)


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # The words of torch's allocator for the CPU, on Linux and elsewhere.
    return any(words in str(error) for words in ("can't allocate memory", "not enough memory"))


def _random(setting: EvalSetting, batch: Batch, device: torch.device, options: RunOptions) -> BatchRandom:
    return BatchRandom(options.seed, setting.noise_key, batch.rows.ids, device)


def _seed_torch(setting: EvalSetting, batch: Batch, options: RunOptions, device: torch.device) -> None:
    """Seed torch's own generators by the batch's first image.

    torch.manual_seed would also queue the seed for every absent kind of accelerator, for ever.
    """
    own = image_generator(options.seed, setting.noise_key, str(batch.rows.ids[0]))
    seed = int(own.integers(2**62))
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
