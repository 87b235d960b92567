"""Runs in processes of their own, for tests that stop, interrupt and kill them."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import tiny

LIMIT_S = 120  # what a wait may take on a busy machine before the test says that it is stuck


@contextmanager
def running(folder: Path, models: str, settings: str, *more: str, marker: Path | None = None) -> Iterator:
    """eval.py at work in a session of its own, with its results in `folder`; all of it is gone at the end."""
    arguments = ["--models", *models.split(), "--eval-settings", *settings.split(), "--gpus", "cpu", "--threads", "1"]
    arguments += ["--chunk-size", "16", *(() if "--no-db" in more else ("--db", str(folder / "results.db"))), *more]
    with started([sys.executable, str(tiny.ROOT / "eval.py"), *arguments], marker) as process:
        yield process


@contextmanager
def started(command: list[str], marker: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TESTBED_REGISTRY": str(tiny.REGISTRY), "TINY_MARKER": str(marker)}
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # the group that this process leads, and nobody else
        except ProcessLookupError:
            pass
        process.communicate()


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def put_to_sleep(process: subprocess.Popen[str], folder: Path) -> None:
    """Stop a run between two writes: one stopped in the middle of a write keeps SQLite's lock while it sleeps."""

    def sleeps() -> bool:
        stop(process)
        if not locked(folder / "results.db"):  # nor will it be by this run, of which no thread goes on
            return True
        process.send_signal(signal.SIGCONT)
        return False

    wait_until(sleeps, process)


def stop(process: subprocess.Popen[str]) -> None:
    """Stop a process, not those below it, and wait until all its threads stand still."""
    process.send_signal(signal.SIGSTOP)
    threads = Path(f"/proc/{process.pid}/task")
    wait_until(lambda: {state(int(thread.name)) for thread in threads.iterdir()} == {"T"}, process)


def locked(database: Path) -> bool:
    """Whether somebody holds the lock for writing; asking leaves none behind."""
    # By its URI, so that no database is made where there is none.
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, timeout=0)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:  # the lower byte: without the kind of busy
                raise
            return True
        connection.rollback()
        return False


class TimeOfAHang:
    """A clock that stands still until the marker exists, and again after some seconds.

    What is slow on a busy machine before or after is then never taken for a hang.
    """

    def __init__(self, marker: Path, seconds: float) -> None:
        self._marker, self._seconds = marker, seconds
        self._last, self._counted = time.monotonic(), 0.0

    def __call__(self) -> float:
        now = time.monotonic()
        if self._marker.exists():
            self._counted = min(self._counted + now - self._last, self._seconds)
        self._last = now
        return self._counted


def lines_until(words: str, process: subprocess.Popen[str]) -> str:
    """What the run writes to standard error up to the line that has these words."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError(f"it ended without '{words}': {''.join(lines)}")


def told_at_end(process: subprocess.Popen[str]) -> str:
    """What the run wrote to standard error, once it has ended and nobody of it is left to write there."""
    return process.communicate(timeout=LIMIT_S)[1]


def children(process: subprocess.Popen[str]) -> list[int]:
    """All processes of a run, whoever of them started them."""
    return descendants(process.pid)


def descendants(pid: int) -> list[int]:
    try:
        below = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has just ended
        return []
    return below + [found for child in below for found in descendants(child)]


def state(pid: int) -> str:
    """R, S, T (stopped), Z (dead, not yet taken note of), or nothing for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def parts(folder: Path, setting: str = "*") -> list[Path]:
    """The files of finished chunks."""
    return sorted(Path(folder).glob(f"logits/{setting}/*.parts/*.npz"))
