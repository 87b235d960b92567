"""Four models with one preparation on 19 corruptions against one model; the models cost nothing.

    python benchmarks/sharing.py [--images 256] [--rounds 1] [--gpus 0]

What is compared is the whole of eval.py, less the time it takes on no images at all (starting up).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from common import CHEAP, CORRUPTED, SHARED, evaluate, photographs, registry

from testbed.perturb.corruptions import CORRUPTIONS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--gpus", nargs="*", default=["cpu"])
    options = parser.parse_args()
    names = [name for name in CORRUPTIONS if name != "frost" or (SHARED / "frost").is_dir()]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pictures = photographs(folder, options.images)
        entries = registry(
            folder,
            models=CHEAP.format(count=4),
            eval_settings=CORRUPTED.format(folder=str(pictures), names=names, severity=3),
        )
        words = ["--gpus", *options.gpus, "--eval-settings"]
        evaluate(folder / "warm/results.db", entries, "--models", "cheap_0", *words, "clean")  # decodes the pictures
        taken: dict[int, list[float]] = {1: [], 4: []}
        for turn in range(options.rounds):
            start = evaluate(folder / f"start{turn}/results.db", entries, "--models", "cheap_0", *words, "clean")
            for count in taken:
                models = [f"cheap_{i}" for i in range(count)]
                db = folder / f"{turn}-{count}/results.db"
                taken[count].append(evaluate(db, entries, "--models", *models, *words, *names) - start)
    one, four = min(taken[1]), min(taken[4])
    print(f"{len(names)} corruptions of {options.images} photographs, less {start:.1f} s for starting up")
    print(f"one model   {one:7.1f} s")
    print(f"four models {four:7.1f} s, {four / one:.2f} times as long")


if __name__ == "__main__":
    main()
