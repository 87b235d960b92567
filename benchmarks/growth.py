"""How time and memory of a run grow with images and with pairs: time in proportion, memory not at all.

    python benchmarks/growth.py [--most-images 16000] [--most-pairs 200] [--figure growth.png]

Models cost next to nothing, so that everything else is what is measured. Memory is the largest resident set of any
process of the run that is not shared with others (RssAnon), looked at ten times a second.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import CHEAP, ROOT, registry

SETTINGS = """
from testbed import ArrayDataset, EvalSetting
from testbed.entries import registry
from testbed.perturb.corruptions import corruption

for count in {counts!r}:
    data = ArrayDataset(path=f"{folder}/{{count}}", num_classes=4)
    for number in range({settings}):
        registry.add_eval_setting(EvalSetting(name=f"images-{{count}}-{{number}}", dataset=data))
        blurred = dict(dataset=data, perturbation_fn_cpu=corruption("glass_blur", 5))
        registry.add_eval_setting(EvalSetting(name=f"blurred-{{count}}-{{number}}", **blurred))
"""


def anonymous_mb(pid: int) -> float:
    """Of a process and all below it: the largest."""
    most = 0.0
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        most = int(status.split("RssAnon:")[1].split()[0]) / 1024
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            most = max(most, anonymous_mb(int(child)))
    except (OSError, IndexError):
        pass
    return most


def run(entries: Path, db: Path, models: list[str], settings: list[str]) -> tuple[float, float]:
    """Seconds, and MB of the largest process."""
    command = [sys.executable, str(ROOT / "eval.py"), "--models", *models, "--eval-settings", *settings]
    command += ["--gpus", "cpu", "--threads", "1", "--registry", str(entries), "--db", str(db)]
    began, most = time.perf_counter(), 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        most = max(most, anonymous_mb(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - began, most


def linearity(x: list[float], y: list[float]) -> float:
    return float(np.corrcoef(x, y)[0, 1] ** 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most-images", type=int, default=16_000)
    parser.add_argument("--most-pairs", type=int, default=200)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    images = [options.most_images // 16, options.most_images // 4, options.most_images]
    memory = [2_000, 20_000]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        models = CHEAP.format(count=1).replace("StandardTransform(256, 224)", "None")
        counts = sorted({*images, *memory})
        for count in counts:  # mapped into memory by whoever reads them
            (folder / str(count)).mkdir()
            pixels = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
            np.save(folder / str(count) / "data.npy", pixels, allow_pickle=False)
            np.save(folder / str(count) / "labels.npy", np.arange(count) % 4, allow_pickle=False)
        settings = SETTINGS.format(counts=counts, settings=200, folder=folder)
        entries = registry(folder, models=models, eval_settings=settings)
        measured: dict[str, list[tuple[int, float, float]]] = {"images": [], "pairs": [], "memory": []}
        for count in images:
            measured["images"].append(
                (count, *run(entries, folder / f"i{count}/r.db", ["cheap_0"], [f"blurred-{count}-0"]))
            )
        for pairs in (1, 4, 16):
            names = [f"blurred-{images[1]}-{number}" for number in range(pairs)]
            measured["pairs"].append((pairs, *run(entries, folder / f"p{pairs}/r.db", ["cheap_0"], names)))
        for count, pairs in ((memory[0], 4), (memory[1], 4), (memory[0], options.most_pairs)):
            names = [f"images-{count}-{number}" for number in range(pairs)]
            seconds, most = run(entries, folder / f"m{count}-{pairs}/r.db", ["cheap_0"], names)
            print(f"{count:8} images x {pairs:4} pairs: {seconds:6.1f} s, largest process {most:6.0f} MB", flush=True)
    for what in ("images", "pairs"):
        x, y = [float(row[0]) for row in measured[what]], [row[1] for row in measured[what]]
        told = ", ".join(f"{int(a):,}: {b:.1f} s" for a, b in zip(x, y, strict=True))
        print(f"time by {what}: {told}; r2 = {linearity(x, y):.4f}")
    if options.figure:
        draw(measured, options.figure)


def draw(measured: dict[str, list[tuple[int, float, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2))
    for axis, what in zip(axes, ("images", "pairs"), strict=True):
        x, y = [row[0] for row in measured[what]], [row[1] for row in measured[what]]
        axis.plot(x, y, "o")
        axis.axline((0, float(np.polyfit(x, y, 1)[1])), slope=float(np.polyfit(x, y, 1)[0]), linewidth=1)
        axis.set_xlabel(what)
        axis.set_ylabel("seconds, with starting up")
        axis.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
