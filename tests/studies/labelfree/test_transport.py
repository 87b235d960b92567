"""The transport problem behind COT against a general linear program."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import eye, kron, vstack

from studies.labelfree.cases import outputs, source
from testbed.studies.labelfree.outputs import Source
from testbed.studies.labelfree.scores import METHODS
from testbed.studies.labelfree.transport import _order_statistic, _prices, transport_value


def by_linear_program(gains, shares):
    n, classes = gains.shape
    sums = vstack([kron(eye(n), np.ones(classes)), kron(np.ones(n), eye(classes))])  # by image, by class
    right = np.concatenate([np.full(n, 1 / n), shares])
    return -linprog(-gains.ravel(), A_eq=sums, b_eq=right, method="highs").fun


@given(
    n=st.integers(1, 40),
    classes=st.integers(2, 8),
    spread=st.sampled_from([0.02, 0.3, 5.0]),
    shares=st.sampled_from(["uniform", "drawn", "with zeros", "one class"]),
    seed=st.integers(0, 10_000),
)
def test_value_is_that_of_the_linear_program(n, classes, spread, shares, seed):
    rng = np.random.default_rng(seed)
    gains = rng.dirichlet(np.full(classes, spread), n)
    wanted = rng.dirichlet(np.ones(classes)) if shares in ("drawn", "with zeros") else np.full(classes, 1 / classes)
    if shares == "with zeros":
        wanted[0] = 0
        wanted /= wanted.sum()
    if shares == "one class":
        wanted = np.eye(classes)[seed % classes]
    assert transport_value(gains, wanted) == pytest.approx(by_linear_program(gains, wanted), abs=1e-7)


@pytest.mark.parametrize("shares", ["uniform", "drawn"])
def test_value_is_that_of_the_linear_program_on_many_images(shares):
    rng = np.random.default_rng(0)
    gains = rng.dirichlet(np.full(10, 0.1), 1000)
    wanted = np.full(10, 0.1) if shares == "uniform" else rng.dirichlet(np.ones(10))
    assert transport_value(gains, wanted) == pytest.approx(by_linear_program(gains, wanted), abs=1e-7)


@pytest.mark.parametrize("n", [1000, 999])
def test_ties_do_no_harm(n):
    """Of one-hot predictions the optimum is the overlap of two histograms; of constant ones the constant."""
    predicted = np.random.default_rng(1).choice(4, n, p=[0.7, 0.1, 0.1, 0.1])
    counts, shares = np.bincount(predicted) / n, np.array([0.4, 0.3, 0.2, 0.1])
    assert transport_value(np.eye(4)[predicted], shares) == pytest.approx(np.minimum(counts, shares).sum(), abs=1e-7)
    assert transport_value(np.full((n, 4), 0.25), shares) == pytest.approx(0.25, abs=1e-7)


def test_predictions_in_the_given_shares_are_estimated_at_their_confidence():
    """Nobody has to move, so COT is the average confidence."""
    drawn = outputs(n=500)
    shares = np.bincount(drawn.predictions, minlength=5) / 500
    clean = Source.of(drawn, shares)
    assert METHODS["cot"].compute(drawn, clean) == pytest.approx(METHODS["ac"].compute(drawn, clean), abs=1e-5)


def test_cot_is_never_above_the_average_confidence():
    clean = source()
    for seed in range(5):
        shifted = outputs(signal=0.5, seed=seed)
        assert METHODS["cot"].compute(shifted, clean) <= METHODS["ac"].compute(shifted, clean) + 1e-5


def test_cot_of_a_set_of_one_class_is_mistaken_unless_told_the_shares():
    """Label shift: the assumption of COT that the docs warn of."""
    clean, drawn = outputs(n=2000, signal=3), outputs(n=2000, signal=3, seed=1)
    ones = drawn.targets == 0
    shifted = drawn.take(ones)
    assert shifted.accuracy > 0.9
    assert METHODS["cot"].compute(shifted, Source.of(clean)) < 30
    told = METHODS["cot"].compute(shifted, Source.of(clean, np.eye(5)[0]))
    assert told == pytest.approx(100 * shifted.accuracy, abs=8)


@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_prices_leave_few_images_to_be_moved(spread):
    """Any prices lead to the optimum; good ones lead there soon."""
    gains = np.random.default_rng(0).dirichlet(np.full(10, spread), 2000)
    _, best = _prices(gains.T, np.full(10, 200.0))
    assert np.abs(np.bincount(best, minlength=10) - 200).sum() < 10
    assert np.abs(np.bincount(gains.argmax(axis=1), minlength=10) - 200).sum() > 40


@pytest.mark.parametrize("count", [0, 1, 7, 19, 20])
def test_as_many_values_lie_below_the_order_statistic_as_asked_for(count):
    values = np.random.default_rng(0).permutation(20) / 20
    assert (values < _order_statistic(values, count)).sum() == count


def test_a_part_of_an_image_splits_the_value_at_its_place():
    assert _order_statistic(np.array([0.4, 0.1, 0.3, 0.2]), 2.5) == 0.3
