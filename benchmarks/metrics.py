"""Metrics of 50,000 x 1000 stored logits: every metrics function, from the file on disk.

python benchmarks/metrics.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.categories16 import NAMES
from testbed.metrics.classification import classification
from testbed.metrics.shape_bias import CueConflict

ROWS, CLASSES = 50_000, 1_000


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "logits.npy"
        rng = np.random.default_rng(0)
        targets = rng.integers(0, CLASSES, ROWS)
        logits = rng.standard_normal((ROWS, CLASSES), dtype=np.float32)
        logits[np.arange(ROWS), targets] += 4
        np.save(path, logits, allow_pickle=False)
        del logits
        # As if every row were a cue-conflict stimulus.
        shapes, textures = (rng.choice(NAMES, ROWS) for _ in range(2))
        paths = [f"{s}/{s}1-{t}2.png" for s, t in zip(shapes, textures, strict=True)]
        for name, function, more in (
            ("top1, top5", accuracy_topk, targets),
            ("top1, top5, NLL, Brier, ECE", classification, targets),
            ("shape bias, three aggregations", CueConflict(), paths),
        ):
            began = time.perf_counter()
            function(np.load(path, mmap_mode="r", allow_pickle=False), more)
            print(f"{name:32}{time.perf_counter() - began:6.2f} s")


if __name__ == "__main__":
    main()
