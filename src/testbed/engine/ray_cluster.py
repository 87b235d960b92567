"""What a run asks of Ray: to join or start a cluster, its nodes, actors on them, and what these answer.

Ray does no retries here. Whatever it says of an actor or a node that is lost becomes one exception, `Lost`.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from testbed.engine.messages import Task
from testbed.engine.ray_slots import Node, Share
from testbed.engine.ray_worker import Orders, RayWorker
from testbed.errors import TestbedError
from testbed.options import LOCAL_RAY, RUNNING_RAY

_STORE_BYTES = 100 << 20  # for messages; outputs go to files where the machines share a folder
_NEWS = "news"  # the group of calls that wait for words, beside those that give orders
_STARTS = 2  # tries: on a busy machine one of a dozen fails
_LONGEST_FOLDER = 24
_HEAD_S = 30.0  # without the head until the run ends; Ray would end the process after 60
_ANSWER_S = 10.0  # until an address is taken for one where nobody listens
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
_JOINING = {"RAY_NUM_REDIS_GET_RETRIES": "2"}  # tries of 40 s each; Ray's own number is 20
_TOKEN = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")


class Lost(Exception):
    """An actor is gone, or its node is."""

    def __init__(self, why: str, node: bool = False) -> None:
        super().__init__(why)
        self.node = node  # the node, not the actor alone


class Cluster(Protocol):
    """What the pool needs of Ray. An answer is waited for by its reference, which can be a key of a dictionary."""

    def nodes(self) -> list[Node]: ...

    def start(self, node: Node, share: Share, orders: Orders) -> Any:
        """An actor, which comes up when its node has room."""

    def ready(self, actor: Any) -> Any: ...

    def listen(self, actor: Any) -> Any: ...

    def give(self, actor: Any, task: Task) -> None: ...

    def answered(self, asked: Sequence[Any], timeout_s: float) -> list[Any]:
        """The references whose answers have come, waiting for the first one."""

    def take(self, answer: Any) -> Any:
        """What was answered; raises Lost where nobody will answer."""

    def kill(self, actor: Any) -> None: ...

    def close(self) -> None: ...


class RayCluster:
    """A cluster of Ray, joined or started."""

    def __init__(self, address: str = LOCAL_RAY) -> None:
        # All before Ray is imported, which then reads them.
        for name, value in {**_QUIET, **({} if address == LOCAL_RAY else _JOINING)}.items():
            os.environ.setdefault(name, value)
        self._before = {name: os.environ.get(name) for name in _TOKEN}
        if address == LOCAL_RAY:  # it listens on every network that the machine is in
            os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
        self._ray: Any = None
        self._folder = ""
        try:
            self._ray = _imported()
            with _signals_kept():
                self._start() if address == LOCAL_RAY else self._join(address)
        except BaseException:
            self.close()
            raise
        self._head: str = self._ray.get_runtime_context().gcs_address
        self._head_heard_at = time.monotonic()
        self._nodes: list[Node] = []
        self._actor = self._ray.remote(concurrency_groups={_NEWS: 1})(RayWorker)

    def _start(self) -> None:
        """A Ray of this run alone."""
        self._folder = tempfile.mkdtemp(prefix="ray-", dir=_short_folder())
        for left in reversed(range(_STARTS)):
            try:
                self._init(LOCAL_RAY, include_dashboard=False, object_store_memory=_STORE_BYTES, _temp_dir=self._folder)
                return
            except Exception as error:  # a plain Exception where a busy machine was too slow
                self._ray.shutdown()
                if not left:
                    raise TestbedError(f"Ray cannot be started on this machine: {_first_line(error)}") from error

    def _join(self, address: str) -> None:
        try:
            if address != RUNNING_RAY:
                _reach(address)
            self._init(address)
        except (OSError, ValueError, RuntimeError, self._ray.exceptions.RayError) as error:
            raise TestbedError(
                f"--ray {address}: no Ray cluster can be joined there ({_reason(error)}). Start one with "
                "`ray start --head`, and join this machine with `ray start --address=HOST:PORT`, RAY_AUTH_MODE and "
                "RAY_AUTH_TOKEN being the same everywhere; --ray alone needs no cluster"
            ) from error

    def _init(self, address: str, **more: Any) -> None:
        self._ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **more)

    def nodes(self) -> list[Node]:
        """Those that are there. A head that is away is waited for; workers go on meanwhile."""
        try:
            _reach(self._head)
        except OSError as error:
            if time.monotonic() - self._head_heard_at > _HEAD_S:
                raise TestbedError(
                    f"the head of the Ray cluster, {self._head}, does not answer ({_reason(error)}): start the cluster "
                    "again; the same command goes on"
                ) from error
            return self._nodes
        self._head_heard_at = time.monotonic()
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        self._nodes = [
            Node(n["NodeID"], n["NodeManagerHostname"], n["Resources"].get("CPU", 0.0), n["Resources"].get("GPU", 0.0))
            for n in alive
        ]
        return self._nodes

    def start(self, node: Node, share: Share, orders: Orders) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(node.id, soft=False)
        return self._actor.options(
            num_cpus=share.cpus,
            num_gpus=share.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=here,
        ).remote(orders)

    def ready(self, actor: Any) -> Any:
        return actor.ready.remote()

    def listen(self, actor: Any) -> Any:
        return actor.listen.options(concurrency_group=_NEWS).remote()

    def give(self, actor: Any, task: Task) -> None:
        actor.give.remote(task)

    def answered(self, asked: Sequence[Any], timeout_s: float) -> list[Any]:
        if not asked:
            time.sleep(timeout_s)
            return []
        first, _ = self._ray.wait(list(asked), num_returns=1, timeout=timeout_s)
        return self._ray.wait(list(asked), num_returns=len(asked), timeout=0)[0] if first else []

    def take(self, answer: Any) -> Any:
        try:
            return self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            raise _lost(error) from error

    def kill(self, actor: Any) -> None:
        try:
            self._ray.kill(actor)
        except Exception:  # it is gone, or Ray is: either way nobody has to be ended
            pass

    def close(self) -> None:
        if self._ray is not None:
            self._ray.shutdown()
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""


def _lost(error: Exception) -> Lost:
    """What Ray's exceptions mean for a worker. Only of a death of its process may a chunk be the cause."""
    kind, text = type(error).__name__, str(error)
    if kind == "ActorUnavailableError":
        return Lost("its node does not answer", node=True)
    if kind == "ActorUnschedulableError" or re.search(r"node (has died|was|is dead)|node_id.*died", text):
        return Lost("its node has gone", node=True)
    if kind == "ActorDiedError" and getattr(error, "actor_init_failed", False):
        return Lost(_last_line(error))
    if kind == "ActorDiedError":
        return Lost("its process has ended, often because memory ran out")
    if kind == "OutOfMemoryError":
        return Lost("Ray has ended it because the memory of its node ran out")
    if "Object" in kind or kind == "OwnerDiedError":
        return Lost("its node has gone", node=True)
    return Lost(f"{kind}: {_last_line(error)}")


def _reach(address: str) -> None:
    """Ray itself tries for a quarter of an hour, with lines about its inside."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()


def _reason(error: Exception) -> str:
    """One sentence, without a number: Ray's own advice is about other commands."""
    return getattr(error, "strerror", None) or _first_line(error).partition(". ")[0]


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _last_line(error: Exception) -> str:
    return _first_line(Exception("\n".join(reversed(str(error).splitlines()))))


def _imported() -> Any:
    try:
        import ray
        from ray._private import worker
    except ImportError:
        raise TestbedError("--ray needs the package ray: pip install 'robustness-testbed[ray]'") from None
    # Ray prints the last lines of a dead node's log among the tables of the run, which tells of that node itself.
    if hasattr(worker, "print_to_stdstream"):  # no option of Ray does it
        worker.print_to_stdstream = lambda *arguments, **named: None
    return ray


def _short_folder() -> str | None:
    """For Ray's files. The names of the sockets that lie in it must not be longer than 107 bytes."""
    return None if len(tempfile.gettempdir()) <= _LONGEST_FOLDER else "/tmp"


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself. A run that is asked to end by it ends as any other program."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
