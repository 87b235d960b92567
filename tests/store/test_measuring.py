"""From stored outputs to numbers: rows and columns of another's logits, and intervals of plain numbers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from testbed import EvalSetting
from testbed.data.arrays import ArrayDataset
from testbed.data.rows import Rows
from testbed.errors import EntryError, StoreError
from testbed.metrics.estimate import ACCURACY, Estimate
from testbed.store import measuring
from testbed.store.measuring import derive, measure
from testbed.store.outputs import Outputs

RNG = np.random.default_rng(0)
LOGITS, TARGETS = RNG.normal(size=(60, 4)).astype(np.float32), RNG.integers(0, 4, 60)


def outputs(logits=LOGITS, targets=TARGETS):
    return Outputs(Rows(np.array([f"{i}.png" for i in range(len(logits))]), targets, np.arange(len(logits))), logits)


def setting(metrics_fn, **more):
    return EvalSetting(name="s", dataset=ArrayDataset(make=lambda: None), metrics_fn=metrics_fn, **more)


def margin(logits, targets):
    return {"margin": float(np.mean(logits[:, 0])), "declared": Estimate(1.0, 0.5, 2.0, 7, ACCURACY)}


def test_a_plain_number_gets_the_interval_of_resampled_images():
    """200 resamples with seed 0; scipy draws the same rows with the same generator."""
    found = measure(setting(margin), None, outputs())
    drawn = stats.bootstrap(
        (LOGITS[:, 0].astype(float),), np.mean, n_resamples=200, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert (found["margin"].ci_low, found["margin"].ci_high) == pytest.approx((drawn.low, drawn.high), abs=1e-6)
    assert found["margin"].n == 60
    assert found["declared"] == Estimate(1.0, 0.5, 2.0, 7, ACCURACY)


@pytest.mark.parametrize(
    "metrics_fn",
    [
        lambda logits, image_paths: {"a": len(image_paths)},
        lambda logits, extras: {"a": 1.0},
        lambda logits, model: {"a": 1.0},
    ],
)
def test_images_that_may_be_paired_are_not_resampled(metrics_fn):
    found = measure(setting(metrics_fn), None, outputs())["a"]
    assert (found.ci_low, found.ci_high, found.n) == (None, None, 60)


def test_logits_that_are_too_many_are_not_resampled(monkeypatch):
    monkeypatch.setattr(measuring, "_BOOTSTRAP_ELEMENTS", 240)
    assert measure(setting(margin), None, outputs())["margin"].ci_low is not None
    monkeypatch.setattr(measuring, "_BOOTSTRAP_ELEMENTS", 239)
    assert measure(setting(margin), None, outputs())["margin"].ci_low is None


def test_what_is_no_dict_is_refused():
    with pytest.raises(EntryError, match="metrics_fn of 's' must return a dict of numbers, got float"):
        measure(setting(lambda logits: 1.0), None, outputs())


@pytest.mark.parametrize("name", ["", " ", 3, None])
def test_metrics_without_a_name_in_words_are_refused(name):
    with pytest.raises(EntryError, match=f"metrics_fn of 's': expected names of metrics as text, got {name!r}"):
        measure(setting(lambda logits: {name: 1.0}), None, outputs())


def test_columns_beyond_the_stored_ones_are_refused():
    for classes, wrong in (([0, 3], False), ([0, 4], True)):
        child = EvalSetting(name="child", logits_from="s", class_sublist=classes)
        if wrong:
            with pytest.raises(StoreError, match="'child' asks for class 4, the stored logits of 's' have 4"):
                derive(outputs(), child)
        else:
            kept = np.isin(TARGETS, classes)
            np.testing.assert_array_equal(derive(outputs(), child).logits, LOGITS[kept][:, classes])


def test_rows_of_a_parent_without_any_are_refused():
    child = EvalSetting(name="child", logits_from="s", class_sublist=[3])
    with pytest.raises(StoreError, match="'child': class_sublist leaves no image"):
        derive(outputs(targets=np.zeros(60, dtype=np.int64)), child)
