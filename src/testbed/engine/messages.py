"""What a run and its workers say to each other: plain data that may cross a process boundary. Imports no torch."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from typing import Any

from testbed.errors import TestbedError, disk_is_full, in_words


@dataclass(frozen=True)
class Share:
    """What one pair has in a task: its model, and the folder for its outputs."""

    evaluation_id: int
    model: str
    folder: str


@dataclass(frozen=True)
class Task:
    """The unit of work: rows start..stop of a setting, prepared once for several models.

    The unit of record is smaller: the rows of each share are stored, and fail, by themselves.
    """

    bundle: int  # of pairs that are prepared together, as the dispatcher numbers them
    setting: str
    start: int
    stop: int
    fingerprint: str
    shares: tuple[Share, ...]

    @property
    def images(self) -> str:
        models = self.shares[0].model if len(self.shares) == 1 else f"{len(self.shares)} models"
        return f"images {self.start} to {self.stop} of {models} on {self.setting}"

    def of(self, *shares: Share) -> Task:
        return replace(self, shares=shares)


@dataclass(frozen=True)
class ChunkDone:
    """The rows of one share are stored."""

    task: Task
    share: Share
    seconds: float
    bad_rows: list[int]
    facts: dict[str, Any]
    content: str | None = None  # digest of the images' bytes


@dataclass(frozen=True)
class ChunkFailed:
    """One share has failed.

    scope: "pair" (this pair), "model" (all pairs of the model) or "run" (nothing can go on).
    """

    task: Task
    share: Share
    scope: str
    error: str
    details: str = ""

    @classmethod
    def of(cls, task: Task, share: Share, error: BaseException, scope: str = "pair") -> ChunkFailed:
        if isinstance(error, TestbedError):
            return cls(task, share, scope, str(error))
        trace = "".join(traceback.format_exception(error))
        return cls(task, share, "run" if disk_is_full(error) else scope, in_words(error), trace)


@dataclass(frozen=True)
class TaskDone:
    """Everything about a task has been told."""

    task: Task


@dataclass(frozen=True)
class Progress:
    images: int


@dataclass(frozen=True)
class At:
    """What a worker has begun: loading a model may take longer than a chunk of images."""

    what: str
    loading: bool = False
    models: int = 1  # that take part: a limit of time is for each of them


@dataclass(frozen=True)
class Note:
    """A line for the user."""

    text: str


Event = ChunkDone | ChunkFailed | TaskDone | Progress | At | Note
