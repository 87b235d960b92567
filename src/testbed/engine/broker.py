"""The broker of a machine's preparing processes: it forks them, passes jobs on to them, and looks after them.

It loads the registry once and forks the others: that takes milliseconds, and entries may hold lambdas. Workers send it
jobs, each a few pictures of a batch and where in shared memory they go. It gives them to whoever is free, devices in
turn.

The shared memory has no name (memfd, or a file that is unlinked at once), so that nothing is left of it after a kill.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import pickle
import selectors
import signal
import tempfile
import traceback
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import TYPE_CHECKING, Any

from testbed.engine.interrupts import never_interrupted
from testbed.engine.preparing_messages import (
    CANCEL,
    Dropped,
    Job,
    Prepared,
    Refused,
    Told,
    Welcome,
    array_in,
    jobs_in,
    read_job,
)
from testbed.engine.processes import die_with_parent, keep_freed_memory
from testbed.errors import TestbedError
from testbed.options import RunOptions

if TYPE_CHECKING:
    from testbed.entries.registry import Registry

ARENA_BYTES = 8 << 30  # of address space for each device; memory is taken where pictures are put
_IN_HAND = 2  # the job being done and the next one
_TRIES = 3  # how often a job may take its process down with it


def serve(control: Connection, options: RunOptions, processes: int, devices: int) -> None:
    """The life of the broker process."""
    never_interrupted()
    die_with_parent()
    keep_freed_memory()
    import torch

    import testbed.engine.preparing  # noqa: F401  (so that no child has to import it again)
    from testbed.entries.registry import load_registry

    torch.set_num_threads(1)
    _Broker(control, load_registry(options.registry), options, processes, devices).run()


@dataclass
class _Client:
    """The worker of one device."""

    device: int
    connection: Connection
    waiting: deque[bytes] = field(default_factory=deque)  # jobs


@dataclass
class _Child:
    """A preparing process and the jobs it has in hand, the one it is at first."""

    process: Any
    connection: Connection
    jobs: deque[tuple[_Client, bytes]] = field(default_factory=deque)


class _Broker:
    """Passes jobs on, and looks after the processes that do them. It has one thread, so it may fork at any time."""

    def __init__(self, control: Connection, registry: Registry, options: RunOptions, processes: int, n: int) -> None:
        self._control, self._registry, self._options = control, registry, options
        self._fork = multiprocessing.get_context("fork")
        self._files = [_unnamed_memory() for _ in range(n)]
        self._arenas = [mmap.mmap(file, ARENA_BYTES) for file in self._files]
        self._talking = selectors.PollSelector()
        self._talking.register(control, selectors.EVENT_READ)
        self._clients: list[_Client] = []  # the one whose turn it is first
        self._deaths: dict[tuple[int, int], int] = {}  # by device and job
        self._children: list[_Child] = []
        for _ in range(processes):
            self._children.append(self._new_child())

    def run(self) -> None:
        while True:
            for key, _ in self._talking.select():
                who = key.data
                if who is None:
                    if not self._new_client():
                        return
                elif isinstance(who, _Client):
                    self._hear_client(who)
                else:
                    self._hear_child(who)
            self._hand_out()

    def _new_client(self) -> bool:
        """Whether the parent is still there."""
        try:
            device = self._control.recv()
            connection = Connection(recv_handle(self._control))
        except (EOFError, OSError):
            return False
        for old in [c for c in self._clients if c.device == device]:
            self._lose_client(old)
        client = _Client(device, connection)
        try:
            connection.send(Welcome(device, len(self._children), ARENA_BYTES))
            send_handle(connection, self._files[device], None)
        except OSError:
            return True
        self._clients.append(client)
        self._talking.register(connection, selectors.EVENT_READ, client)
        return True

    def _hear_client(self, client: _Client) -> None:
        try:
            message = client.connection.recv_bytes()
            if message == CANCEL:
                dropped = Dropped([read_job(job).number for job in client.waiting])
                client.waiting.clear()
                client.connection.send(dropped)
            else:
                client.waiting += jobs_in(message)
        except (EOFError, OSError):
            self._lose_client(client)

    def _lose_client(self, client: _Client) -> None:
        """The worker is gone. Nobody may write into its memory when another takes its place."""
        if client not in self._clients:
            return
        self._clients.remove(client)
        self._talking.unregister(client.connection)
        client.connection.close()
        for child in [c for c in self._children if any(who is client for who, _ in c.jobs)]:
            self._replace(child, guilty=False)

    def _hear_child(self, child: _Child) -> None:
        if child not in self._children:  # replaced in this turn
            return
        try:
            answer = child.connection.recv_bytes()
        except (EOFError, OSError):
            self._replace(child, guilty=True)
            return
        client, job = child.jobs.popleft()
        if self._deaths:
            self._deaths.pop((client.device, read_job(job).number), None)
        self._pass_on(client, answer)

    def _tell(self, client: _Client, message: object) -> None:
        self._pass_on(client, pickle.dumps(message))

    def _pass_on(self, client: _Client, message: bytes) -> None:
        try:
            if client in self._clients:
                client.connection.send_bytes(message)
        except OSError:
            self._lose_client(client)

    def _replace(self, child: _Child, guilty: bool) -> None:
        """End a process and start another. What it had in hand goes back to the front, unless it is to blame."""
        child.process.kill()
        child.process.join()
        self._talking.unregister(child.connection)
        child.connection.close()
        self._children[self._children.index(child)] = self._new_child()
        for place, (client, message) in reversed(list(enumerate(child.jobs))):
            if client not in self._clients:
                continue
            if guilty and place == 0:
                job = read_job(message)
                key = (client.device, job.number)
                self._deaths[key] = deaths = self._deaths.get(key, 0) + 1
                how = _end_of(child.process.exitcode)
                self._tell(client, Told(f"a preparing process died ({how}) at {job}, starting another"))
                if deaths >= _TRIES:
                    error = f"preparing {job} killed its process {deaths} times ({how})"
                    self._tell(client, Refused(job.number, "DataError", error))
                    continue
            client.waiting.appendleft(message)

    def _hand_out(self) -> None:
        """One job at a time to whoever has the fewest, devices in turn."""
        while True:
            client = next((c for c in self._clients if c.waiting), None)
            child = min(self._children, key=lambda c: len(c.jobs))
            if client is None or len(child.jobs) >= _IN_HAND:
                return
            job = client.waiting.popleft()
            self._clients.remove(client)
            self._clients.append(client)
            child.jobs.append((client, job))
            try:
                child.connection.send_bytes(job)
            except OSError:
                self._replace(child, guilty=True)

    def _new_child(self) -> _Child:
        ours, theirs = self._fork.Pipe()
        # Whoever else holds an end keeps it open after its owner is gone.
        others = [self._control, ours, *(c.connection for c in self._clients), *(c.connection for c in self._children)]
        arguments = (theirs, others, self._arenas, self._registry, self._options)
        process = self._fork.Process(target=_prepare, args=arguments, daemon=True)
        process.start()
        theirs.close()
        child = _Child(process, ours)
        self._talking.register(ours, selectors.EVENT_READ, child)
        return child


def _unnamed_memory() -> int:
    """The descriptor of shared memory that no name leads to."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("testbed-pictures")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, ARENA_BYTES)
    return descriptor


def _end_of(exit_code: int | None) -> str:
    try:
        return signal.Signals(-(exit_code or 0)).name
    except ValueError:
        return f"exit code {exit_code}"


# ---- a preparing process ----------------------------------------------------------------------------------------


def _prepare(
    connection: Connection, others: list[Connection], arenas: list[mmap.mmap], registry: Registry, options: RunOptions
) -> None:
    """The life of a preparing process."""
    die_with_parent()
    for other in others:
        other.close()
    from testbed.engine.preparing import Opened

    opened = Opened(options)
    while True:
        try:
            job = read_job(connection.recv_bytes())
            connection.send_bytes(pickle.dumps(_done(job, arenas[job.device], opened, registry)))
        except (EOFError, OSError):  # the broker is gone
            return


def _done(job: Job, arena: mmap.mmap, opened: Any, registry: Registry) -> Prepared | Refused:
    import numpy as np

    try:
        pictures = opened.pictures(registry.runnable(job.setting), registry.model(job.model), job.perturb)
        if job.form is None:
            form = pictures.form(job.indices)
            # Where no picture can be read, their files still count for the digest of contents.
            filled = pictures.fill(np.empty((len(job.indices), 0)), job.indices) if form is None else None
            return Prepared(job.number, form, filled)
        out = array_in(arena, job.offset, len(job.indices), job.form)
        return Prepared(job.number, job.form, pictures.fill(out, job.indices))
    except TestbedError as error:
        return Refused(job.number, type(error).__name__, str(error))
    except (Exception, SystemExit) as error:  # a function of a registry file: whatever it raises
        return Refused(job.number, "", f"{type(error).__name__}: {error}", traceback.format_exc())
