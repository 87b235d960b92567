"""The demo's digits on four kinds of machinery, whose logits and numbers must be the same: `make scale-demo`.

1. a database in a file, one worker
2. a PostgreSQL server, three shards at the same time
3. a Ray cluster of two nodes, in a network with loopback alone
4. logits in object storage, behind a server with the interface of S3

Servers are thrown away at the end. What cannot be had here is told, and fails the command. The servers and the closed
network are those of the tests, so tests/ must be among the places of modules: PYTHONPATH=src:tests.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from closed_network import NoClosedNetwork, closed_off
from object_storage import ObjectStorage
from postgres_server import NoServer, serving

ROOT = Path(__file__).resolve().parents[1]
WHAT = ["--models", "digits-models", "--eval-settings", "digits-demo"]
# The same threads everywhere: sums of floating-point numbers depend on how they are shared out.
ONE_WORKER = ["--gpus", "cpu", "--threads", "1"]
SHARDS = 3
NODES = 2
_ON_RAY = "on-ray"  # this program inside the closed network


@dataclass(frozen=True)
class Place:
    """Where a run keeps its results: a database, and the variables of the environment that go with it."""

    db: str
    environment: Mapping[str, str]

    def command(self, *more: str) -> list[str]:
        return [sys.executable, str(ROOT / "eval.py"), *WHAT, *ONE_WORKER, "--db", self.db, *more]


class Failed(Exception):
    """A step that did not end well, and what it said."""


# ---- the four kinds ---------------------------------------------------------------------------------------------


@contextmanager
def in_a_file(folder: Path) -> Iterator[Place]:
    place = Place(str(folder / "results.db"), {})
    run(place)
    yield place


@contextmanager
def on_a_server(folder: Path) -> Iterator[Place]:
    """Shards on one server claim pairs, and one that has ended its own share helps the others."""
    with serving() as server:
        place = Place(server.url, {"TESTBED_RESULTS": str(folder)})
        run(place, *(("--shard", f"{number}/{SHARDS}") for number in range(1, SHARDS + 1)))
        yield place


@contextmanager
def on_ray(folder: Path) -> Iterator[Place]:
    place = Place(str(folder / "results.db"), {})
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        closed = [*closed_off(), sys.executable, __file__, _ON_RAY, place.db]
        wait_for([start(closed, {"RAY_TMPDIR": short, "RAY_USAGE_STATS_ENABLED": "0"})])
    yield place


def inside_of_closed_network(db: str) -> None:
    """A head without workers and two nodes with one processor each, then the usual command."""
    from ray.cluster_utils import Cluster

    small = dict(object_store_memory=80 << 20)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(NODES):
        cluster.add_node(num_cpus=1, **small)
    run(Place(db, {}), ("--ray", cluster.address))
    cluster.shutdown()


@contextmanager
def in_object_storage(folder: Path) -> Iterator[Place]:
    storage = ObjectStorage()
    try:
        with of_environment(storage.environment):
            storage.new_bucket()
            place = Place(str(folder / "results.db"), storage.environment)
            run(place, ("--logits", storage.root))
            yield place
    finally:
        storage.close()


KINDS: dict[str, Callable[[Path], AbstractContextManager[Place]]] = {
    "a database in a file": in_a_file,
    f"PostgreSQL, {SHARDS} shards": on_a_server,
    f"Ray, {NODES} nodes": on_ray,
    "logits in S3": in_object_storage,
}


# ---- running ----------------------------------------------------------------------------------------------------


def run(place: Place, *runs: tuple[str, ...]) -> None:
    """eval.py once, or several at the same time, each with more words."""
    wait_for([start(place.command(*more), place.environment) for more in runs or ((),)])


def start(command: list[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    print(f"  $ {shlex.join(command[1:]).replace(str(ROOT) + '/', '')}", flush=True)
    environment = {**os.environ, **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(processes: list[subprocess.Popen[str]]) -> None:
    said = [process.communicate()[0] for process in processes]
    for process, text in zip(processes, said, strict=True):
        if process.returncode:
            raise Failed(f"exit code {process.returncode}\n{text}")


@contextmanager
def of_environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


# ---- comparing --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Results:
    logits: Mapping[tuple[str, str], str]  # (model, setting) -> sha256 of what is read back
    numbers: Mapping[tuple[str, str, str], float | None]


def results_of(place: Place) -> Results:
    """All that was stored, read back through the doors that everybody uses."""
    import hashlib

    from testbed.entries.registry import load_registry
    from testbed.store.find import find, numbers
    from testbed.store.measuring import outputs_of
    from testbed.store.opening import open_store

    with of_environment(place.environment):
        store, registry = open_store(place.db), load_registry()
        digests = {}
        for evaluation in find(store):
            logits = outputs_of(store, registry, evaluation).logits
            digests[evaluation.model, evaluation.eval_setting] = hashlib.sha256(logits.tobytes()).hexdigest()
        told = {(n.model, n.eval_setting, n.metric): n.value for n in numbers(store)}
        store.engine.dispose()
    return Results(digests, told)


def differences(first: Results, other: Results) -> int:
    """How many logits and numbers are not the same, or stand on one side only."""
    pairs = first.logits.keys() | other.logits.keys()
    told = first.numbers.keys() | other.numbers.keys()
    logits = sum(first.logits.get(key) != other.logits.get(key) for key in pairs)
    return logits + sum(first.numbers.get(key, "none") != other.numbers.get(key, "none") for key in told)


def main() -> int:
    for name in [name for name in os.environ if name.startswith("TESTBED_")]:
        del os.environ[name]  # the results, entries and caches of whoever calls it are left alone
    reference: Results | None = None
    lines, bad = [], False
    with tempfile.TemporaryDirectory(prefix="testbed-scale-demo-") as folder:
        for number, (name, kind) in enumerate(KINDS.items()):
            print(name, flush=True)
            began = time.monotonic()
            try:
                with kind(Path(folder) / str(number)) as place:
                    seconds = time.monotonic() - began
                    results = results_of(place)
            except (Failed, NoClosedNetwork, NoServer, ImportError) as problem:
                print(f"  {problem}", flush=True)
                lines.append(f"{name:24} could not be run, see above")
                bad = True
                continue
            reference = reference or results
            unlike = differences(reference, results)
            counts = f"{len(results.logits)} logits, {len(results.numbers)} numbers"
            verdict = f"{unlike} differ" if unlike else "the reference" if results is reference else "all the same"
            lines.append(f"{name:24} {seconds:5.0f} s   {counts}: {verdict}")
            bad = bad or bool(unlike)
    print("\n" + "\n".join(lines))
    return int(bad)


if __name__ == "__main__":
    if sys.argv[1:2] == [_ON_RAY]:
        try:
            inside_of_closed_network(sys.argv[2])
        except Failed as problem:
            sys.exit(str(problem))
    else:
        sys.exit(main())
