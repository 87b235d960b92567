"""What benchmarks share: pictures to work on, a registry of their own, runs of eval.py and what they stored."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("TESTBED_SHARED_DATA") or ROOT.parent / "shared" / "data")


def photographs(folder: Path, count: int) -> Path:
    """A folder of class folders with `count` photographs: the shared ones as links, or invented ones."""
    from PIL import Image

    target = folder / f"photographs-{count}"
    found = sorted((SHARED / "imagenet-samples").glob("*/*"))
    rng = np.random.default_rng(0)
    for number in range(count):
        place = target / f"class_{number % 4}"
        place.mkdir(parents=True, exist_ok=True)
        if found:
            (place / f"{number:06d}.jpg").symlink_to(found[number % len(found)].resolve())
        else:
            rough = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
            resized = Image.fromarray(rough).resize((500, 375), Image.Resampling.BICUBIC)
            resized.save(place / f"{number:06d}.jpg", quality=90)
    return target


def registry(folder: Path, **files: str) -> Path:
    """A registry of its own: `models` and `eval_settings` as the text of their files."""
    target = folder / "registry"
    for kind, text in files.items():
        (target / kind).mkdir(parents=True, exist_ok=True)
        (target / kind / "made.py").write_text(text)
    return target


class Taken(NamedTuple):
    """What a command took. On a machine with other work processor time says more, as far as caches allow."""

    seconds: float
    processor_s: float  # of all its processes


def measured(command: Sequence[str]) -> Taken:
    """A command until its output ends, and the processor time of everything it has started."""
    environment = {**os.environ, "TESTBED_FROST": os.environ.get("TESTBED_FROST", str(SHARED / "frost"))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles the modules it imports
    # PR_SET_CHILD_SUBREAPER: who outlives its parent becomes a child of this process, and is counted.
    adopt_orphans = 36
    ctypes.CDLL(None).prctl(adopt_orphans, 1, 0, 0, 0)
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    taken = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    try:
        while True:
            os.wait()
    except ChildProcessError:
        after = os.times()
    return Taken(taken, sum(after[2:4]) - sum(before[2:4]))


def evaluated(db: Path, registry_folder: Path, *words: str) -> Taken:
    """What eval.py takes."""
    entries = ["--registry", str(registry_folder), "--db", str(db)]
    return measured([sys.executable, str(ROOT / "eval.py"), *words, *entries])


def evaluate(db: Path, registry_folder: Path, *words: str) -> float:
    """Seconds that eval.py takes."""
    return evaluated(db, registry_folder, *words).seconds


def processor_s(pid: int) -> float:
    """What a process has computed so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def stored(db: Path, column: str = "seconds") -> dict[tuple[str, str], float]:
    """A column of the evaluations, by model and setting."""
    query = (
        f"SELECT m.name, s.name, e.{column} FROM evaluations e "
        "JOIN models m ON m.id = e.model_id JOIN eval_settings s ON s.id = e.eval_setting_id"
    )
    with sqlite3.connect(db) as connection:
        return {(model, setting): value for model, setting, value in connection.execute(query)}


# A model that costs nothing: it looks at one pixel.
CHEAP = """
from testbed import Model, StandardTransform
from testbed.entries import registry


class OnePixel:
    def __call__(self, images):
        return images[:, :, 0, 0].repeat(1, 2)[:, :4].contiguous()


for i in range({count}):
    registry.add_model(
        Model(f"cheap_{{i}}", StandardTransform(256, 224), OnePixel, eval_batch_size=64)
    )
"""
CORRUPTED = """
from testbed import EvalSetting, StandardDataset
from testbed.entries import registry
from testbed.perturb.corruptions import corruption

PHOTOGRAPHS = StandardDataset(path={folder!r})
registry.add_eval_setting(EvalSetting(name="clean", dataset=PHOTOGRAPHS))
for name in {names!r}:
    change = corruption(name, {severity})
    registry.add_eval_setting(EvalSetting(name=name, dataset=PHOTOGRAPHS, perturbation_fn_cpu=change))
"""
