"""A worker inside an actor of Ray: the same Worker, with its orders and its words sent over the network.

It prepares its pictures with threads of its own: processes that an actor forks outlive it when it is killed.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import numpy as np

from testbed.data.user_cache import user_cache
from testbed.data.writing import this_machine
from testbed.engine.messages import ChunkDone, ChunkFailed, Event, Task, TaskDone
from testbed.errors import DataError, UnknownName, in_words
from testbed.options import RunOptions
from testbed.store.files import write_part

if TYPE_CHECKING:
    from testbed.engine.worker import Worker

_GATHER_S = 0.1  # words that come so soon after each other are one message, unless somebody waits for them
_AWAITED = (ChunkDone, ChunkFailed, TaskDone)


@dataclass(frozen=True)
class Token:
    """A file that the run has left in its results folder: who reads the same in it sees the same folder."""

    path: str
    content: str


@dataclass(frozen=True)
class Orders:
    """What an actor is told when it is made. All paths are absolute."""

    options: RunOptions
    device: str  # "cpu" or "cuda:0": Ray shows an actor its own GPU alone
    threads: int  # of torch
    sharing: int  # workers that share the memory of the device
    environment: Mapping[str, str]
    folder: str  # the run's working folder, from which the folders of tasks are named
    token: Token
    needs: tuple[str, ...]  # folders that must be there
    versions: Mapping[str, str]
    machine: str  # that of the run


@dataclass(frozen=True)
class Ready:
    """The first word of an actor."""

    host: str
    machine: str
    pid: int
    gpu: str  # the number that the GPU has on its machine
    problem: str = ""  # why no actor of this node can be used


@dataclass(frozen=True)
class Brought:
    """A chunk whose outputs could not be written where they belong; the run does so."""

    done: ChunkDone
    arrays: dict[str, np.ndarray]


@dataclass(frozen=True)
class Unfit:
    """The node lacks what the run needs: its actors do nothing, and their tasks are for others."""

    problem: str


Word = Event | Brought | Unfit


def versions() -> dict[str, str]:
    """What must be equal on all machines, since a result is computed on several and says once what with."""
    from importlib.metadata import version

    from testbed import __version__

    return {"testbed": __version__, "torch": version("torch")}


class RayWorker:
    """The class of the actors. `give` and `listen` return at once, whatever the worker is at."""

    def __init__(self, orders: Orders) -> None:
        os.environ.update(orders.environment)
        if orders.device == "cpu":  # Ray leaves all GPUs visible to an actor that asked for none
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self._orders = orders
        self._tasks: SimpleQueue[Task] = SimpleQueue()
        self._words: SimpleQueue[Word] = SimpleQueue()
        self._unwritten: dict[str, np.ndarray] | None = None  # the arrays of the chunk that is told next
        self._sees_results = _reads(orders.token)

    def ready(self) -> Ready:
        """Begin, unless the node lacks something."""
        problem = self._problem()
        if not problem:
            threading.Thread(target=self._work, daemon=True).start()
        gpu = "" if self._orders.device == "cpu" else os.environ.get("CUDA_VISIBLE_DEVICES", "")
        return Ready(socket.gethostname(), this_machine(), os.getpid(), gpu, problem)

    def give(self, task: Task) -> None:
        self._tasks.put(task)

    def listen(self) -> list[Word]:
        """What the worker has told since the last call, waiting for the first word."""
        words = [self._words.get()]
        deadline = time.monotonic() + _GATHER_S
        while True:
            while not self._words.empty():
                words.append(self._words.get())
            if time.monotonic() > deadline or isinstance(words[-1], (*_AWAITED, Brought, Unfit)):
                return words
            time.sleep(_GATHER_S / 10)

    def _problem(self) -> str:
        orders = self._orders
        missing = [path for path in orders.needs if not Path(path).is_dir()]
        if missing:
            return f"it has no folder {missing[0]}, which must be there under the same path"
        other = [(name, mine) for name, mine in versions().items() if mine != orders.versions[name]]
        if other:
            name, mine = other[0]
            return f"it has {name} {mine}, the run has {orders.versions[name]}"
        import torch

        if orders.device != "cpu" and not torch.cuda.is_available():
            return "it declares GPUs that torch cannot use"
        return ""

    def _work(self) -> None:
        """The life of the thread that computes."""
        try:
            worker = self._worker()
            while True:
                task = self._tasks.get()
                problem = self._lacks(worker, task)
                if problem:
                    self._words.put(Unfit(problem))
                    return
                worker.run(task)
        except BaseException:
            traceback.print_exc()  # into the log that Ray keeps of the actor
            os._exit(1)

    def _worker(self) -> Worker:
        import torch

        from testbed.engine.processes import keep_freed_memory
        from testbed.engine.worker import Worker
        from testbed.entries.registry import load_registry

        keep_freed_memory()
        torch.set_num_threads(self._orders.threads)  # counts for the thread that calls it
        options = self._orders.options
        if not self._sees_results:
            options = replace(options, cache_folder=str(user_cache("prepared")))
        registry = load_registry(options.registry)
        return Worker(self._orders.device, registry, options, self._tell, None, self._orders.sharing, self._write)

    def _lacks(self, worker: Worker, task: Task) -> str:
        """What another machine than the run's has not, or has otherwise: then no pair is to blame."""
        if this_machine() == self._orders.machine:
            return ""
        try:
            worker.look_up(task)
        except (DataError, UnknownName) as error:
            return in_words(error)
        except Exception:  # the pair's own fault, which running it tells
            pass
        return ""

    def _tell(self, event: Event) -> None:
        if isinstance(event, ChunkDone) and self._unwritten is not None:
            self._words.put(Brought(event, self._unwritten))
            self._unwritten = None
        else:
            self._words.put(event)

    def _write(self, folder: Path, start: int, arrays: Mapping[str, np.ndarray]) -> None:
        if self._sees_results:
            write_part(self._orders.folder / folder, start, arrays)
        else:
            self._unwritten = dict(arrays)


def _reads(token: Token) -> bool:
    try:
        return Path(token.path).read_text(encoding="utf-8") == token.content
    except (OSError, UnicodeDecodeError):
        return False
