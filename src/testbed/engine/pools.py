"""The workers of a run: one long-lived process per device, or the same code inside this process.

Only tasks, options and events cross the boundary, all of them plain data. A worker process loads the registry
by itself, so entries may hold lambdas.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from testbed.engine.messages import Event, Task
from testbed.options import RunOptions

_IN_HAND = 2  # the chunk being run and the next one, so that a worker never waits for its orders


@dataclass(frozen=True)
class Died:
    """A worker process is gone; its chunks must be given to another."""

    exit_code: int | None
    tasks: list[Task]


@dataclass
class Member:
    """One worker as its pool sees it."""

    device: str
    label: str
    tasks: deque[Task] = field(default_factory=deque)
    process: Any = None
    connection: Connection | None = None
    last_model: str | None = None

    @property
    def has_room(self) -> bool:
        return len(self.tasks) < _IN_HAND


class Pool(Protocol):
    members: list[Member]

    def give(self, member: Member, task: Task) -> None: ...

    def events(self, timeout_s: float) -> list[tuple[Member, Event | Died]]: ...

    def close(self) -> None: ...


class ProcessPool:
    """One process per device. A process that dies is started again when it is next given work."""

    def __init__(self, devices: Sequence[str], options: RunOptions, threads: int) -> None:
        self._options = options
        self._threads = threads
        self._context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
        self.members = [Member(d, f"{d}#{i}" if devices.count(d) > 1 else d) for i, d in enumerate(devices)]

    def _start(self, member: Member) -> None:
        ours, theirs = self._context.Pipe()
        member.process = self._context.Process(
            target=_serve, args=(theirs, member.device, self._options, self._threads), name=f"testbed {member.label}"
        )
        member.process.start()
        theirs.close()
        member.connection = ours

    def give(self, member: Member, task: Task) -> None:
        if member.connection is None:
            self._start(member)
        member.tasks.append(task)
        try:
            assert member.connection is not None
            member.connection.send(task)
        except OSError:
            pass  # it has died: the next look at its connection says so

    def events(self, timeout_s: float) -> list[tuple[Member, Event | Died]]:
        """Whatever the workers have to tell, waiting for the first word at most `timeout_s`."""
        talking = {m.connection: m for m in self.members if m.connection is not None}
        told: list[tuple[Member, Event | Died]] = []
        for connection in wait(list(talking), timeout_s):
            assert isinstance(connection, Connection)
            member = talking[connection]
            try:
                while connection.poll():
                    told.append((member, connection.recv()))
            except (EOFError, OSError):
                told.append((member, self._bury(member)))
        return told

    def _bury(self, member: Member) -> Died:
        member.process.join()
        tasks = list(member.tasks)
        member.tasks.clear()
        member.connection = None
        return Died(member.process.exitcode, tasks)

    def close(self) -> None:
        # A worker ends by itself when its connection closes; one in the middle of a chunk is ended.
        for member in self.members:
            if member.connection is not None:
                member.connection.close()
        for member in self.members:
            if member.process is not None:
                member.process.join(timeout=0.2)
                if member.process.is_alive():
                    member.process.terminate()
                    member.process.join()


def _serve(connection: Connection, device: str, options: RunOptions, threads: int) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    keep_freed_memory()
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()
    import torch

    from testbed.engine.worker import Worker
    from testbed.entries.registry import load_registry

    if device == "cpu":
        torch.set_num_threads(threads)
    worker = Worker(device, load_registry(options.registry), options, connection.send)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            worker.run(task)
        except OSError:  # the parent hung up while the result was being told
            return


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks instead of handing each back to the system.

    Activations of a batch are allocated and freed layer by layer; without this every layer pays for fresh pages,
    which cost 60 % of the time of EfficientNet-Lite0 at batch 64 on one core.
    """
    mmap_max, trim_threshold = -4, -1  # names of malloc.h
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)
    except (OSError, AttributeError):  # another C library
        pass


def _die_with(sentinel: int) -> None:
    """A worker whose parent was killed must not go on alone."""
    wait([sentinel])
    os._exit(1)


class InlinePool:
    """The same worker in this process: for entries made on the spot, debugging and notebooks."""

    def __init__(self, device: str, options: RunOptions, registry: Any) -> None:
        from testbed.engine.worker import Worker

        self.members = [Member(device, device)]
        self._events: deque[Event] = deque()
        self._worker = Worker(device, registry, options, self._events.append)

    def give(self, member: Member, task: Task) -> None:
        member.tasks.append(task)

    def events(self, timeout_s: float) -> list[tuple[Member, Event | Died]]:
        member = self.members[0]
        if member.tasks:
            self._worker.run(member.tasks[0])
        told: list[tuple[Member, Event | Died]] = [(member, e) for e in self._events]
        self._events.clear()
        return told

    def close(self) -> None:
        pass
