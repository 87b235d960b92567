"""Two preparing processes against one, for every corruption, with somebody who takes the batches and does nothing.

    python benchmarks/preparing.py [--images 512] [--rounds 3] [NAME ...]

Both pools are there all the time and take turns; the least time of the rounds counts, since other work on the machine
only ever adds to it. Starting up, tables and matrices, which are made once, are left out by a round before. Two cores
that are not busy otherwise are needed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from common import CHEAP, CORRUPTED, SHARED, photographs, registry

from testbed.engine.pools import end_processes
from testbed.engine.preparing import Order, Tally
from testbed.engine.preparing_pool import PreparingPool
from testbed.engine.shared_preparing import SharedPreparer
from testbed.entries.registry import load_registry
from testbed.options import RunOptions
from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS


def seconds(preparer: SharedPreparer, order: Order) -> float:
    began = time.perf_counter()
    for _ in preparer.batches(order, Tally()):
        pass
    return time.perf_counter() - began


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
        print(f"{'corruption':28}{'one, images/s':>15}{'two, images/s':>15}{'ratio':>8}")
        for name in ["clean", *names]:
            setting = known.runnable(name)
            rows = setting.rows(preparers[1].samples(setting))
            order = Order(setting, known.model("cheap_0"), rows, 64)
            least = dict.fromkeys(preparers, float("inf"))
            for turn in range(options.rounds + 1):
                for processes, preparer in preparers.items():
                    taken = seconds(preparer, order)
                    if turn:
                        least[processes] = min(least[processes], taken)
            one, two = least[1], least[2]
            print(f"{name:28}{len(rows) / one:15.0f}{len(rows) / two:15.0f}{one / two:8.2f}", flush=True)
        for pool in pools.values():
            pool.close(end_processes)


if __name__ == "__main__":
    main()
