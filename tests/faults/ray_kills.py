"""Runs on a real Ray cluster, with kills at random moments. A program of its own: see test_random_kills.py.

    python ray_kills.py FOLDER ROUNDS

It needs a network namespace with loopback alone, since Ray listens on every interface. It prints a line per round, and
ends with the first one that fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import tiny
from faults.killing import IN_THIS_PROCESS, MODELS, SETTINGS, Place, Round, command_of, kill
from faults.running import state, wait_until

VICTIMS = {"actor": "Ray actor", "node": "Ray node", "run": "run on Ray"}
_SMALL = dict(object_store_memory=80 << 20)
_NODES = 2  # with a CPU each, beside a head that computes nothing


class RayRound(Round):
    """A round on a cluster, which has its nodes again when a node was killed."""

    def on(self, cluster: Any) -> RayRound:
        self.cluster = cluster
        return self

    def aimed(self, victim: str, run: subprocess.Popen[str]) -> Callable[[], None]:
        if victim == "run":
            return super().aimed(victim, run)
        wait_until(actors, run)
        if victim == "actor":
            return lambda: kill(self.random.choice(actors()))
        node = self.random.choice(nodes(self.cluster))
        return lambda: self.cluster.remove_node(node, allow_graceful=False)

    def recover(self, run: subprocess.Popen[str], began: float) -> None:
        super().recover(run, began)
        refill(self.cluster)


def nodes(cluster: Any) -> list[Any]:
    return [node for node in cluster.list_all_nodes() if node is not cluster.head_node]


def refill(cluster: Any) -> None:
    while len(nodes(cluster)) < _NODES:
        cluster.add_node(num_cpus=1, **_SMALL)


def actors() -> list[int]:
    """Of this cluster, since the process namespace has no other."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if "ray::RayWorker" in command_of(pid) and state(pid) not in ("", "Z")]


def main(folder: Path, rounds: int) -> int:
    from ray.cluster_utils import Cluster

    _, store = tiny.run(folder / "undisturbed", MODELS, SETTINGS, **IN_THIS_PROCESS)
    undisturbed = {(model, setting): tiny.logits(store, model, setting) for model in MODELS for setting in SETTINGS}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **_SMALL})
    refill(cluster)
    workers = ("--ray", cluster.address, "--gpus", "cpu")
    problem = ""
    try:
        for number in range(rounds * len(VICTIMS)):
            victim = [*VICTIMS][number % len(VICTIMS)]
            there = folder / f"round {number}"
            place = Place(there, str(there / "results.db"), workers=workers)
            tried = RayRound(place, Random(f"{victim} {number}")).on(cluster)
            try:
                tried.survive([victim])
                tried.check(undisturbed)
                wait_until(lambda: not actors())
            except BaseException:
                problem = f"{victim} {number}; killed: {', '.join(tried.said)}\n{traceback.format_exc()}"
            place.close()
            print(json.dumps({"kind": VICTIMS[victim], "resumed": tried.resumed_s, "problem": problem}), flush=True)
            if problem:
                break
    finally:
        cluster.shutdown()
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TINY_MARKER", os.devnull)
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
