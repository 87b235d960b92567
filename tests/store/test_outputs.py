"""Outputs: what is computed from logits on first use, and how parts are joined."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy

from testbed.data.rows import Rows
from testbed.store.outputs import Outputs, joined

LOGITS = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 0.0, 4.0], [5.0, 0.0, 0.0]], dtype=np.float32)
TARGETS = np.array([0, 2, 2, -1])


def outputs(logits=LOGITS, targets=TARGETS, **more):
    n = len(targets)
    return Outputs(Rows(np.array([f"{i}.png" for i in range(n)]), targets, np.arange(n)), logits, **more)


def test_predictions_and_accuracy_of_labelled_images():
    found = outputs()
    assert (len(found), found.columns) == (4, 3)
    assert found.predictions.tolist() == [0, 1, 2, 0]
    assert found.correct.tolist() == [True, False, True, False]
    assert found.accuracy == pytest.approx(2 / 3)
    assert outputs(targets=np.full(4, -1)).accuracy is None


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_softmax_at_a_temperature_is_scipys_and_is_computed_once(temperature):
    found = outputs()
    p = softmax(LOGITS.astype(np.float64) / temperature, axis=1)
    np.testing.assert_allclose(found.softmax(temperature).probabilities, p, rtol=1e-6)
    np.testing.assert_allclose(found.softmax(temperature).confidence, p.max(axis=1))
    np.testing.assert_allclose(found.softmax(temperature).entropy, entropy(p, axis=1))
    np.testing.assert_allclose(found.softmax(temperature).negative_entropy, -entropy(p, axis=1))
    assert found.softmax(temperature) is found.softmax(temperature)
    assert found.softmax(temperature) is not found.softmax(7.0)
    assert found.softmax() is found.softmax(1.0)


def test_what_is_kept_under_a_key_is_computed_once():
    calls = []
    found = outputs()
    assert [found.once("k", lambda: calls.append(1) or 5) for _ in range(3)] == [5, 5, 5]
    assert found.once("other", lambda: 6) == 6
    assert calls == [1]


def test_some_rows_keep_their_extras_and_places():
    found = outputs(extras={"feature": np.arange(8).reshape(4, 2)}, model="m", n_bad=1).take(np.array([2, 0]))
    assert found.ids.tolist() == ["2.png", "0.png"]
    assert found.targets.tolist() == [2, 0]
    assert found.extras["feature"].tolist() == [[4, 5], [0, 1]]
    assert found.rows.numbers.tolist() == [2, 0]
    assert (found.model, found.n_bad) == ("m", 1)


def test_batches_joined_are_the_whole():
    whole = outputs(extras={"feature": np.arange(4)}, model="m")
    again = joined([whole.take(np.array([0, 1])), whole.take(np.array([2, 3]))])
    np.testing.assert_array_equal(again.logits, LOGITS)
    np.testing.assert_array_equal(again.extras["feature"], np.arange(4))
    assert again.ids.tolist() == whole.ids.tolist()
    assert again.rows.numbers.tolist() == [0, 1, 2, 3]
    assert again.model == "m"
