"""Memory that runs out: smaller batches on the device; in preparation that pair fails, and is tried again."""

from __future__ import annotations

import numpy as np
import pytest

import tiny
from stored_results import completed


@pytest.mark.parametrize("inline", [True, False], ids=["in this process", "in a worker"])
def test_memory_that_runs_out_in_a_forward_pass_on_the_cpu_halves_the_batch(tmp_path, inline):
    """It failed the pair: torch has other words for this on Linux than elsewhere."""
    report, store = tiny.run(tmp_path, ["tiny_hungry", "tiny_a"], ["tiny"], inline=inline, threads=1, workers=0)
    assert not report.failed
    np.testing.assert_allclose(
        tiny.logits(store, "tiny_hungry", "tiny"), tiny.logits(store, "tiny_a", "tiny"), atol=1e-4
    )
    assert completed(store, "tiny_hungry", "tiny").provenance.other["batch_size"] == 4


@pytest.mark.parametrize("workers", [0, 1], ids=["in threads of the worker", "in a preparing process"])
def test_memory_that_runs_out_in_preparation_fails_that_pair_alone_and_is_tried_again(tmp_path, monkeypatch, workers):
    monkeypatch.setenv("TINY_MARKER", str(tmp_path / "marker"))
    how = dict(inline=False, threads=1, workers=workers, chunk_size=16)
    report, store = tiny.run(tmp_path, ["tiny_a"], ["picture-hungry", "tiny"], **how)
    assert "Unable to allocate 8.00 PiB" in tiny.failure(report)
    assert completed(store, "tiny_a", "tiny")
    report, store = tiny.run(tmp_path, ["tiny_a"], ["picture-hungry", "tiny.noise"], **how)
    assert not report.failed
    np.testing.assert_array_equal(
        tiny.logits(store, "tiny_a", "picture-hungry"), tiny.logits(store, "tiny_a", "tiny.noise")
    )
