"""The pool over a cluster, with a cluster in this process: workers in threads, answers that fail where a test says so.

tests/faults/test_ray.py has a real one.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace

import numpy as np
import pytest

import tiny
from testbed.engine import ray_cluster
from testbed.engine import ray_pool as pool_module
from testbed.engine.messages import ChunkDone, Note, Progress, Share, Task, TaskDone
from testbed.engine.pools import Died
from testbed.engine.progress import Silent
from testbed.engine.ray_cluster import Lost
from testbed.engine.ray_orders import RunOrders
from testbed.engine.ray_pool import RayPool
from testbed.engine.ray_slots import Node, Nodes, Slot, Wanted
from testbed.engine.ray_slots import Share as Takes
from testbed.engine.ray_worker import Brought, RayWorker, Ready, Unfit
from testbed.errors import EntryError, TestbedError
from testbed.options import RayUse, RunOptions

TASK = Task(0, "s", 0, 16, "fingerprint", (Share(1, "m", "folder"),))
NEXT = replace(TASK, start=16, stop=32)
DONE = ChunkDone(TASK, TASK.shares[0], 1.0, [], {})
HERE = Node("n1", "a", 1, 0)
NODE_GONE = Lost("its node does not answer", node=True)


class Actor:
    """One that says what the test gives it to say."""

    def __init__(self, node, share, orders):
        self.node, self.share, self.orders = node, share, orders
        self.first, self.word = Future(), Future()
        self.given, self.killed = [], False

    def comes_up(self, **more):
        self.first.set_result(Ready(**{"host": self.node.host, "machine": "far", "pid": 1, "gpu": "", **more}))

    def says(self, *words):
        before, self.word = self.word, Future()
        before.set_result(list(words))

    def is_lost(self, lost):
        self.word.set_exception(lost)


class FakeCluster:
    def __init__(self, *nodes):
        self.there, self.actors, self.closed = list(nodes), [], False

    def nodes(self):
        return list(self.there)

    def start(self, node, share, orders):
        self.actors.append(Actor(node, share, orders))
        return self.actors[-1]

    def ready(self, actor):
        return actor.first

    def listen(self, actor):
        return actor.word

    def give(self, actor, task):
        actor.given.append(task)

    def answered(self, asked, timeout_s):
        return list(wait(asked, timeout_s, FIRST_COMPLETED).done) if asked else []

    def take(self, answer):
        return answer.result()

    def kill(self, actor):
        actor.killed = True

    def close(self):
        self.closed = True


@pytest.fixture
def clock(monkeypatch):
    """A clock that is moved by hand, and by a look's time at every look at it."""

    class Clock:
        now = 0.0

        def monotonic(self):
            self.now += 0.001
            return self.now

    clock = Clock()
    monkeypatch.setattr(pool_module, "time", clock)
    return clock


@pytest.fixture
def made(tmp_path, clock):
    """A function that makes a pool over nodes, and what it has told up to now."""

    def make(*nodes, wanted=None, **options):
        cluster = FakeCluster(*nodes)
        options = RunOptions(results_folder=str(tmp_path), cache_folder=str(tmp_path / "cache"), **options)
        pool = RayPool(cluster, options, wanted or Wanted())

        def told():
            clock.now += pool_module._LOOK_S
            return [event for _, event in pool.events(0.0)]

        return pool, cluster, told

    return make


def up(made, *nodes, **more):
    """A pool whose workers are all there."""
    pool, cluster, told = made(*nodes, **more)
    told()
    for actor in cluster.actors:
        actor.comes_up()
    assert not told()
    return pool, cluster, told


# ---- places ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "node", "gpus", "expected"),
    [
        (Wanted(), Node("n", "a", 16, 0), False, [(Takes(16), 16, 1)]),
        (Wanted(threads=4), Node("n", "a", 10, 0), False, [(Takes(4), 4, 2)] * 2),
        (Wanted(threads=8), Node("n", "a", 2, 0), False, [(Takes(2), 8, 1)]),
        (Wanted(cpu_workers=2), Node("n", "a", 8, 4), True, [(Takes(4), 4, 2)] * 2),
        (Wanted(cpu_workers=3), Node("n", "a", 2, 0), False, [(Takes(0.66), 1, 3)] * 3),
        (Wanted(), Node("head", "a", 0, 0), False, []),
        (Wanted(cpu_workers=2), Node("head", "a", 0, 0), False, []),
        (Wanted(), Node("n", "a", 16, 0), True, []),
        (Wanted(), Node("n", "a", 16, 4), True, [(Takes(1, 1), 4, 1)] * 4),
        (Wanted(), Node("n", "a", 2, 4), True, [(Takes(0.5, 1), 1, 1)] * 4),
        (Wanted(gpu_share=0.5), Node("n", "a", 8, 2), True, [(Takes(1, 0.5), 2, 2)] * 4),
        (Wanted(gpu_share=0.3), Node("n", "a", 8, 1), True, [(Takes(1, 1 / 3), 2, 3)] * 3),
        (Wanted(gpu_share=0.7), Node("n", "a", 8, 1), True, [(Takes(1, 1), 8, 1)]),
    ],
)
def test_places_of_a_node(wanted, node, gpus, expected):
    slots = wanted.slots(node, gpus)
    assert [(s.share, s.threads, s.sharing) for s in slots] == expected
    assert {s.device for s in slots} <= {"cuda:0" if gpus and not wanted.cpu_workers else "cpu"}
    assert len(set(slots)) == len(slots)
    assert sum(s.share.cpus for s in slots) <= node.cpus + 1e-9 and sum(s.share.gpus for s in slots) <= node.gpus + 1e-9


def test_nodes_without_gpus_take_no_part_once_a_gpu_was_seen():
    nodes = Nodes(Wanted())
    small, large = Node("1", "a", 4, 0), Node("2", "b", 4, 1)
    nodes.seen([small])
    assert [s.device for s in nodes.slots()] == ["cpu"]
    nodes.seen([small, large])
    assert [s.device for s in nodes.slots()] == ["cuda:0"]
    nodes.seen([small])  # the GPU comes back, it is hoped
    assert nodes.slots() == []


def test_no_two_workers_have_one_name(made):
    nodes = [replace(HERE, id="0123456789"), replace(HERE, id="abcdefghij"), Node("x", "w" * 63, 2, 0)]
    pool, *_ = up(made, *nodes, wanted=Wanted(cpu_workers=2))
    labels = sorted(member.label for member in pool.members)
    assert labels[:4] == ["a:cpu#0", "a:cpu#1", "a~abcdef:cpu#0", "a~abcdef:cpu#1"]
    assert len(set(labels)) == 6 and all(len(label) <= 64 for label in labels)


def test_workers_are_named_by_the_gpu_that_ray_has_given_them(made):
    pool, cluster, told = made(Node("n", "a", 8, 2), wanted=Wanted(gpu_share=0.5))
    told()
    for actor, gpu in zip(cluster.actors, "0101", strict=True):
        actor.comes_up(gpu=gpu)
    told()
    assert sorted(m.label for m in pool.members) == ["a:cuda:0#0", "a:cuda:0#1", "a:cuda:1#0", "a:cuda:1#1"]
    assert {actor.orders.device for actor in cluster.actors} == {"cuda:0"}


# ---- members that come and go ----------------------------------------------------------------------------


def test_words_of_a_worker_are_told_and_its_tasks_reach_it(made):
    pool, cluster, told = up(made, HERE)
    (member,), (actor,) = pool.members, cluster.actors
    pool.give(member, TASK)
    actor.says(Progress(16), DONE, TaskDone(TASK))
    assert told() == [Progress(16), DONE, TaskDone(TASK)]
    assert actor.given == [TASK]
    actor.says(Progress(1))
    assert told() == [Progress(1)]


def test_tasks_of_a_lost_worker_are_told_after_its_last_words(made):
    """The other order would give a finished chunk to another worker, and take it off an empty list."""
    pool, cluster, told = up(made, HERE)
    (member,), (actor,) = pool.members, cluster.actors
    for task in (TASK, NEXT):
        pool.give(member, task)
    actor.says(DONE, TaskDone(TASK))
    actor.is_lost(Lost("its process has ended"))
    assert told() == [DONE, TaskDone(TASK)]
    member.tasks.popleft()
    assert told() == [Died(None, [NEXT], "its process has ended", blamed=True)]
    assert actor.killed  # also one that only cannot be reached
    assert not pool.members


def test_a_lost_worker_is_replaced_while_its_node_is_there(made):
    pool, cluster, told = up(made, HERE)
    cluster.actors[0].is_lost(Lost("its process has ended"))
    told()
    told()
    assert len(cluster.actors) == 2 and not pool.members
    cluster.actors[1].comes_up()
    told()
    assert [m.label for m in pool.members] == ["a:cpu"]


@pytest.mark.parametrize(("lost", "still_there"), [(NODE_GONE, True), (Lost("its process has ended"), False)])
def test_no_chunk_is_blamed_for_the_end_of_its_node(made, lost, still_there):
    """Ray may notice the end of a process before that of its node, and the other way round."""
    pool, cluster, told = up(made, HERE)
    pool.give(pool.members[0], TASK)
    cluster.there = cluster.there if still_there else []
    cluster.actors[0].is_lost(lost)
    (died,) = told()
    assert (died.tasks, died.blamed, died.then) == ([TASK], False, "its chunks go to others")


def test_a_node_that_joins_is_used_and_one_that_leaves_while_a_worker_starts_is_forgotten(made):
    pool, cluster, told = up(made, HERE)
    cluster.there.append(Node("n2", "b", 1, 0))
    told()
    assert [actor.node.id for actor in cluster.actors] == ["n1", "n2"]
    cluster.there.pop()
    told()
    cluster.there.append(Node("n3", "c", 1, 0))
    told()
    cluster.actors[2].comes_up()
    told()
    assert [m.label for m in pool.members] == ["a:cpu", "c:cpu"]


def test_a_node_that_lacks_something_is_told_once_and_the_others_go_on(made):
    pool, cluster, told = made(HERE, Node("n2", "b", 2, 0), wanted=Wanted(cpu_workers=2))
    told()
    first, second, *others = cluster.actors
    for actor in (first, second):
        actor.comes_up(problem="it has no folder /data")
    for actor in others:
        actor.comes_up()
    assert told() == [Note("a takes no part: it has no folder /data")]
    told()
    assert [m.label for m in pool.members] == ["b:cpu#0", "b:cpu#1"]
    assert len(cluster.actors) == 4 and first.killed


def test_a_cluster_of_which_every_node_lacks_something_is_an_error(made):
    _, cluster, told = made(HERE)
    told()
    cluster.actors[0].comes_up(problem="it has torch 2.1, the run has 2.2")
    with pytest.raises(TestbedError, match=r"no node of the Ray cluster can be used; a: it has torch 2\.1"):
        told()


def test_a_node_without_the_data_gives_its_chunks_to_others(made):
    pool, cluster, told = up(made, HERE, Node("n2", "b", 1, 0))
    for member in pool.members:
        pool.give(member, TASK)
    first, second = cluster.actors
    second.says(TaskDone(TASK))
    first.says(Unfit("dataset 'imagenet' not found"))
    assert set(told()) == {TaskDone(TASK), Note("a takes no part: dataset 'imagenet' not found")}
    assert first.killed and not second.killed
    first.is_lost(Lost("killed"))
    (died,) = told()
    assert (died.tasks, died.blamed) == ([TASK], False)
    assert len(cluster.actors) == 2  # nobody is started there again


def test_a_node_where_nothing_starts_is_given_up(made):
    _, cluster, told = up(made, HERE, Node("n2", "b", 1, 0))
    cluster.there.append(Node("n3", "c", 1, 0))
    told()
    for _ in range(pool_module._STARTS):
        cluster.actors[-1].first.set_exception(Lost("ModuleNotFoundError: No module named 'testbed'"))
        notes = told() + told()
    assert notes == [
        Note("c takes no part: no worker can be started there: ModuleNotFoundError: No module named 'testbed'")
    ]
    assert len(cluster.actors) == 2 + pool_module._STARTS


def test_a_run_without_workers_says_what_it_waits_for_now_and_then(made, clock):
    _, cluster, told = made(HERE)
    assert told() == []
    clock.now += pool_module._ALONE_S
    assert told() == [Note("Ray: no worker is at work; 1 worker asked for on a")]
    assert told() == []
    cluster.there.clear()
    clock.now += pool_module._AGAIN_S
    (note,) = told()
    assert note.text.startswith("Ray: no worker is at work; waiting for a node that can be used")


def test_a_worker_that_was_ended_is_given_up_even_if_its_node_is_silent(made, clock):
    pool, cluster, told = up(made, HERE)
    (member,) = pool.members
    pool.give(member, TASK)
    pool.end(member, "ended after 3 s", "model")
    assert told() == [] and cluster.actors[0].killed
    clock.now += pool_module._LAST_WORD_S
    assert told() == [Died(None, [TASK], "ended after 3 s", "model", blamed=True)]


def test_closing_ends_the_workers_that_are_there_and_those_to_come(made, tmp_path):
    pool, cluster, told = up(made, HERE)
    cluster.there.append(Node("n2", "b", 1, 0))
    told()
    assert list((tmp_path / "logits").iterdir())
    pool.close()
    assert all(actor.killed for actor in cluster.actors) and cluster.closed
    assert not list((tmp_path / "logits").iterdir())


# ---- what workers are told and what they bring -----------------------------------------------------------


def slot(**more):
    return Slot(**{"node": HERE, "number": 0, "device": "cpu", "share": Takes(1), "threads": 1, "sharing": 1, **more})


@pytest.fixture
def orders(tmp_path, monkeypatch):
    """Orders as for an actor on this machine, whose process this is not: its environment stays as it is."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    options = RunOptions(results_folder=str(tmp_path), registry=(str(tiny.REGISTRY),), data_roots=(str(tmp_path),))
    return RunOrders(options).for_worker(slot())


def test_a_worker_on_the_cpu_sees_no_gpu(orders):
    RayWorker(orders)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""


def test_paths_of_orders_are_absolute_and_the_database_is_not_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("TESTBED_DB", "postgresql://me:secret@server/db")
    monkeypatch.setenv("TESTBED_REGISTRY", "mine")
    monkeypatch.setenv("TESTBED_UNSAFE_PICKLE", "1")
    told = RunOrders(RunOptions(data_roots=("data",), checkpoint="w.pt")).for_worker(slot(threads=3))
    assert told.environment == {"TESTBED_REGISTRY": str(tmp_path / "mine"), "TESTBED_UNSAFE_PICKLE": "1"}
    assert told.needs == (str(tmp_path / "mine"),)  # not the data, which are not here either
    assert told.options.checkpoint == str(tmp_path / "w.pt") and told.options.workers == 3
    assert "secret" not in repr(told)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (dict(needs=("/no/such/folder",)), "it has no folder /no/such/folder, which must be there under the same path"),
        (dict(versions={"testbed": "0.0", "torch": "0.0"}), "it has testbed "),
        (dict(device="cuda:0"), "it declares GPUs that torch cannot use"),
        ({}, ""),
    ],
)
def test_what_a_machine_lacks_is_its_first_word(orders, change, problem):
    said = RayWorker(replace(orders, **change)).ready().problem
    assert said.startswith(problem) and bool(said) == bool(problem)


def test_another_machine_that_has_other_data_does_nothing(orders):
    worker = RayWorker(replace(orders, machine="another"))
    assert not worker.ready().problem
    task = replace(TASK, setting="tiny", shares=(Share(1, "tiny_a", "x"),))
    worker.give(task)
    assert worker.listen() == [Unfit("the images of 'tiny' have changed since the run began")]


def in_thread(call):
    """The answer of a call in a thread that nobody waits for at the end: those who are lost listen for ever."""
    future = Future()
    threading.Thread(target=lambda: future.set_result(call()), daemon=True).start()
    return future


class Threads(FakeCluster):
    """Workers of this process. `loses` of them are lost in the middle of their first chunk, each with its node."""

    def __init__(self, loses):
        super().__init__(HERE)
        self.left = loses

    def start(self, node, share, orders):
        return RayWorker(orders)

    def ready(self, actor):
        return in_thread(actor.ready)

    def listen(self, actor):
        return in_thread(actor.listen)

    def give(self, actor, task):
        actor.give(task)

    def take(self, answer):
        words = answer.result()
        if self.left and isinstance(words, list) and any(isinstance(word, Progress) for word in words):
            self.left -= 1
            raise NODE_GONE
        return words

    def kill(self, actor):
        pass


@pytest.mark.parametrize(("loses", "seen"), [(4, True), (1, False)], ids=["folder shared", "arrays sent"])
def test_a_chunk_that_loses_many_nodes_is_done_in_the_end(tmp_path, monkeypatch, loses, seen):
    """A chunk that costs three workers fails its pair, but not for nodes."""
    cluster, notes = Threads(loses), []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("testbed.engine.ray_cluster.RayCluster", lambda address: cluster)
    monkeypatch.setattr(Silent, "note", lambda self, text: notes.append(text))
    if not seen:
        monkeypatch.setattr("testbed.engine.ray_worker._reads", lambda token: False)
    report, store = tiny.run(
        tmp_path, ["tiny_a"], ["tiny"], inline=False, ray=RayUse(), devices=(), threads=1, chunk_size=48
    )
    assert not report.failed
    assert len(notes) == loses and notes[0] == "worker a:cpu died (its node does not answer), its chunks go to others"
    _, undisturbed = tiny.run(tmp_path / "u", ["tiny_a"], ["tiny"], inline=False, threads=1, chunk_size=48)
    np.testing.assert_array_equal(tiny.logits(store, "tiny_a", "tiny"), tiny.logits(undisturbed, "tiny_a", "tiny"))
    assert not list(tmp_path.glob("logits/.ray*"))


def test_a_chunk_that_cannot_be_written_here_is_a_failure_with_its_reason(made):
    _, cluster, told = up(made, HERE)
    cluster.actors[0].says(Brought(DONE, {"logits": np.zeros((16, 10))}))  # its folder is gone
    (failed,) = told()
    assert failed.share == DONE.share and "FileNotFoundError" in failed.error


@pytest.mark.parametrize("address", ["", "ray://host:1", "host", "host:port", "a b:1", "https://host:1"])
def test_an_address_is_auto_or_host_and_port(address):
    with pytest.raises(EntryError, match="--ray: expected nothing, auto or HOST:PORT of a running cluster, got"):
        RayUse(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_an_address_where_nobody_listens_is_told_at_once(monkeypatch, host):
    """Ray alone tries for a quarter of an hour."""
    pytest.importorskip("ray")
    monkeypatch.setattr(os, "environ", dict(os.environ))  # Ray's variables are gone at the end
    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        address = f"{host}:{held.getsockname()[1]}"
        with pytest.raises(TestbedError, match=rf"^--ray {address}: no Ray cluster can be joined there \([A-Z]"):
            ray_cluster.RayCluster(address)


def test_a_run_without_the_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with pytest.raises(TestbedError, match=r"^--ray needs the package ray: pip install 'robustness-testbed\[ray\]'$"):
        ray_cluster.RayCluster()
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize("address", ["auto", "10.0.0.1:6379", "head-1.cluster:6379", "[::1]:6379"])
def test_addresses_that_are_understood(address):
    assert RayUse(address).address == address
