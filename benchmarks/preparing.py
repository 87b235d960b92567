"""Two preparing processes against one, for every corruption, with somebody who takes the batches and does nothing.

    python benchmarks/preparing.py [--images 512] [--rounds 3] [NAME ...]

Both pools are there all the time and take turns; the least time of the rounds counts, since other work on the machine
only ever adds to it. Starting up, tables and matrices, which are made once, are left out by a round before. Two cores
that are not busy otherwise are needed. The last columns are microseconds of processor time for each picture, with two:
of the preparing processes, of the broker, and of the one who takes the batches. `bound` is the ratio that the last two
leave on two cores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from common import CHEAP, CORRUPTED, SHARED, photographs, processor_s, registry

from testbed.engine.pools import end_processes
from testbed.engine.preparing import Order, Tally
from testbed.engine.preparing_pool import PreparingPool
from testbed.engine.shared_preparing import SharedPreparer
from testbed.entries.registry import load_registry
from testbed.options import RunOptions
from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS


class Spent(NamedTuple):
    """Seconds: by the clock, and of the processor."""

    clock: float
    preparing: float
    broker: float
    taking: float


def spent(pool: PreparingPool, preparer: SharedPreparer, order: Order) -> Spent:
    before = times_of(pool)
    for _ in preparer.batches(order, Tally()):
        pass
    return Spent(*(b - a for a, b in zip(before, times_of(pool), strict=True)))


def times_of(pool: PreparingPool) -> Spent:
    broker = pool.pid
    assert broker is not None
    children = Path(f"/proc/{broker}/task/{broker}/children").read_text().split()
    prepared = sum(processor_s(int(child)) for child in children)
    return Spent(time.perf_counter(), prepared, processor_s(broker), time.process_time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ.setdefault("TESTBED_FROST", str(SHARED / "frost"))
    names = options.names or [n for n in CORRUPTIONS + BAR_CORRUPTIONS if n != "frost" or (SHARED / "frost").is_dir()]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pictures = str(photographs(folder, options.images))
        settings = CORRUPTED.format(folder=pictures, names=names, severity=3)
        entries = registry(folder, models=CHEAP.format(count=1), eval_settings=settings)
        run = RunOptions(registry=(str(entries),), cache_folder=str(folder / "cache"))
        known = load_registry(run.registry)
        pools = {processes: PreparingPool(run, processes, 1) for processes in (1, 2)}
        preparers = {n: SharedPreparer(run, pool.connection(0), "cpu", print) for n, pool in pools.items()}
        print(f"{'':28}{'images/s by':>16}{'':>16}{'us of the processor for an image':>36}")
        print(f"{'corruption':28}{'one':>8}{'two':>8}{'ratio':>8}{'bound':>8}{'prepare':>10}{'broker':>10}{'take':>8}")
        for name in ["clean", *names]:
            setting = known.runnable(name)
            rows = setting.rows(preparers[1].samples(setting))
            order = Order(setting, known.model("cheap_0"), rows, 64)
            rounds: dict[int, list[Spent]] = {1: [], 2: []}
            for turn in range(options.rounds + 1):
                for processes, preparer in preparers.items():
                    taken = spent(pools[processes], preparer, order)
                    if turn:
                        rounds[processes].append(taken)
            one, two = (Spent(*map(min, zip(*of, strict=True))) for of in rounds.values())
            bound = 2 * two.preparing / sum(two[1:])
            each = [seconds / len(rows) * 1e6 for seconds in two[1:]]
            parts = f"{each[0]:10.1f}{each[1]:10.1f}{each[2]:8.1f}"
            speed = f"{len(rows) / one.clock:8.0f}{len(rows) / two.clock:8.0f}{one.clock / two.clock:8.2f}{bound:8.2f}"
            print(f"{name:28}{speed}{parts}", flush=True)
        for pool in pools.values():
            pool.close(end_processes)


if __name__ == "__main__":
    main()
