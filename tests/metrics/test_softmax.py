"""Softmax against scipy."""

import numpy as np
import pytest
from scipy import special

from testbed.metrics import softmax

LOGITS = (20 * np.random.default_rng(0).normal(size=(50, 6))).astype(np.float32)
EXACT = LOGITS.astype(np.float64)


@pytest.mark.parametrize("temperature", [1.0, 0.3, 7.0])
def test_log_softmax_is_scipys(temperature):
    log_p, total = softmax.log_softmax(LOGITS, temperature)
    np.testing.assert_allclose(log_p, special.log_softmax(EXACT / temperature, axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(total, special.logsumexp(EXACT / temperature, axis=1), rtol=1e-12)
    assert log_p.dtype == np.float64
    assert log_p.max() <= 0


def test_blocks_do_not_change_the_result(monkeypatch):
    whole = softmax.log_sum_exp(LOGITS), softmax.confidence(LOGITS)
    np.testing.assert_allclose(whole[0], special.logsumexp(EXACT, axis=1), rtol=1e-12)
    np.testing.assert_allclose(whole[1], special.softmax(EXACT, axis=1).max(axis=1), rtol=1e-12)
    monkeypatch.setattr(softmax, "_ELEMENTS_AT_ONCE", 20)
    assert [rows.stop - rows.start for rows, _ in softmax.blocks(LOGITS)] == [3] * 16 + [2]
    np.testing.assert_array_equal(softmax.log_sum_exp(LOGITS), whole[0])
    np.testing.assert_array_equal(softmax.confidence(LOGITS), whole[1])


def test_rows_wider_than_a_block_go_one_by_one(monkeypatch):
    monkeypatch.setattr(softmax, "_ELEMENTS_AT_ONCE", 4)
    assert len(list(softmax.blocks(LOGITS))) == 50


def test_high_logits_do_not_overflow_and_the_input_stays():
    logits = np.array([[1e4, 0.0], [-1e4, -1e4]])
    np.testing.assert_allclose(softmax.log_sum_exp(logits), [1e4, -1e4 + np.log(2)])
    assert softmax.confidence(logits).tolist() == [1.0, 0.5]
    assert logits[0].tolist() == [1e4, 0.0]


def test_softmax_of_a_set_is_scipys():
    found = softmax.softmax(LOGITS, 4.0)
    p = special.softmax(EXACT / 4, axis=1)
    np.testing.assert_allclose(found.probabilities, p, rtol=1e-6)
    np.testing.assert_allclose(found.confidence, p.max(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found.entropy, special.entr(p).sum(axis=1), rtol=1e-9)
    np.testing.assert_array_equal(found.negative_entropy, -found.entropy)
