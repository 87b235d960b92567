"""Sets of outputs for the tests of label-free estimation."""

from __future__ import annotations

import numpy as np

from testbed.studies.labelfree.outputs import Source, outputs_from


def outputs(n=600, classes=5, signal=2.0, seed=0, features=0, scale=2.0):
    """Noisy logits that know the label by `signal`, and features that follow the label likewise."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, classes, n)
    logits = rng.normal(size=(n, classes)) * scale
    logits[np.arange(n), targets] += signal * scale
    kept = None
    if features:
        centres = np.random.default_rng(99).normal(size=(classes, features))
        kept = (signal * centres[targets] + rng.normal(size=(n, features))).astype(np.float32)
    return outputs_from(logits.astype(np.float32), targets, kept)


def source(**options):
    return Source.of(outputs(**options))
