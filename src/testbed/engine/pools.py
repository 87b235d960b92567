"""The workers of a run: one long-lived process per device, or the same code inside this process.

Only tasks, options and events cross the boundary, all of them plain data. A worker process loads the registry
by itself, so entries may hold lambdas.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from testbed.engine.interrupts import blocked_for_children, held_back, never_interrupted
from testbed.engine.messages import Event, Task
from testbed.engine.preparing_pool import PreparingPool, preparing_processes
from testbed.engine.processes import keep_freed_memory, new_process, run_context
from testbed.options import RunOptions

_PREPARING_LOST = 3  # exit code of a worker whose preparing processes are gone
_IN_HAND = 2  # the chunk being run and the next one, so that a worker never waits for its orders
_LEAVE_S = 0.2  # for a worker to end by itself when its connection closes
_BURY_S = 5.0  # the same for one that has closed it
_GRACE_S = 2.0  # between asking a process to end and killing it


@dataclass(frozen=True)
class Died:
    """A worker is gone; its chunks must be given to another."""

    exit_code: int | None
    tasks: list[Task]
    why: str = ""  # this run has ended it
    scope: str = "pair"  # as for a chunk that failed: "model" where it was loading one
    blamed: bool = True  # whether the chunk it was at may be the cause; of a lost machine it is not
    then: str = "starting another"


@dataclass
class Member:
    """One worker as its pool sees it."""

    device: str
    label: str
    tasks: deque[Task] = field(default_factory=deque)
    process: Any = None
    connection: Connection | None = None
    models: frozenset[str] = frozenset()  # of its last task: what it has loaded
    ended: tuple[str, str] = ("", "pair")  # why this run has ended the process, and the scope of that
    far: bool = False  # on another machine, where this one's system knows nothing of it

    @property
    def pid(self) -> int | None:
        """Of a worker in a process of its own."""
        return self.process.pid if self.process is not None else None

    @property
    def has_room(self) -> bool:
        return len(self.tasks) < _IN_HAND


Told = tuple[Member, Event | Died]


class Pool(Protocol):
    """Where tasks are run. A pool over several machines has members that come and go, or none for a while."""

    members: list[Member]  # changes while events are taken, and at no other time; read it anew in every turn

    def give(self, member: Member, task: Task) -> None: ...

    def events(self, timeout_s: float) -> Iterator[Told]:
        """Whatever the workers have to tell, waiting for the first word at most `timeout_s`.

        `Died` is the last word of a worker. Of one that has left the members for good nothing more is heard.
        """

    def told(self) -> Iterator[Told]: ...

    def end(self, member: Member, why: str, scope: str) -> None: ...

    def close(self) -> None: ...


class ProcessPool:
    """One process per device. A process that dies is started again when it is next given work."""

    def __init__(self, devices: Sequence[str], options: RunOptions, threads: int) -> None:
        self._options = options
        self._threads = threads
        processes = preparing_processes(options.workers, devices)
        self._preparing = PreparingPool(options, processes, len(devices)) if processes else None
        self._context = run_context()
        self._told: deque[Told] = deque()
        self.members = [Member(d, f"{d}#{i}" if devices.count(d) > 1 else d) for i, d in enumerate(devices)]

    def _start(self, member: Member) -> None:
        ours, theirs = self._context.Pipe()
        pictures = self._preparing.connection(self.members.index(member)) if self._preparing else None
        sharing = sum(other.device == member.device for other in self.members)
        arguments = (theirs, pictures, member.device, self._options, self._threads, sharing)
        process = new_process(self._context, f"testbed {member.label}", _serve, *arguments)
        with blocked_for_children():
            process.start()
            member.process = process
        theirs.close()
        if pictures is not None:
            pictures.close()
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

    def events(self, timeout_s: float) -> Iterator[Told]:
        """Whatever the workers have to tell, waiting for the first word at most `timeout_s`.

        What an interrupted caller has not taken stays, and comes with the next call.
        """
        talking = {m.connection: m for m in self.members if m.connection is not None}
        for connection in wait(list(talking), 0.0 if self._told else timeout_s):
            assert isinstance(connection, Connection)
            self._hear(talking[connection], connection)
        while self._told:
            yield self._told.popleft()

    def told(self) -> Iterator[Told]:
        """What the workers have told already."""
        return self.events(0.0)

    def _hear(self, member: Member, connection: Connection) -> None:
        before = len(self._told)
        try:
            with held_back():  # of a message that is read in half the rest would be taken for the next one
                while connection.poll():
                    self._told.append((member, connection.recv()))
        except (EOFError, OSError):
            # What it did before comes first, and takes tasks off its list: its death is told in the next turn.
            if len(self._told) == before:
                self._told.append((member, self._bury(member)))

    def _bury(self, member: Member) -> Died:
        end_processes([member.process], _BURY_S)  # it has hung up, which does not mean that it has ended
        tasks, (why, scope) = list(member.tasks), member.ended
        member.tasks.clear()
        member.connection = None
        member.ended = ("", "pair")
        return Died(member.process.exitcode, tasks, why, scope)

    def end(self, member: Member, why: str, scope: str) -> None:
        """End a worker that hangs. What it had told before comes with the next events, and then its death."""
        member.ended = (why, scope)
        end_processes([member.process], leave_s=0.0)

    def close(self) -> None:
        # A worker ends by itself when its connection closes; one in the middle of a chunk is ended.
        for member in self.members:
            if member.connection is not None:
                member.connection.close()
        end_processes([member.process for member in self.members if member.process is not None])
        if self._preparing is not None:
            self._preparing.close(end_processes)


def end_processes(processes: Sequence[Any], leave_s: float = _LEAVE_S) -> None:
    """Let processes leave by themselves, ask those that do not to end, and kill those that do not listen.

    A process that is stopped hears no question. A second Ctrl-C skips the waiting, not the killing.
    """
    try:
        if not _have_ended(processes, leave_s):
            for process in processes:
                process.terminate()
            _have_ended(processes, _GRACE_S)
    finally:
        with held_back():
            for process in processes:
                process.kill()
            _have_ended(processes, _GRACE_S)


def _have_ended(processes: Sequence[Any], within_s: float) -> bool:
    """Whether all processes have ended by then. It takes no longer, even for one that the system cannot kill."""
    deadline = time.monotonic() + within_s
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    return not any(process.is_alive() for process in processes)


def _serve(
    connection: Connection, pictures: Connection | None, device: str, options: RunOptions, threads: int, sharing: int
) -> None:
    """The life of a worker process. `sharing`: how many workers share the memory of its device."""
    never_interrupted()
    keep_freed_memory()
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()
    import torch

    from testbed.engine.messages import Note
    from testbed.engine.shared_preparing import PreparingLost, SharedPreparer
    from testbed.engine.worker import Worker
    from testbed.entries.registry import load_registry

    if device == "cpu":
        torch.set_num_threads(threads)
    registry = load_registry(options.registry)
    try:
        preparer = None
        if pictures is not None:
            preparer = SharedPreparer(options, pictures, device, lambda text: connection.send(Note(text)))
        worker = Worker(device, registry, options, connection.send, preparer, sharing)
        while True:
            worker.run(connection.recv())
    except (EOFError, OSError):  # the parent has closed the connection, or is gone
        return
    except PreparingLost:
        raise SystemExit(_PREPARING_LOST) from None


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

    def events(self, timeout_s: float) -> Iterator[Told]:
        if self.members[0].tasks:
            self._worker.run(self.members[0].tasks[0])
        yield from self.told()

    def told(self) -> Iterator[Told]:
        while self._events:
            yield self.members[0], self._events.popleft()

    def end(self, member: Member, why: str, scope: str) -> None:
        """A worker in this process cannot be ended without it."""

    def close(self) -> None:
        self._worker.close()
