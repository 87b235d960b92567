"""The parent of a run with a thousand devices: what scheduling and bookkeeping cost, and how busy the devices are.

    python benchmarks/scale.py [--devices 1000] [--models 2000] [--settings 4] [--db postgresql+psycopg://...]
    python benchmarks/scale.py --plan-only --settings 400 [--stored]
    python benchmarks/scale.py --joining

The devices are simulated (benchmarks/simulated.py says with which numbers) and cost no time; the clock that they see
goes on while the parent is at work, so a parent that is too slow leaves them idle. Planning, bundles, dispatcher,
recorder and database are the real ones. The files of chunks are not written: `--joining` measures what it takes to join
and measure those of one pair, and `--joining-s` adds so many seconds for each pair to the parent's time.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from simulated import STARTING_S, SimulatedPool, SimulatedRecorder, seconds_per_image, simulated_registry

from testbed.engine.bundles import bundles_of
from testbed.engine.dispatch import Dispatcher
from testbed.engine.pairs import Plan
from testbed.engine.plan import make_plan
from testbed.engine.progress import Silent
from testbed.entries.registry import Registry
from testbed.options import DEFAULT_CHUNK, RunOptions
from testbed.store import files
from testbed.store.database import Store
from testbed.store.opening import open_store

_BOOKKEEPING = ("begin", "chunks", "finish", "completed_id")
_SIMULATION = ("give", "events")


class Spent:
    """Seconds by method: the processor's, and those that went by."""

    def __init__(self) -> None:
        self.processor: dict[str, float] = {}
        self.elapsed: dict[str, float] = {}

    def watch(self, thing: Any, *names: str) -> None:
        """Count what these methods of an object take."""
        for name in names:
            setattr(thing, name, self.counted(getattr(thing, name), name))

    def counted(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        self.processor[name] = self.elapsed[name] = 0.0

        @wraps(method)
        def call(*args: Any, **named: Any) -> Any:
            processor, elapsed = time.thread_time(), time.perf_counter()
            try:
                return method(*args, **named)
            finally:
                self.processor[name] += time.thread_time() - processor
                self.elapsed[name] += time.perf_counter() - elapsed

        return call


@dataclass(frozen=True)
class Result:
    """What a simulated run came to."""

    pairs: int
    chunks: int  # rows of the database: a task of sixteen models is as many
    hours: float  # simulated, from the moment the workers have started
    tail_s: float  # after the last chunk was given
    busy: float  # share of the time before the tail
    loading: float  # the part of it in which models were loaded
    scheduling_ms: float  # for each chunk
    chunk_ms: float  # to record a chunk: of the processor
    chunk_elapsed_ms: float
    pair_ms: float  # to begin and to complete a pair, but for its files
    pair_elapsed_ms: float


def simulate(
    registry: Registry,
    store: Store,
    plan: Plan,
    options: RunOptions,
    devices: int,
    joining_s: float = 0.0,
    waits_for: str = "processor",
) -> Result:
    """`waits_for`: what of the parent's time devices wait for. With "nothing" every run comes to the same."""
    spent = Spent()
    recorder = SimulatedRecorder(store, registry, options, joining_s=joining_s)
    clocks = {"processor": (time.thread_time, spent.processor), "elapsed": (time.perf_counter, spent.elapsed)}
    clock, of_methods = clocks.get(waits_for, (lambda: 0.0, dict.fromkeys(_SIMULATION, 0.0)))
    began = clock()

    def at_work() -> float:
        return recorder.joined_s + clock() - began - sum(of_methods[name] for name in _SIMULATION)

    paces = seconds_per_image(sorted(registry.models.entries))
    pool = SimulatedPool(devices, paces, at_work)
    spent.watch(pool, *_SIMULATION)
    spent.watch(recorder, *_BOOKKEEPING)
    dispatcher = Dispatcher(plan, pool, recorder, Silent())
    run = spent.counted(dispatcher.run, "run")
    store.begin_run()
    with store.at_work():
        outcome = run()
    store.end_run()
    assert not outcome.failed, outcome.failed[0].error
    end, tail = max(pool.now, *(device.free_s for device in pool.devices.values())), pool.last_given
    pairs, chunks = len(outcome.completed), pool.chunks
    used, waited = spent.processor, spent.elapsed
    ms_of_chunk, ms_of_pair = 1000 / chunks, 1000 / pairs
    busy, loading = pool.busy(STARTING_S, tail)
    return Result(
        pairs=pairs,
        chunks=chunks,
        hours=(end - STARTING_S) / 3600,
        tail_s=end - tail,
        busy=busy,
        loading=loading,
        scheduling_ms=(used["run"] - sum(used[name] for name in (*_SIMULATION, *_BOOKKEEPING))) * ms_of_chunk,
        chunk_ms=used["chunks"] * ms_of_chunk,
        chunk_elapsed_ms=waited["chunks"] * ms_of_chunk,
        pair_ms=sum(used[name] for name in ("begin", "finish", "completed_id")) * ms_of_pair,
        pair_elapsed_ms=sum(waited[name] for name in ("begin", "finish", "completed_id")) * ms_of_pair,
    )


def entries_of(registry: Registry) -> tuple[list[str], list[str]]:
    return list(registry.models.entries), list(registry.eval_settings.entries)


def resident_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--models", type=int, default=2000)
    parser.add_argument("--settings", type=int, default=4)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--chunk-size", type=int, default=DEFAULT_CHUNK)
    parser.add_argument("--db", help="a URL; without it a database in a temporary file")
    parser.add_argument("--plan-only", action="store_true")
    parser.add_argument("--stored", action="store_true", help="with --plan-only, of pairs that are all done")
    parser.add_argument("--joining", action="store_true", help="the files of one pair, and nothing else")
    parser.add_argument("--joining-s", type=float, default=0.0)
    parser.add_argument(
        "--elapsed", action="store_true", help="devices wait for the database too, not only for the CPU"
    )
    asked = parser.parse_args()
    if asked.stored and not asked.plan_only:
        parser.error("--stored is for --plan-only")
    with tempfile.TemporaryDirectory() as folder:
        place = asked.db or str(Path(folder) / "results.db")
        registry = simulated_registry(asked.models, asked.settings, asked.images)
        if asked.stored:
            from store import fill  # of the benchmark beside this one

            own = dict(dataset_fingerprint=f"numbered-{asked.images}", source="own", variant="", dtype="float32")
            fill(place, *entries_of(registry), **own)
        store = open_store(place, create=True)
        store.folder = Path(folder)
        options = RunOptions(cache_folder=f"{folder}/cache", results_folder=folder, chunk_size=asked.chunk_size)
        if asked.joining:
            show_joining(registry, store, options)
            return
        before_mb, began = resident_mb(), time.thread_time()
        plan = make_plan(registry, store, *entries_of(registry), options)
        planned = time.thread_time()
        bundles = bundles_of(plan, registry, options, asked.devices)
        print(f"{len(plan.pairs):,} pairs planned in {planned - began:.1f} s", end=", ")
        print(f"in {len(bundles):,} bundles {time.thread_time() - planned:.1f} s", end="; ")
        print(f"{resident_mb() - before_mb:.0f} MB", flush=True)
        del bundles
        if not asked.plan_only:
            waits_for = "elapsed" if asked.elapsed else "processor"
            show(simulate(registry, store, plan, options, asked.devices, asked.joining_s, waits_for))
        print(f"database {size_mb(store):,.0f} MB")
        store.engine.dispose()


def size_mb(store: Store) -> float:
    asked = (
        "SELECT pg_database_size(current_database())"
        if store.on_server
        else "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    )
    with store.reading() as connection:
        return connection.execute(sa.text(asked)).scalar_one() / 1e6


def show_joining(registry: Registry, store: Store, options: RunOptions) -> None:
    """Chunks of one pair on disk, with the logits of 1,000 classes: joined, checksummed and measured."""
    plan = make_plan(registry, store, *([next(iter(names))] for names in entries_of(registry)), options)
    (pair,) = plan.pairs
    assert pair.rows is not None
    chance = np.random.default_rng(0)
    samples, target = store.folder / "samples.npz", store.folder / "logits.npy"
    files.save_rows(samples, pair.rows)
    files.make_parts_folder(files.parts_folder(target))
    starts = range(0, pair.n_images, options.chunk_size)
    for start in starts:
        rows = min(options.chunk_size, pair.n_images - start)
        logits = chance.standard_normal((rows, 1000), dtype=np.float32)
        files.write_part(files.parts_folder(target), start, {"logits": logits})
    recorder = SimulatedRecorder(store, registry, options)
    took = []
    for _ in range(3):  # the first brings the imports
        began, elapsed = time.process_time(), time.perf_counter()
        joined = recorder.really_joined(pair, target, samples, starts, [])
        took.append((time.process_time() - began, time.perf_counter() - elapsed))
    print(
        f"{pair.n_images:,} images in {len(starts)} chunks, {joined.n_bytes / 1e6:,.0f} MB: joined and measured in",
        end=" ",
    )
    print("{:.2f} s of the processor ({:.2f} s went by)".format(*min(took)))


def show(result: Result) -> None:
    print(f"{result.pairs:,} pairs in {result.chunks:,} chunks: {result.hours:.2f} hours of simulated time")
    print(f"devices busy until the tail {result.busy:.2%}, {result.loading:.2%} of it loading models", end="; ")
    print(f"tail {result.tail_s:.0f} s ({result.tail_s / result.hours / 3600:.2%})")
    print("milliseconds of the processor, and in brackets that went by:")
    print(f"  scheduling, a chunk  {result.scheduling_ms:7.3f}")
    print(f"  recording, a chunk   {result.chunk_ms:7.3f} ({result.chunk_elapsed_ms:.3f})")
    print(f"  beginning and completing, a pair {result.pair_ms:7.2f} ({result.pair_elapsed_ms:.2f})")
    print(f"largest memory {resident_mb():.0f} MB")


if __name__ == "__main__":
    main()
