"""Workers on the machines of a Ray cluster: one actor per device, for as long as its node is there.

The pool trusts no actor. A task is done when its worker has said so; when an actor is lost, its tasks are given to
others, and some rows may be computed twice, which changes nothing.
"""

from __future__ import annotations

import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.data.writing import this_machine, write_text
from testbed.engine.interrupts import held_back
from testbed.engine.messages import ChunkFailed, Event, Note, Task, TaskDone
from testbed.engine.pools import Died, Member, Told
from testbed.engine.ray_cluster import Cluster, Lost
from testbed.engine.ray_slots import Node, Slot, Wanted
from testbed.engine.ray_worker import Brought, Orders, Ready, Token, Unfit, versions
from testbed.entries.registry import REGISTRY_VARIABLE
from testbed.errors import TestbedError, counted
from testbed.options import RayUse, RunOptions
from testbed.store.files import write_part

_LOOK_S = 5.0  # between looks at the nodes of the cluster
_ALONE_S = 15.0  # without any worker until the user is told
_AGAIN_S = 60.0  # the same after that
_LAST_WORD_S = 10.0  # for an actor that was ended to be heard of
_STARTS = 3  # of actors in a row that fail, until their node is given up
_LONGEST_HOST = 40  # letters; the column of devices in the database has 64
_VARIABLES = "TESTBED_"  # what begins so is passed on, but for where results are: that is the run's alone
_OWN_VARIABLES = ("TESTBED_DB", "TESTBED_RESULTS")


@dataclass
class RayMember(Member):
    """A worker in an actor."""

    slot: Slot = field(kw_only=True)
    actor: Any = field(kw_only=True)
    answer: Any = field(kw_only=True)  # of the call that waits for its words
    far_pid: int = field(kw_only=True)
    ended_at: float = 0.0

    @property
    def pid(self) -> int | None:
        return self.far_pid


@dataclass(frozen=True)
class _Starting:
    """An actor that has not said yet that it is there."""

    slot: Slot
    actor: Any
    answer: Any


def ray_pool(use: RayUse, options: RunOptions, devices: Sequence[str]) -> RayPool:
    """The pool of a run. `devices` is empty, or has `cpu` as often as there shall be workers on each machine."""
    if any(device != "cpu" for device in devices):
        raise TestbedError("--gpus with --ray: expected cpu, since Ray chooses the GPUs; leave --gpus out to take all")
    from testbed.engine.ray_cluster import RayCluster

    cluster = RayCluster(use.address)
    try:
        return RayPool(cluster, options, Wanted(len(devices), use.gpu_share, options.threads))
    except BaseException:
        cluster.close()
        raise


class RayPool:
    """Actors on the nodes of a cluster. One that is lost is replaced while its node lives; new nodes are used."""

    def __init__(self, cluster: Cluster, options: RunOptions, wanted: Wanted) -> None:
        self._cluster, self._wanted = cluster, wanted
        self._options = _absolute(options)
        self._token = _left_in(Path(self._options.results_folder))
        self._itself = Member("ray", "ray")  # who tells what concerns no worker
        self._told: deque[Told] = deque()
        self._starting: list[_Starting] = []
        self._nodes: dict[str, Node] = {}  # that are there
        self._names: dict[str, str] = {}  # of all nodes that ever were, by id; no two are equal
        self._refused: dict[str, str] = {}  # nodes that lack something, by id, and what
        self._failed_starts: dict[str, int] = {}  # in a row, by node
        self._gpus_seen = self._worked = False
        self._looked_at = -_LOOK_S
        self._alone_since = time.monotonic()
        self._told_of_alone_at = 0.0
        self.members: list[Member] = []

    # ---- the interface of a pool ---------------------------------------------------------------------------

    def give(self, member: Member, task: Task) -> None:
        assert isinstance(member, RayMember)
        member.tasks.append(task)
        self._cluster.give(member.actor, task)

    def events(self, timeout_s: float) -> Iterator[Told]:
        """What an interrupted caller has not taken stays, and comes with the next call."""
        if not self._told:  # a death that is told takes tasks away, so all that went before is taken first
            self._look()
            self._hear(timeout_s)
        while self._told:
            yield self._told.popleft()

    def told(self) -> Iterator[Told]:
        return self.events(0.0)

    def end(self, member: Member, why: str, scope: str) -> None:
        """End a worker that hangs. What it had told before comes with the next events, and then its death."""
        assert isinstance(member, RayMember)
        member.ended, member.ended_at = (why, scope), time.monotonic()
        self._cluster.kill(member.actor)

    def close(self) -> None:
        with held_back():
            for actor in [s.actor for s in self._starting] + [m.actor for m in self._own_members()]:
                self._cluster.kill(actor)
            Path(self._token.path).unlink(missing_ok=True)
            self._cluster.close()

    # ---- the nodes -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Now and then: begin actors where there is room, and forget those of nodes that have gone."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        self._nodes = {node.id: node for node in self._cluster.nodes()}
        self._gpus_seen = self._gpus_seen or any(node.gpus >= 1 for node in self._nodes.values())
        for starting in [s for s in self._starting if s.slot.node.id not in self._nodes]:
            self._starting.remove(starting)
        taken = {s.slot for s in self._starting} | {m.slot for m in self._own_members()}
        for slot in self._slots():
            if slot not in taken and slot.node.id not in self._refused:
                self._start(slot)
        self._look_after_ended(now)
        self._tell_if_alone(now)

    def _slots(self) -> list[Slot]:
        return [slot for node in self._nodes.values() for slot in self._wanted.slots(node, self._gpus_seen)]

    def _start(self, slot: Slot) -> None:
        self._name_of(slot.node)
        actor = self._cluster.start(slot.node, slot.share, self._orders(slot))
        self._starting.append(_Starting(slot, actor, self._cluster.ready(actor)))

    def _orders(self, slot: Slot) -> Orders:
        workers = self._options.workers or max(2, slot.threads)
        passed_on = {n: v for n, v in os.environ.items() if n.startswith(_VARIABLES) and n not in _OWN_VARIABLES}
        registries = _absolute_paths(passed_on.get(REGISTRY_VARIABLE, "").split(os.pathsep))
        if registries:
            passed_on[REGISTRY_VARIABLE] = os.pathsep.join(registries)
        needs = (*registries, *self._options.registry, *self._options.data_roots)
        return Orders(
            options=replace(self._options, workers=workers),
            device=slot.device,
            threads=slot.threads,
            sharing=slot.sharing,
            environment=passed_on,
            folder=str(Path.cwd()),
            token=self._token,
            needs=tuple(folder for folder in needs if Path(folder).is_dir()),
            versions=versions(),
            machine=this_machine(),
        )

    def _name_of(self, node: Node) -> str:
        """The name of its machine; several nodes may be on one, and containers may all have the same."""
        if node.id not in self._names:
            host = node.host[-_LONGEST_HOST:]
            taken = host in self._names.values()
            self._names[node.id] = f"{host}~{node.id[:6]}" if taken else host
        return self._names[node.id]

    def _refuse(self, node: Node, problem: str) -> None:
        """Take no workers of a node. The others go on; where nobody has done anything yet, there may be none."""
        if node.id in self._refused:
            return
        self._refused[node.id] = problem
        self._note(f"{self._name_of(node)} takes no part: {problem}")
        left = {slot.node.id for slot in self._slots()} - set(self._refused)
        if not left and not self._worked:
            raise TestbedError(f"no node of the Ray cluster can be used; {self._name_of(node)}: {problem}")

    def _tell_if_alone(self, now: float) -> None:
        if self.members:
            self._alone_since, self._told_of_alone_at = now, 0.0
        elif now - self._alone_since > _ALONE_S and now - self._told_of_alone_at > _AGAIN_S:
            self._told_of_alone_at = now
            nodes = sorted({self._name_of(starting.slot.node) for starting in self._starting})
            coming = f"{counted(len(self._starting), 'worker')} asked for on {', '.join(nodes)}"
            room = coming if nodes else f"no node with room among {len(self._nodes)}, waiting for one to join"
            self._note(f"Ray: no worker is there yet; {room}")

    # ---- the workers ---------------------------------------------------------------------------------------

    def _own_members(self) -> list[RayMember]:
        return [member for member in self.members if isinstance(member, RayMember)]

    def _hear(self, timeout_s: float) -> None:
        waiting: dict[Any, Callable[[], None]] = {
            **{starting.answer: partial(self._heard_of_start, starting) for starting in self._starting},
            **{member.answer: partial(self._heard_of, member) for member in self._own_members()},
        }
        for answer in self._cluster.answered(list(waiting), timeout_s):
            with held_back():
                waiting[answer]()

    def _heard_of_start(self, starting: _Starting) -> None:
        self._starting.remove(starting)
        node = starting.slot.node
        try:
            ready: Ready = self._cluster.take(starting.answer)
        except Lost as lost:
            self._cluster.kill(starting.actor)
            self._start_failed(node, lost)
            return
        if ready.problem:
            self._cluster.kill(starting.actor)
            self._refuse(node, ready.problem)
            return
        self._failed_starts.pop(node.id, None)
        self.members.append(self._member(starting, ready))

    def _start_failed(self, node: Node, lost: Lost) -> None:
        """A node that is lost is forgotten at the next look; one where nothing starts is given up."""
        if lost.node:
            return
        self._failed_starts[node.id] = self._failed_starts.get(node.id, 0) + 1
        if self._failed_starts[node.id] >= _STARTS:
            self._refuse(node, f"no worker can be started there: {lost}")

    def _member(self, starting: _Starting, ready: Ready) -> RayMember:
        slot, actor = starting.slot, starting.actor
        device = f"cuda:{ready.gpu}" if slot.device != "cpu" else "cpu"
        label = first = f"{self._name_of(slot.node)}:{device}"
        others = {member.label for member in self.members}
        for number in range(slot.sharing if slot.sharing > 1 else 0):
            label = f"{first}#{number}"
            if label not in others:
                break
        far = ready.machine != this_machine()
        answer = self._cluster.listen(actor)
        return RayMember(slot.device, label, far=far, far_pid=ready.pid, slot=slot, actor=actor, answer=answer)

    def _heard_of(self, member: RayMember) -> None:
        node = member.slot.node
        try:
            words = self._cluster.take(member.answer)
        except Lost as lost:
            self._bury(member, lost)
            return
        member.answer = self._cluster.listen(member.actor)
        for word in words:
            if isinstance(word, Unfit):
                self._unfit(node, word.problem)
                continue
            event = self._written(word) if isinstance(word, Brought) else word
            self._worked = self._worked or isinstance(event, TaskDone)
            self._told.append((member, event))

    def _written(self, brought: Brought) -> Event:
        """A chunk that came over the network, written where an actor on this machine would have written it."""
        done = brought.done
        try:
            write_part(Path(done.share.folder), done.task.start, brought.arrays)
        except OSError as error:
            return ChunkFailed.of(done.task, done.share, error)
        return done

    def _unfit(self, node: Node, problem: str) -> None:
        """Its actors end, and are heard of once more: what they have told before comes first."""
        for member in self._own_members():
            if member.slot is not None and member.slot.node.id == node.id:
                self._cluster.kill(member.actor)
        self._refuse(node, problem)

    def _bury(self, member: RayMember, lost: Lost) -> None:
        """Its slot is free again, and is filled at once if the node is there."""
        self._cluster.kill(member.actor)  # one that only cannot be reached must not go on
        self.members.remove(member)
        self._looked_at = -_LOOK_S
        node = member.slot.node.id
        why, of_node = str(lost), lost.node
        if node in self._refused:
            why, of_node = "its node takes no part any more", True
        elif not of_node and node not in {n.id for n in self._cluster.nodes()}:
            why, of_node = "its node has gone", True
        tasks, (ended, scope) = list(member.tasks), member.ended
        member.tasks.clear()
        then = "its chunks go to others" if of_node else "starting another"
        died = Died(None, tasks, ended or why, scope, blamed=bool(ended) or not of_node, then=then)
        self._told.append((member, died))

    def _look_after_ended(self, now: float) -> None:
        """One that was ended on a node that says nothing either is not waited for."""
        for member in self._own_members():
            if member.ended_at and now - member.ended_at > _LAST_WORD_S:
                self._bury(member, Lost(""))

    def _note(self, text: str) -> None:
        self._told.append((self._itself, Note(text)))


def _absolute(options: RunOptions) -> RunOptions:
    """Actors have working folders of their own."""
    return replace(
        options,
        data_roots=tuple(_absolute_paths(options.data_roots)),
        registry=tuple(_absolute_paths(options.registry)),
        cache_folder=str(Path(options.cache_folder).absolute()),
        results_folder=str(Path(options.results_folder).absolute()),
        checkpoint=str(Path(options.checkpoint).absolute()) if options.checkpoint else None,
    )


def _absolute_paths(paths: Sequence[str]) -> list[str]:
    return [str(Path(path).absolute()) for path in paths if path]


def _left_in(results: Path) -> Token:
    """A file by which an actor knows this folder. Of a run that is killed the next one sweeps it."""
    content = secrets.token_hex(16)
    path = results / "logits" / f".ray-{content}.{this_machine()}-{os.getpid()}"
    write_text(path, content)
    return Token(str(path), content)
