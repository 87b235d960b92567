"""Runs on a real Ray cluster of several nodes, with faults in their middle. A program of its own: see test_ray.py.

    python ray_story.py FOLDER STORY...

It needs a network namespace with loopback alone, since Ray listens on every interface. It prints one line per story.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tiny
from faults.running import LIMIT_S, descendants, parts, state
from testbed.engine import ray_cluster, ray_orders, ray_pool
from testbed.engine.progress import Silent
from testbed.engine.ray_worker import Token
from testbed.errors import TestbedError
from testbed.options import RayUse

SETTINGS = ["tiny", "tiny.noise", "tiny.motion_blur"]
_SMALL = dict(object_store_memory=80 << 20)


class Story:
    """A cluster, and runs on it with something that happens meanwhile."""

    def __init__(self, folder: Path) -> None:
        from ray.cluster_utils import Cluster

        self.folder = folder
        self.marker = Path(os.environ["TINY_MARKER"])
        self.notes: list[str] = []
        Silent.note = lambda _, text: self.notes.append(text)  # type: ignore[method-assign]
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **_SMALL})
        self.pool: ray_pool.RayPool | None = None
        real = ray_pool.RayPool.__init__

        def remembered(pool, *arguments):
            real(pool, *arguments)
            self.pool = pool

        ray_pool.RayPool.__init__ = remembered  # type: ignore[method-assign]

    @contextmanager
    def nodes(self, count: int, **more) -> Iterator[list]:
        """Nodes with one CPU each; those that are left are gone at the end."""
        self.marker.unlink(missing_ok=True)
        self.notes.clear()
        there = [self.add(**more) for _ in range(count)]
        try:
            yield there
        finally:
            for node in [n for n in self.cluster.list_all_nodes() if n is not self.cluster.head_node]:
                self.cluster.remove_node(node)

    def add(self, **more):
        return self.cluster.add_node(**{"num_cpus": 1, **_SMALL, **more})

    def run(self, name: str, models: list[str], meanwhile: Callable[[], None] | None = None, **options):
        """A run in a thread, and `meanwhile` in this one, where Ray lets nodes be added: report and store."""
        self.pool = None
        options = {"settings": SETTINGS, "chunk_size": 16, "threads": 1, "devices": ("cpu",), **options}
        where = RayUse(self.cluster.address)
        with ThreadPoolExecutor(1) as thread:
            ended = thread.submit(
                tiny.run, self.folder / name, models, options.pop("settings"), inline=False, ray=where, **options
            )
            if meanwhile is not None:
                try:
                    meanwhile()
                finally:
                    self.marker.touch()  # for which the workers wait, also where the story went wrong
            return ended.result(LIMIT_S)

    def undisturbed(self, models: list[str]):
        self.marker.touch()
        _, store = tiny.run(self.folder / "undisturbed", models, SETTINGS, inline=False, chunk_size=16, threads=1)
        self.marker.unlink()
        return {(m, s): tiny.logits(store, m, s) for m in models for s in SETTINGS}

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; {self.notes}"
            time.sleep(0.02)

    def told(self, words: str) -> None:
        self.wait(f"'{words}'", lambda: any(words in note for note in self.notes))

    def at_work(self, count: int) -> None:
        """Wait for so many workers, each with a chunk in hand."""
        self.wait(f"{count} workers", lambda: self.pool and sum(bool(m.tasks) for m in self.pool.members) >= count)

    def on(self, node) -> ray_pool.RayMember:
        assert self.pool is not None
        return next(m for m in self.pool.members if m.slot.node.id == node.node_id)


def same(store, models, expected) -> None:
    for model in models:
        for setting in SETTINGS:
            np.testing.assert_array_equal(tiny.logits(store, model, setting), expected[model, setting])


def labels(store) -> set[str]:
    from stored_results import evaluations

    return {d for e in evaluations(store) for d in e.provenance.other["devices"]}


# ---- the stories -----------------------------------------------------------------------------------------


def a_worker_and_a_node_are_killed_and_another_joins(story: Story) -> None:
    """All in the middle of chunks, of which none can end before the new node is at work."""
    expected = story.undisturbed(["tiny_patient"])
    with story.nodes(2) as (first, second):

        def meanwhile() -> None:
            story.at_work(2)
            os.kill(story.on(first).pid, signal.SIGKILL)
            story.cluster.remove_node(second, allow_graceful=False)
            story.told("died (its process has ended, often because memory ran out), starting another")
            story.told("died (its node does not answer), its chunks go to others")
            story.add()
            story.at_work(2)

        report, store = story.run("killed", ["tiny_patient"], meanwhile)
    assert not report.failed, story.notes
    assert len(labels(store)) == 2, labels(store)  # of the node that stayed and the one that joined
    same(store, ["tiny_patient"], expected)


def a_node_leaves_in_peace(story: Story) -> None:
    expected = story.undisturbed(["tiny_patient"])
    with story.nodes(2) as (_, second):

        def meanwhile() -> None:
            story.at_work(2)
            story.cluster.remove_node(second)
            story.told("died (its node has gone), its chunks go to others")

        report, store = story.run("left", ["tiny_patient"], meanwhile)
    assert not report.failed, story.notes
    same(store, ["tiny_patient"], expected)


def a_run_waits_for_the_first_node(story: Story) -> None:
    ray_pool._ALONE_S = 1.0
    with story.nodes(0):

        def meanwhile() -> None:
            story.told("waiting for a node that can be used")
            story.add()

        report, _ = story.run("waits", ["tiny_a"], meanwhile)
    assert not report.failed


def a_worker_that_hangs_is_ended(story: Story) -> None:
    with story.nodes(1):
        report, _ = story.run("hangs", ["tiny_hangs"], settings=["tiny"], timeout=4)
    assert not report.failed, story.notes
    assert any("ended after 4 s" in note for note in story.notes), story.notes


def results_in_a_folder_that_actors_do_not_see(story: Story) -> None:
    expected = story.undisturbed(["tiny_slow"])
    real = ray_orders._left_in
    ray_orders._left_in = lambda results: Token(str(results / "nowhere"), "")
    try:
        with story.nodes(2):
            report, store = story.run("unseen", ["tiny_slow"])
    finally:
        ray_orders._left_in = real
    assert not report.failed
    same(store, ["tiny_slow"], expected)


def a_gpu_that_torch_cannot_use(story: Story) -> None:
    with (
        story.nodes(1, num_gpus=1),
        pytest.raises(
            TestbedError, match=r"no node of the Ray cluster can be used; .*: it declares GPUs that torch cannot use"
        ),
    ):
        story.run("gpu", ["tiny_a"], devices=())


def a_killed_run_leaves_no_actor(story: Story) -> None:
    def actors() -> list[int]:
        return [pid for pid in descendants(os.getpid()) if "ray::RayWorker" in _title(pid) and state(pid) not in "Z"]

    folder = story.folder / "orphans"
    with story.nodes(2):
        command = [
            sys.executable,
            str(tiny.ROOT / "eval.py"),
            "--models",
            "tiny_slow",
            "--eval-settings",
            "tiny",
            "tiny.noise",
        ]
        command += ["--ray", story.cluster.address, "--gpus", "cpu", "--chunk-size", "16", "--threads", "1"]
        command += ["--db", str(folder / "results.db")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        story.wait("actors", lambda: len(actors()) == 2)
        story.wait("a chunk", lambda: parts(folder))
        process.send_signal(signal.SIGKILL)
        process.wait()
        story.wait("the end of the actors", lambda: not actors())


def the_head_is_killed(story: Story) -> None:
    """The cluster is of no use after it, so this comes last."""
    ray_cluster._HEAD_S = 2.0
    story.marker.unlink(missing_ok=True)  # which the worker makes when it begins to hang
    story.add()

    def meanwhile() -> None:
        story.wait("a worker that hangs", story.marker.exists)
        story.cluster.head_node.kill_gcs_server(check_alive=False)

    with pytest.raises(TestbedError, match=r"^the head of the Ray cluster, .*, does not answer \(.*; the same command"):
        story.run("headless", ["tiny_hangs"], meanwhile, settings=["tiny"])


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


STORIES = [
    a_worker_and_a_node_are_killed_and_another_joins,
    a_node_leaves_in_peace,
    a_run_waits_for_the_first_node,
    a_worker_that_hangs_is_ended,
    results_in_a_folder_that_actors_do_not_see,
    a_gpu_that_torch_cannot_use,
    a_killed_run_leaves_no_actor,
    the_head_is_killed,
]


def main(folder: Path, names: list[str]) -> None:
    story = Story(folder)
    try:
        for tell in [tell for tell in STORIES if tell.__name__ in names]:
            began, problem = time.monotonic(), ""
            try:
                tell(story)
            except BaseException:
                problem = traceback.format_exc()
            seconds = round(time.monotonic() - began, 1)
            print(json.dumps({"story": tell.__name__, "seconds": seconds, "problem": problem}), flush=True)
    finally:
        story.cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
