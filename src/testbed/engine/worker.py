"""One device at work: takes chunks, keeps its model loaded, writes what it computed, tells what it did."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from testbed.data.samples import Dataset, Samples
from testbed.data.select import select
from testbed.engine.messages import ChunkDone, ChunkFailed, Event, Note, Progress, Task
from testbed.engine.preparing import Batch, BatchLoader, PerturbedMemory, PreparedImages, unit_range
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name
from testbed.entries.registry import Registry
from testbed.errors import DataError, ModelError, TestbedError
from testbed.models.classifier import Classifier, LoadedModel
from testbed.models.recordings import Recordings
from testbed.options import RunOptions
from testbed.perturb.seeding import BatchRandom, image_generator
from testbed.store.files import write_part


@dataclass
class _Job:
    """Everything a pair needs, made once and kept for all its chunks."""

    model: str
    setting: EvalSetting
    loader: BatchLoader
    classifier: Classifier
    recordings: Recordings
    num_classes: int | None
    batch_size: int
    transform: str  # for the provenance
    perturb_batch: Callable[[torch.Tensor, BatchRandom], torch.Tensor] | None
    checked: bool = field(default=False)
    side: int | None = None  # the shorter one of its pictures


class Worker:
    """Runs chunks on one device. Knows nothing of the database or of other workers."""

    def __init__(self, device: str, registry: Registry, options: RunOptions, tell: Callable[[Event], None]) -> None:
        self.device = device
        self._registry = registry
        self._options = options
        self._tell = tell
        self._threads = ThreadPoolExecutor(max(1, options.workers), thread_name_prefix="images")
        self._loaded: LoadedModel | None = None
        self._job: _Job | None = None
        self._samples: dict[Dataset, Samples] = {}
        self._perturbed = PerturbedMemory(int(options.perturbed_gb * 1e9))

    def run(self, task: Task) -> None:
        """Evaluate one chunk and tell how it ended; an exception never leaves."""
        try:
            self._tell(self._evaluate(task))
        except TestbedError as error:
            scope = "model" if isinstance(error, ModelError) and self._loaded is None else "pair"
            self._tell(ChunkFailed(task, scope, str(error)))
        except Exception as error:
            full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
            text = f"{type(error).__name__}: {error}"
            self._tell(ChunkFailed(task, "run" if full else "pair", text, traceback.format_exc()))

    def _evaluate(self, task: Task) -> ChunkDone:
        started = time.perf_counter()
        loaded = self._model(task.model)
        job = self._prepare(loaded, task)
        outputs: dict[str, list[np.ndarray]] = {}
        rows: list[int] = []
        for batch in job.loader.batches(task.start, task.stop, job.batch_size):
            for piece, arrays in self._classify(job, loaded, batch):
                rows += piece.rows
                for name, array in arrays.items():
                    outputs.setdefault(name, []).append(array)
                self._tell(Progress(len(piece.rows)))
        arrays = {n: _placed(np.concatenate(a), rows, task) for n, a in outputs.items()}
        if not arrays:
            raise DataError(f"no readable image in rows {task.start} to {task.stop}")
        write_part(Path(task.folder), task.start, arrays)
        facts = {**loaded.facts(), "transform": job.transform, "batch_size": job.batch_size, **_perturbation_facts(job)}
        return ChunkDone(task, time.perf_counter() - started, list(job.loader.bad_rows), facts)

    def _model(self, name: str) -> LoadedModel:
        if self._loaded is None or self._loaded.entry.name != name:
            self._loaded = self._job = None  # frees the old one's memory before the new one needs it
            if self.device.startswith("cuda"):
                torch.cuda.empty_cache()
            self._loaded = LoadedModel(self._registry.model(name), self.device, self._options)
        return self._loaded

    def _prepare(self, loaded: LoadedModel, task: Task) -> _Job:
        job = self._job
        if job is not None and (job.model, job.setting.name) == (task.model, task.setting):
            return job
        setting = self._registry.runnable(task.setting)
        samples = self._open(setting)
        if samples.fingerprint != task.fingerprint:
            raise DataError(f"the images of '{setting.name}' have changed since the run began")
        columns = getattr(setting.metrics_fn, "columns_are_classes", False)
        chosen = select(samples, setting.class_sublist, setting.idx_subsample_list, self._options.limit, columns)
        ids = [samples.ids[i] for i in chosen.indices]
        images = PreparedImages(samples, setting, loaded.entry, self._options)
        perturb_batch = batched_form(setting, loaded.device)
        self._job = _Job(
            model=task.model,
            setting=setting,
            loader=BatchLoader(
                *(images, ids, chosen.indices, chosen.targets, setting, self._options, self._threads, self._perturbed),
                perturb=perturb_batch is None,
            ),
            classifier=Classifier(loaded, setting).eval(),
            recordings=Recordings(loaded, self._options),
            num_classes=samples.num_classes if columns else None,
            batch_size=self._options.batch_size or loaded.entry.batch_size_for(setting),
            transform=" then ".join(repr(t) for t in setting.transforms_for(loaded.entry) if t is not None) or "None",
            perturb_batch=perturb_batch,
        )
        return self._job

    def _open(self, setting: EvalSetting) -> Samples:
        dataset = setting.dataset
        assert dataset is not None
        if dataset not in self._samples:
            self._samples[dataset] = dataset.open([Path(r) for r in self._options.data_roots])
        return self._samples[dataset]

    def _classify(self, job: _Job, loaded: LoadedModel, batch: Batch) -> list[tuple[Batch, dict[str, np.ndarray]]]:
        """Outputs of a batch; where it does not fit into memory, of its halves."""
        try:
            return [(batch, self._forward(job, loaded, batch))]
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
            if len(batch.rows) == 1:
                raise ModelError(f"out of memory on {self.device} with a single image") from error
        torch.cuda.empty_cache()
        smaller = max(1, len(batch.rows) // 2)
        if smaller < job.batch_size:
            job.batch_size = smaller
            self._tell(Note(f"{job.model} on {job.setting.name}: out of memory, batch size is now {smaller}"))
        first, second = batch.split()
        return self._classify(job, loaded, first) + self._classify(job, loaded, second)

    def _forward(self, job: _Job, loaded: LoadedModel, batch: Batch) -> dict[str, np.ndarray]:
        setting, device = job.setting, loaded.device
        images = batch.images.to(device, non_blocking=True)
        if images.dtype == torch.uint8:
            images = unit_range(images)
        job.side = min(images.shape[-2:])
        if job.perturb_batch is not None:
            images = job.perturb_batch(images, self._random(setting, batch, device))
        if loaded.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        targets = batch.targets.to(device)
        # A classify function that draws random numbers gives the same answer at every rerun.
        _seed_torch(int(image_generator(self._options.seed, setting.noise_key, batch.ids[0]).integers(2**62)), device)
        job.classifier.image_ids = batch.ids
        with torch.no_grad():
            attacks_itself = "adversarial_attack" in loaded.entry.classify_arguments
            if setting.perturbation_fn_gpu is not None and not (setting.adversarial_attack and attacks_itself):
                images = call_by_name(
                    setting.perturbation_fn_gpu,
                    setting.arguments["perturbation_fn_gpu"],
                    images=images,
                    model=job.classifier,
                    targets=targets,
                    rng=self._random(setting, batch, device),
                )
            logits, recorded = job.recordings.classify(job.classifier, images)
            outputs = {"logits": logits.cpu().numpy(), **{n: a.cpu().numpy() for n, a in recorded.items()}}
            if setting.probe is not None:
                probed = call_by_name(
                    setting.probe,
                    setting.arguments["probe"],
                    images=images,
                    model=job.classifier,
                    targets=targets,
                    logits=logits,
                    image_paths=batch.ids,
                    rng=self._random(setting, batch, device),
                )
                outputs.update({name: np.asarray(torch.as_tensor(a).cpu()) for name, a in probed.items()})
        _check(job, outputs["logits"], batch)
        return outputs

    def _random(self, setting: EvalSetting, batch: Batch, device: torch.device) -> BatchRandom:
        return BatchRandom(self._options.seed, setting.noise_key, batch.ids, device)


def batched_form(setting: EvalSetting, device: torch.device) -> Callable[..., torch.Tensor] | None:
    """What takes the place of the setting's perturbation_fn_cpu on a GPU: its `on_batch`, if it has one.

    It gets the images of a batch and their generators, and gives the same pictures but for rounding.
    """
    return getattr(setting.perturbation_fn_cpu, "on_batch", None) if device.type == "cuda" else None


def _perturbation_facts(job: _Job) -> dict[str, str]:
    """What was done to the pictures, where the function tells it: corruptions have other constants for other sizes."""
    describe = getattr(job.setting.perturbation_fn_cpu, "describe", None)
    return {} if describe is None or job.side is None else {"perturbation": describe(job.side)}


def _seed_torch(seed: int, device: torch.device) -> None:
    """torch.manual_seed would also queue the seed for every absent kind of accelerator, for ever."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _check(job: _Job, logits: np.ndarray, batch: Batch) -> None:
    bad = np.isnan(logits).any(axis=1)
    if bad.any():
        raise DataError(f"model '{job.model}' gives NaN for image {batch.ids[int(bad.argmax())]}")
    if job.checked:
        return
    width, sublist = logits.shape[1], job.setting.class_sublist
    expected = len(sublist) if sublist is not None else job.num_classes
    if expected is not None and width != expected:
        raise DataError(
            f"model '{job.model}' gives {width} classes, but the setting '{job.setting.name}' has {expected}"
        )
    highest = int(batch.targets.max())
    if getattr(job.setting.metrics_fn, "columns_are_classes", False) and highest >= width:
        raise DataError(
            f"model '{job.model}' gives {width} classes, but an image of '{job.setting.name}' has label {highest}"
        )
    # Later batches may hold higher labels, so only settings with a known number of classes are done here.
    job.checked = expected is not None


def _placed(array: np.ndarray, rows: list[int], task: Task) -> np.ndarray:
    """The outputs in row order, NaN (or 0 for whole numbers) where an image could not be read."""
    if len(rows) == task.stop - task.start:
        return array
    empty = np.nan if np.issubdtype(array.dtype, np.floating) else 0
    placed = np.full((task.stop - task.start, *array.shape[1:]), empty, dtype=array.dtype)
    placed[np.asarray(rows) - task.start] = array
    return placed


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "not enough memory" in str(error)
