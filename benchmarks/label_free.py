"""Every label-free method over 1,000 stored sets of 10,000 x 10 logits: 60 s at most, in the memory of 100 sets."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

IMAGES, CLASSES, FEATURES = 10_000, 10, 64
DIFFERENT = 20  # sets that really differ; the others read the same files under other names


def fill(folder: Path, sets: int) -> None:
    """A database with one model on `clean`, `fit-NNNN` and `test-NNNN`, as a run leaves it."""
    from testbed.data.rows import Rows
    from testbed.metrics.estimate import Estimate
    from testbed.store import files
    from testbed.store.claims import Work
    from testbed.store.opening import open_store

    store = open_store(str(folder / "results.db"), create=True)
    store.begin_run()
    rng = np.random.default_rng(0)
    targets = np.arange(IMAGES) % CLASSES
    ids = np.array([f"{i:05d}" for i in range(IMAGES)])
    files.save_rows(folder / "samples.npz", Rows(ids, targets, np.arange(IMAGES)))
    weight = rng.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    for number in range(DIFFERENT):
        # The first sets are hard, the last ones easy: lines need a span to be fitted on.
        logits = rng.normal(size=(IMAGES, CLASSES)).astype(np.float32)
        logits[np.arange(IMAGES), targets] += 1 + 4 * number / DIFFERENT
        path = folder / f"set-{number}.npy"
        np.save(path, 2 * logits, allow_pickle=False)
        np.save(files.array_path(path, "features"), logits @ weight, allow_pickle=False)
    names = ["clean", *(f"{'fit' if i % 2 else 'test'}-{i:04d}" for i in range(sets))]
    model = store.ensure_model("model")
    for number, name in enumerate(names):
        held = store.claim(model, store.ensure_eval_setting(name, 1), "", Work(IMAGES), resumable=False)
        store.complete(
            held.evaluation_id,
            {"top1": Estimate(50.0, None, None, IMAGES)},
            logits_path=f"set-{(DIFFERENT - 1 + number) % DIFFERENT}.npy",
            samples_path="samples.npz",
            provenance={"recorded": ["features"], "bad_rows": []},
        )
    store.end_run()


def measure(sets: int) -> tuple[float, float]:
    """Seconds and megabytes of autoeval.py in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, sets)
        script = Path(__file__).parents[1] / "autoeval.py"
        words = ["--models", "model", "--source", "clean", "--fit", "fit-*", "--test", "test-*", "--summary"]
        before = time.perf_counter()
        subprocess.run([sys.executable, script, *words, "--db", folder / "results.db"], check=True, capture_output=True)
        seconds = time.perf_counter() - before
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    few = measure(100)  # the smaller first: the peak of all children is what the system tells
    many = measure(1_000)
    print(f"  100 sets: {few[0]:6.1f} s, {few[1]:6.0f} MB")
    print(f"1,000 sets: {many[0]:6.1f} s, {many[1]:6.0f} MB ({many[1] / few[1]:.2f} times the memory)")


if __name__ == "__main__":
    main()
