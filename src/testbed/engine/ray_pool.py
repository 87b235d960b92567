"""Workers on the machines of a Ray cluster: one actor per device, for as long as its node is there.

The pool trusts no actor. A task is done when its worker has said so; when an actor is lost, its tasks are given to
others, and some rows may be computed twice, which changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from testbed.data.writing import this_machine
from testbed.engine.interrupts import held_back
from testbed.engine.messages import ChunkFailed, Event, Note, Task, TaskDone
from testbed.engine.pools import Died, Member, Told
from testbed.engine.ray_cluster import Cluster, Lost
from testbed.engine.ray_orders import RunOrders
from testbed.engine.ray_slots import Node, Nodes, Slot, Wanted
from testbed.engine.ray_worker import Brought, Ready, Unfit
from testbed.errors import TestbedError, counted
from testbed.options import RayUse, RunOptions
from testbed.store.files import write_part

_LOOK_S = 5.0  # between looks at the nodes of the cluster
_ALONE_S = 15.0  # without any worker until the user is told
_AGAIN_S = 60.0  # the same after that
_LAST_WORD_S = 10.0  # for an actor that was ended to be heard of
_STARTS = 3  # of actors in a row that fail, until their node is given up
_MOST_NAMED = 4


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
    assert set(devices) <= {"cpu"}, "Ray chooses the GPUs"
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
        self._cluster = cluster
        self._orders = RunOrders(options)
        self._nodes = Nodes(wanted)
        self._itself = Member("ray", "ray")  # who tells what concerns no worker
        self._told: deque[Told] = deque()
        self._starting: list[_Starting] = []
        self._failed_starts: Counter[str] = Counter()  # in a row, by id of the node
        self._worked = False  # a chunk was brought to its end
        self._looked_at = -_LOOK_S
        self._tell_at = time.monotonic() + _ALONE_S  # that nobody is at work
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
            self._orders.close()
            self._cluster.close()

    # ---- the nodes -----------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Now and then: begin actors where there is room, and forget those of nodes that have gone."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_S:
            return
        self._looked_at = now
        self._nodes.seen(self._cluster.nodes())
        self._starting = [s for s in self._starting if s.slot.node.id in self._nodes.there]
        taken = {s.slot for s in self._starting} | {m.slot for m in self._own_members()}
        for slot in self._nodes.slots():
            if slot not in taken:
                self._start(slot)
        self._look_after_ended(now)
        self._tell_if_alone(now)

    def _start(self, slot: Slot) -> None:
        actor = self._cluster.start(slot.node, slot.share, self._orders.for_worker(slot))
        self._starting.append(_Starting(slot, actor, self._cluster.ready(actor)))

    def _refuse(self, node: Node, problem: str) -> None:
        """Take no workers of a node; the others go on. It is an error if nobody has worked yet and nobody is left."""
        if node.id in self._nodes.refused:
            return
        self._nodes.refused.add(node.id)
        self._note(f"{self._nodes.name(node)} takes no part: {problem}")
        if not self._worked and not self._nodes.slots():
            raise TestbedError(f"no node of the Ray cluster can be used; {self._nodes.name(node)}: {problem}")

    def _tell_if_alone(self, now: float) -> None:
        if self.members:
            self._tell_at = now + _ALONE_S
        elif now > self._tell_at:
            self._tell_at = now + _AGAIN_S
            nodes = sorted({self._nodes.name(starting.slot.node) for starting in self._starting})
            coming = f"{counted(len(self._starting), 'worker')} asked for on {', '.join(nodes[:_MOST_NAMED])}"
            more = ", ..." if len(nodes) > _MOST_NAMED else ""
            none = f"waiting for a node that can be used; there are {len(self._nodes.there)} without"
            self._note(f"Ray: no worker is at work; {coming + more if nodes else none}")

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
        self._failed_starts[node.id] += 1
        if self._failed_starts[node.id] >= _STARTS:
            self._refuse(node, f"no worker can be started there: {lost}")

    def _member(self, starting: _Starting, ready: Ready) -> RayMember:
        slot, actor = starting.slot, starting.actor
        device = f"cuda:{ready.gpu}" if slot.device != "cpu" else "cpu"
        label = first = f"{self._nodes.name(slot.node)}:{device}"
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
            if member.slot.node.id == node.id:
                self._cluster.kill(member.actor)
        self._refuse(node, problem)

    def _bury(self, member: RayMember, lost: Lost) -> None:
        """Its slot is free again, and is filled at once if the node is there."""
        self._cluster.kill(member.actor)  # one that only cannot be reached must not go on
        self.members.remove(member)
        self._looked_at, self._tell_at = -_LOOK_S, time.monotonic() + _ALONE_S
        node = member.slot.node.id
        why, of_node = str(lost), lost.node
        if node in self._nodes.refused:
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
