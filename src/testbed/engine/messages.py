"""What a run and its workers say to each other: plain data that may cross a process boundary. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """A chunk of one pair: rows start..stop, whose outputs go into `folder`."""

    evaluation_id: int
    model: str
    setting: str
    start: int
    stop: int
    folder: str
    fingerprint: str


@dataclass(frozen=True)
class ChunkDone:
    task: Task
    seconds: float
    bad_rows: list[int]
    facts: dict[str, Any]


@dataclass(frozen=True)
class ChunkFailed:
    """scope: "pair" (this pair), "model" (all pairs of the model) or "run" (nothing can go on)."""

    task: Task
    scope: str
    error: str
    details: str = ""


@dataclass(frozen=True)
class Progress:
    images: int


@dataclass(frozen=True)
class Note:
    """A line for the user."""

    text: str


Event = ChunkDone | ChunkFailed | Progress | Note
