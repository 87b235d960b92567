"""Whole results from elsewhere become completed evaluations, with what is known of them."""

from __future__ import annotations

import numpy as np
import pytest
import sqlalchemy as sa

from stored_results import chunk, claim, completed, evaluations
from testbed import ArrayDataset, EvalSetting
from testbed.data.rows import Rows
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.store import schema
from testbed.store.measuring import read_outputs
from testbed.store.outputs import Outputs
from testbed.store.write import add_eval_setting, write_outputs

LOGITS = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
ROWS = Rows(np.array([f"{i}.png" for i in range(6)]), np.arange(6) % 4, np.arange(6))


@pytest.fixture
def running(store):
    store.begin_run()
    yield store
    store.end_run()


def write(store, logits=LOGITS, **how):
    write_outputs(store, "m", ("s", 1), Outputs(ROWS, logits), {"top1": Estimate(50.0)}, **how)


def test_a_setting_is_stored_with_its_declaration_and_the_data_it_takes_in_the_end(store):
    registry = Registry()
    for setting in (
        EvalSetting(name="whole", dataset=ArrayDataset(path="there"), size=200, tags=["small"], version=3),
        EvalSetting(name="part", logits_from="whole", class_sublist=(0, 1)),
    ):
        registry.eval_settings.add(setting, "here")
    for name in ("whole", "part"):
        add_eval_setting(store, registry, name)
    s = schema.eval_settings.c
    with store.reading() as connection:
        rows = connection.execute(sa.select(s.name, s.version, s.size, s.dataset, s.logits_from, s.tags)).all()
    assert [tuple(row) for row in rows] == [
        ("whole", 3, 200, "array there", None, ["small"]),
        ("part", 1, None, "array there", "whole", []),
    ]


def test_written_outputs_are_read_back_with_their_provenance(running):
    write(running, provenance={"checkpoint": "best.pt"}, dataset_fingerprint="f")
    stored = completed(running, "m", "s")
    assert stored.dataset_fingerprint == "f"
    assert stored.provenance.checkpoint == "best.pt"
    np.testing.assert_array_equal(read_outputs(running, stored).logits, LOGITS)


def test_a_stored_result_is_replaced_only_where_that_is_said(running):
    write(running)
    with pytest.raises(StoreError, match="m on s is stored already: repeat with --override to replace it"):
        write(running, -LOGITS)
    write(running, -LOGITS, override=True)
    np.testing.assert_array_equal(read_outputs(running, completed(running, "m", "s")).logits, -LOGITS)


def test_whole_results_take_nothing_over_from_a_run_that_was_left_unfinished(running):
    left = claim(running, logits_path="logits/s/left.npy")
    running.record_chunk(left.evaluation_id, **chunk(0))
    write(running, dataset_fingerprint="f")
    stored = completed(running, "m", "s")
    assert stored.logits_path != "logits/s/left.npy"
    assert running.chunk_facts(stored.id) == []


def test_what_is_not_brought_to_its_end_says_which_data_it_is_of(running, monkeypatch):
    monkeypatch.setattr(running, "complete", lambda *_, **__: pytest.fail("full disk"))
    with pytest.raises(pytest.fail.Exception, match="full disk"):
        write(running, dataset_fingerprint="f")
    (unfinished,) = evaluations(running)
    assert unfinished.dataset_fingerprint == "f"
