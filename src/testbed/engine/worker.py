"""One device at work: takes chunks, keeps its model loaded, writes what it computed, tells what it did."""

from __future__ import annotations

import errno
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from testbed.data.rows import Rows
from testbed.engine.messages import ChunkDone, ChunkFailed, Event, Note, Progress, Task
from testbed.engine.predict import predict
from testbed.engine.preparing import Preparer
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import DataError, ModelError, TestbedError
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions
from testbed.store.files import write_part
from testbed.store.outputs import joined


class Worker:
    """Runs chunks on one device. Knows nothing of the database or of other workers."""

    def __init__(self, device: str, registry: Registry, options: RunOptions, tell: Callable[[Event], None]) -> None:
        self.device = device
        self._registry = registry
        self._options = options
        self._tell = tell
        self._preparer = Preparer(options)
        self._loaded: LoadedModel | None = None
        self._setting: tuple[EvalSetting, Rows] | None = None  # the last task's, with its rows

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
        setting, rows = self._rows(task)
        chunk = rows.take(slice(task.start, task.stop))
        parts = []
        for outputs in predict([loaded], setting, chunk, self._options, self._preparer, self._note):
            parts.append(outputs)
            self._tell(Progress(len(outputs)))
        if not parts:
            raise DataError(f"no readable image in rows {task.start} to {task.stop}")
        outputs = joined(parts)
        arrays = {"logits": outputs.logits, **outputs.extras}
        write_part(Path(task.folder), task.start, {n: _placed(a, outputs.rows, chunk) for n, a in arrays.items()})
        bad_rows = np.setdiff1d(chunk.numbers, outputs.rows.numbers).tolist()
        return ChunkDone(task, time.perf_counter() - started, bad_rows, dict(outputs.facts))

    def _model(self, name: str) -> LoadedModel:
        if self._loaded is None or self._loaded.entry.name != name:
            self._loaded = None  # frees the old one's memory before the new one needs it
            if self.device.startswith("cuda"):
                torch.cuda.empty_cache()
            self._loaded = LoadedModel(self._registry.model(name), self.device, self._options)
        return self._loaded

    def _rows(self, task: Task) -> tuple[EvalSetting, Rows]:
        """The task's setting in the form that can be run, and all its rows."""
        if self._setting is None or self._setting[0].name != task.setting:
            setting = self._registry.runnable(task.setting)
            samples = self._preparer.samples(setting)
            if samples.fingerprint != task.fingerprint:
                raise DataError(f"the images of '{setting.name}' have changed since the run began")
            self._setting = setting, setting.rows(samples, self._options.limit)
        return self._setting

    def _note(self, text: str) -> None:
        self._tell(Note(text))


def _placed(array: np.ndarray, rows: Rows, chunk: Rows) -> np.ndarray:
    """The outputs in the chunk's rows, NaN (or 0 for whole numbers) where an image could not be read."""
    if len(rows) == len(chunk):
        return array
    empty = np.nan if np.issubdtype(array.dtype, np.floating) else 0
    placed = np.full((len(chunk), *array.shape[1:]), empty, dtype=array.dtype)
    placed[rows.numbers - chunk.numbers[0]] = array
    return placed
