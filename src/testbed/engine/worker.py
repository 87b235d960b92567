"""One device at work: takes chunks, keeps its models loaded, writes what it computed, tells what it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from testbed.data.content import as_text
from testbed.data.rows import Rows
from testbed.engine.loaded import LoadedModels
from testbed.engine.messages import At, ChunkDone, ChunkFailed, Event, Note, Progress, Share, Task, TaskDone
from testbed.engine.predict import predict
from testbed.engine.preparing import LocalPreparer, Preparer, Tally
from testbed.engine.shared_preparing import PreparingFailed
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import DataError, ModelError
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions
from testbed.store.files import write_part
from testbed.store.outputs import Outputs, joined

_TELL_EVERY_S = 0.1  # how many images are done


class Worker:
    """Runs chunks on one device. Knows nothing of the database or of other workers."""

    def __init__(
        self,
        device: str,
        registry: Registry,
        options: RunOptions,
        tell: Callable[[Event], None],
        preparer: Preparer | None = None,
        workers: int = 1,  # that share the device's memory
        write: Callable[[Path, int, Mapping[str, np.ndarray]], None] | None = None,  # None: into the share's folder
    ) -> None:
        self.device = device
        self._registry, self._options, self._tell, self._write = registry, options, tell, write or write_part
        self._preparer = preparer or LocalPreparer(options)
        self._models = LoadedModels(device, registry, options, workers)
        self._setting: tuple[EvalSetting, Rows] | None = None  # the last task's, with its rows

    def run(self, task: Task) -> None:
        """Evaluate one chunk for all its models and tell how each ended; an exception never leaves."""
        shares = {share.model: share for share in task.shares}
        failed = _Failures(task, shares, self._tell)
        loading = lambda name: self._tell(At(f"loading model {name}", loading=True))  # noqa: E731
        for models in self._models.in_turns(list(shares), loading, failed.loading):
            try:
                self._evaluate(task, models, failed)
            except (Exception, SystemExit) as error:  # a network of somebody else may call sys.exit
                for model in models:
                    failed(model.entry.name, error)
        self._tell(TaskDone(task))

    def look_up(self, task: Task) -> None:
        """Find the entries and the images of a task; raises an error that a user can mend where it cannot."""
        for share in task.shares:
            self._registry.model(share.model)
        self._rows(task)

    def _evaluate(self, task: Task, models: Sequence[LoadedModel], failed: _Failures) -> None:
        """The chunk of every model that does not fail, written and told."""
        self._tell(At(task.images, models=len(models)))
        setting, rows = self._rows(task)
        chunk = rows.take(slice(task.start, task.stop))
        parts: dict[str, list[Outputs]] = {model.entry.name: [] for model in models}
        seconds = dict.fromkeys(parts, 0.0)
        tally, last = Tally(), time.perf_counter()
        waited, progress = 0.0, _Progress(self._tell)
        for outputs in predict(
            models,
            setting,
            chunk,
            self._options,
            self._preparer,
            note=lambda text: self._tell(Note(text)),
            tally=tally,
            left=lambda model, error: failed(model.entry.name, error),
        ):
            parts[outputs.model].append(outputs)
            progress.add(len(outputs))
            now = time.perf_counter()
            # All models have waited for the pictures; each has its own forward pass.
            seconds[outputs.model] += now - last - (tally.waited_s - waited)
            last, waited = now, tally.waited_s
        progress.tell()
        content = None if tally.content is None else as_text(tally.content)
        for name in [name for name in parts if name in failed.left]:
            if not parts[name]:
                raise DataError(f"no readable image in rows {task.start} to {task.stop}")
            shared_s = tally.waited_s / len(parts)
            self._store(task, failed.left[name], chunk, joined(parts[name]), seconds[name] + shared_s, content)
            del failed.left[name]

    def _store(
        self, task: Task, share: Share, chunk: Rows, outputs: Outputs, seconds: float, content: str | None
    ) -> None:
        arrays = {"logits": outputs.logits, **outputs.extras}
        self._write(Path(share.folder), task.start, {n: _placed(a, outputs.rows, chunk) for n, a in arrays.items()})
        bad_rows = np.setdiff1d(chunk.numbers, outputs.rows.numbers).tolist()
        self._tell(ChunkDone(task, share, seconds, bad_rows, dict(outputs.facts), content))

    def _rows(self, task: Task) -> tuple[EvalSetting, Rows]:
        """The task's setting in the form that can be run, and all its rows."""
        if self._setting is None or self._setting[0].name != task.setting:
            setting = self._registry.runnable(task.setting)
            samples = self._preparer.samples(setting)
            if samples.fingerprint != task.fingerprint:
                raise DataError(f"the images of '{setting.name}' have changed since the run began")
            self._setting = setting, setting.rows(samples, self._options.limit)
        return self._setting

    def close(self) -> None:
        """Images that were to be loaded for a chunk that was interrupted are not waited for."""
        self._preparer.close()


class _Progress:
    """Tells how many images are done, at most ten times a second, since each word wakes the parent of the run."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell
        self._images, self._told_at = 0, 0.0

    def add(self, images: int) -> None:
        self._images += images
        if time.perf_counter() - self._told_at >= _TELL_EVERY_S:
            self.tell()

    def tell(self) -> None:
        if self._images:
            self._tell(Progress(self._images))
        self._images, self._told_at = 0, time.perf_counter()


class _Failures:
    """Tells of shares that have failed, each once; the others are `left`."""

    def __init__(self, task: Task, shares: dict[str, Share], tell: Callable[[Event], None]) -> None:
        self._task, self._tell = task, tell
        self.left = dict(shares)

    def loading(self, model: str, error: BaseException) -> None:
        """A model that cannot be loaded fails all its pairs."""
        self(model, error, "model" if isinstance(error, ModelError) else "pair")

    def __call__(self, model: str, error: BaseException, scope: str = "pair") -> None:
        share = self.left.pop(model, None)
        if share is None:
            return
        if isinstance(error, PreparingFailed):
            self._tell(ChunkFailed(self._task, share, scope, str(error), error.details))
        else:
            self._tell(ChunkFailed.of(self._task, share, error, scope))


def _placed(array: np.ndarray, rows: Rows, chunk: Rows) -> np.ndarray:
    """The outputs in the chunk's rows, NaN (or 0 for whole numbers) where an image could not be read."""
    if len(rows) == len(chunk):
        return array
    empty = np.nan if np.issubdtype(array.dtype, np.floating) else 0
    placed = np.full((len(chunk), *array.shape[1:]), empty, dtype=array.dtype)
    placed[rows.numbers - chunk.numbers[0]] = array
    return placed
