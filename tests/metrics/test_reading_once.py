"""Stored logits are read once, in blocks: however many metrics a setting has, and without copies of the file."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.calibration import calibration, scores
from testbed.metrics.categories16 import NAMES, Accuracy16
from testbed.metrics.class_groups import InGroup, Merged, Superclasses
from testbed.metrics.classification import classification, subset_classification
from testbed.metrics.ood import mean_scores
from testbed.metrics.shape_bias import CueConflict

N, CLASSES = 3000, 1000
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(N, CLASSES)).astype(np.float32)
TARGETS = RNG.integers(0, CLASSES, N)
SOME = np.where(np.arange(N) % 3, TARGETS, -1)
PATHS = [f"{NAMES[i % 16]}/{NAMES[i % 16]}{i}-{NAMES[i // 16 % 16]}1.png" for i in range(N)]
GROUPS = [list(range(i, CLASSES, 50)) for i in range(50)]


class Counted(np.ndarray):
    """A stored file: counts how many of its elements are asked for, by any part of it."""

    def __array_finalize__(self, parent) -> None:
        self.counts = getattr(parent, "counts", None)

    def __getitem__(self, key):
        part = np.asarray(super().__getitem__(key))
        if self.counts is not None:
            # Columns of a C-ordered file lie in all of its pages: taking some of them reads all rows.
            self.counts.append(self.size if isinstance(key, tuple) else part.size)
        return part

    def __array_ufunc__(self, ufunc, method, *inputs, **how):
        if self.counts is not None:
            self.counts.append(self.size)
        return getattr(ufunc, method)(*(np.asarray(i) if isinstance(i, Counted) else i for i in inputs), **how)

    def argmax(self, *args, **how):
        self.counts.append(self.size)
        return np.asarray(self).argmax(*args, **how)


MEASURED = {
    "classification": lambda z: classification(z, TARGETS),
    "subset_classification": lambda z: subset_classification(z, TARGETS, {}),
    "accuracy_topk": lambda z: accuracy_topk(z, TARGETS),
    "calibration scores": lambda z: scores(z, TARGETS),
    "shape bias": lambda z: CueConflict()(z, PATHS),
    "accuracy16": lambda z: Accuracy16()(z, PATHS),
    "superclasses": lambda z: Superclasses(GROUPS)(z, TARGETS % 50),
    "merged": lambda z: Merged(GROUPS)(z, TARGETS),
    "in group": lambda z: InGroup(GROUPS)(z, TARGETS % 50),
    "unknown classes": lambda z: mean_scores(z),
}


@pytest.mark.parametrize("name", list(MEASURED))
def test_every_stored_logit_is_read_once(name: str) -> None:
    stored = LOGITS.view(Counted)
    stored.counts = []
    MEASURED[name](stored)
    assert sum(stored.counts) == LOGITS.size


def test_logits_of_unlabelled_images_are_not_read() -> None:
    stored = LOGITS.view(Counted)
    stored.counts = []
    classification(stored, SOME)
    assert sum(stored.counts) == (SOME >= 0).sum() * CLASSES


def _peak(function, *arguments) -> int:
    function(*arguments)  # imports and caches
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("targets", [TARGETS, SOME], ids=["all labelled", "some labelled"])
@pytest.mark.parametrize("metrics", [classification, calibration])
def test_memory_is_that_of_a_few_blocks_not_of_the_file(metrics, targets, monkeypatch) -> None:
    monkeypatch.setattr("testbed.metrics.calibration._ROWS_AT_ONCE", 64)
    # Of two sizes, since the number of images itself costs a little: nothing may grow with images x classes.
    narrow = LOGITS[:, :50].copy()
    small = _peak(metrics, narrow, np.where(targets >= 0, targets % 50, -1))
    large = _peak(metrics, LOGITS, targets)
    assert large - small < 0.25 * LOGITS.nbytes
