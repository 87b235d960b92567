"""Which workers the nodes of a Ray cluster have room for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST_HOST = 40  # letters; the column of devices in the database has 64


@dataclass(frozen=True)
class Node:
    """A machine of the cluster, and what it offers altogether."""

    id: str
    host: str
    cpus: float
    gpus: float


@dataclass(frozen=True)
class Share:
    """What an actor takes of its node."""

    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Slot:
    """A place for one worker: the n-th of a node."""

    node: Node
    number: int
    device: str
    share: Share
    threads: int
    sharing: int  # workers on the same device


@dataclass(frozen=True)
class Wanted:
    """What workers a run wants of every node."""

    cpu_workers: int = 0  # on each node, on its CPU; 0: on its GPUs or, if the cluster has none, one
    gpu_share: float = 1.0  # of a GPU for each worker
    threads: int | None = None

    def slots(self, node: Node, on_gpus: bool) -> list[Slot]:
        """`on_gpus`: the cluster has any, so that a node without takes no part."""
        if self.cpu_workers or not on_gpus:
            return self._on_cpus(node)
        per_gpu = int(1 / self.gpu_share + 1e-9)
        count = int(node.gpus) * per_gpu
        cpus = min(1.0, node.cpus / count) if count else 0.0  # bookkeeping of Ray, which binds nothing
        threads = self.threads or max(1, int(node.cpus) // max(1, count))
        share = Share(int(cpus * 100) / 100, 1 / per_gpu if per_gpu > 1 else 1.0)
        return [Slot(node, n, "cuda:0", share, threads, per_gpu) for n in range(count)]

    def _on_cpus(self, node: Node) -> list[Slot]:
        cpus = int(node.cpus)
        count = self.cpu_workers or max(1, cpus // self.threads if self.threads else 1)
        if not cpus:  # a head that shall not compute
            return []
        each = max(1, min(cpus // count, self.threads or cpus))
        share = Share(each if each * count <= cpus else int(100 * cpus / count) / 100)
        return [Slot(node, n, "cpu", share, self.threads or each, count) for n in range(count)]


class Nodes:
    """The nodes of the cluster: those that are there, their names, and the places for workers on them."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._names: dict[str, str] = {}  # of all that ever were, by id
        self._gpus_seen = False
        self.there: dict[str, Node] = {}
        self.refused: set[str] = set()  # ids of nodes that lack something

    def seen(self, nodes: Iterable[Node]) -> None:
        self.there = {node.id: node for node in nodes}
        self._gpus_seen = self._gpus_seen or any(node.gpus >= 1 for node in self.there.values())
        for node in self.there.values():
            if node.id not in self._names:
                host = node.host[-_LONGEST_HOST:]
                taken = host in self._names.values()
                self._names[node.id] = f"{host}~{node.id[:6]}" if taken else host

    def slots(self) -> list[Slot]:
        """All places, taken or not, of the nodes that can be used."""
        able = (node for node in self.there.values() if node.id not in self.refused)
        return [slot for node in able for slot in self._wanted.slots(node, self._gpus_seen)]

    def name(self, node: Node) -> str:
        """That of its machine, and more where several have it: nodes of one machine, or containers."""
        return self._names[node.id]
