"""Error consistency against scikit-learn's kappa, and the published order of averages."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from shared_data import shared_data
from testbed.metrics.categories16 import NAMES, NO_ANSWER
from testbed.metrics.consistency import (
    accuracy_difference,
    among_people,
    averaged,
    draws,
    draws_by_pair,
    error_consistency,
    observed_consistency,
    with_people,
)
from testbed.store.formats.decisions import read_folder


def observers(n=300, k=4, seed=0):
    """Right or wrong of k observers who share some of their errors."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n)
    return rng.random((k, n)) * 0.6 + 0.4 * hard < rng.uniform(0.4, 0.8, (k, 1))


@pytest.mark.parametrize("seed", range(5))
def test_error_consistency_is_cohens_kappa(seed):
    first, second = observers(k=2, seed=seed)
    assert error_consistency(first, second) == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
    assert observed_consistency(first, second) == pytest.approx((first == second).mean())
    assert accuracy_difference(first, second) == pytest.approx((first.mean() - second.mean()) ** 2)


def test_real_observers_agree_with_scikit_learn():
    found = {d.observer: d for d in read_folder(shared_data("cue-conflict-decisions"))}
    right = {
        name: np.array([t.response != NO_ANSWER and NAMES[t.response] == t.category for t in d.trials])
        for name, d in found.items()
    }
    for person in ("subject-01", "subject-02", "subject-03"):
        assert [t.id for t in found[person].trials] == [t.id for t in found["resnet50"].trials]
        expected = cohen_kappa_score(right["resnet50"], right[person])
        assert error_consistency(right["resnet50"], right[person]) == pytest.approx(expected, abs=1e-9)
        assert 0.03 < expected < 0.12  # far from people among themselves, who have 0.29 and more


@pytest.mark.parametrize("always", [True, False])
def test_observers_who_never_differ_are_wholly_consistent(always):
    same = np.full(20, always)
    assert error_consistency(same, same) == 1.0


def test_independent_errors_give_zero_and_opposite_ones_less():
    first = np.array([True, True, False, False])
    assert error_consistency(first, np.array([True, False, True, False])) == 0
    assert error_consistency(first, ~first) == -1


def test_numbers_are_averaged_over_conditions_then_pairs_then_sets():
    small, large, other = observers(40, seed=1), observers(400, seed=2), observers(100, seed=3)
    people = [1, 2, 3]

    def mean_kappa(conditions):  # a condition of 40 pictures counts as much as one of 400
        return np.mean([np.mean([cohen_kappa_score(c[0], c[h]) for c in conditions]) for h in people])

    sets = [draws(conditions, with_people(0, people), resamples=20) for conditions in ([small, large], [other])]
    expected = (mean_kappa([small, large]) + mean_kappa([other])) / 2
    assert averaged(sets).error.value == pytest.approx(expected, abs=1e-9)


def test_people_among_themselves_are_all_pairs_once():
    assert among_people([0, 2, 5]) == [(0, 2), (0, 5), (2, 5)]
    assert with_people(2, [0, 2, 5]) == [(2, 0), (2, 5)]


def test_intervals_hold_the_value_and_repeat_with_the_seed():
    conditions = [observers(500, seed=4)]
    found = averaged([draws(conditions, [(0, 1)], resamples=400)])
    for estimate in (found.accuracy_difference, found.observed, found.error):
        assert estimate.ci_low < estimate.value < estimate.ci_high
    assert 0.02 < found.error.ci_high - found.error.ci_low < 0.3
    again = draws_by_pair(conditions, [(0, 1)], resamples=400)
    assert averaged([again[:, 0]]) == found


def test_more_pictures_make_the_interval_narrower():
    few, many = (averaged([draws([observers(n, seed=5)], [(0, 1)], 300)]).error for n in (100, 1600))
    assert (few.ci_high - few.ci_low) > 2.5 * (many.ci_high - many.ci_low)


def test_wrong_arrays_are_refused():
    with pytest.raises(ValueError, match="booleans"):
        error_consistency(np.array([1, 0]), np.array([1, 0]))
    with pytest.raises(ValueError, match="got 0 and 1"):
        draws([], [(0, 1)])
