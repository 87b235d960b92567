"""Bounds around what should not hang and should not take memory: whoever is wrong fails alone, not the machine."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    """An error after so many seconds, also out of an `open` that blocks."""

    def stuck(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {seconds} s")

    before = signal.signal(signal.SIGALRM, stuck)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def no_more_than(gigabytes: float) -> Iterator[None]:
    """A MemoryError for whoever asks for more than so much memory on top of what the process has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + int(gigabytes * 1e9), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
