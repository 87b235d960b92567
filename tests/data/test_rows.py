from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.data.rows import Rows, chosen_rows, even_sample, rows_of
from testbed.data.samples import Samples
from testbed.errors import DataError


def samples(targets, space="own"):
    targets = np.asarray(targets, dtype=np.int64)
    return Samples([str(i) for i in range(len(targets))], targets, lambda i: i, "", space)


TARGETS = [0, 5, 2, 2, 5, 0, 9]


@pytest.mark.parametrize(
    ("how", "indices", "targets"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6], TARGETS),
        # column j of the logits is class_sublist[j], so 5 becomes 0 and 2 becomes 1
        ({"class_sublist": [5, 2]}, [1, 2, 3, 4], [0, 1, 1, 0]),
        ({"class_sublist": [2, 5, 77]}, [1, 2, 3, 4], [1, 0, 0, 1]),
        # drawn with replacement: image 6 counts twice
        ({"idx_subsample_list": [6, 1, 6]}, [6, 1, 6], [9, 5, 9]),
        ({"idx_subsample_list": [6, 1, 6, 0], "class_sublist": [9, 0]}, [6, 6, 0], [0, 0, 1]),
        ({"class_sublist": [5, 2], "own_labels": True}, [0, 1, 2, 3, 4, 5, 6], TARGETS),
        ({"limit": 100}, [0, 1, 2, 3, 4, 5, 6], TARGETS),
        ({"limit": 4}, [0, 1, 2, 6], [0, 5, 2, 9]),
        ({"limit": 2, "class_sublist": [2, 0]}, [0, 2], [1, 0]),
    ],
)
def test_rows_are_chosen_and_relabelled(how, indices, targets):
    chosen = rows_of(samples(TARGETS), **how)
    assert chosen.indices.tolist() == indices
    assert chosen.targets.tolist() == targets
    assert len(chosen) == len(indices)


def test_rows_are_numbered_as_rows_of_the_evaluation_and_keep_their_numbers_when_taken():
    rows = rows_of(samples(TARGETS), class_sublist=[5, 2])
    assert rows.numbers.tolist() == [0, 1, 2, 3]
    some = rows.take(np.array([3, 1]))
    assert (some.numbers.tolist(), some.indices.tolist(), some.ids.tolist()) == ([3, 1], [4, 2], ["4", "2"])


@pytest.mark.parametrize("own_labels", [False, True])
def test_rows_of_stored_logits_are_chosen_as_those_of_a_dataset_are(own_labels):
    stored = Rows(np.array([str(i) for i in range(7)]), np.array(TARGETS), np.arange(7))
    how = dict(class_sublist=[5, 2], idx_subsample_list=[4, 0, 1, 1], own_labels=own_labels)
    run, derived = rows_of(samples(TARGETS), **how), chosen_rows(stored, **how)
    assert run.indices.tolist() == derived.indices.tolist() == ([4, 0, 1, 1] if own_labels else [4, 1, 1])
    assert run.targets.tolist() == derived.targets.tolist() == ([5, 0, 5, 5] if own_labels else [0, 0, 0])


def test_unlabelled_images_are_in_no_class_of_a_sublist():
    assert rows_of(samples([-1, 3, -1]), class_sublist=[3]).indices.tolist() == [1]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"idx_subsample_list": [0, 7]}, "idx_subsample_list names image 7, but there are only 7"),
        ({"class_sublist": [1]}, "class_sublist leaves no image: none of the dataset's labels is in it"),
    ],
)
def test_selection_that_cannot_be_is_refused(how, message):
    with pytest.raises(DataError) as error:
        rows_of(samples(TARGETS), **how)
    assert str(error.value) == message


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=80), st.integers(1, 80))
def test_limit_is_even_over_classes(targets, limit):
    targets = np.array(targets)
    limit = min(limit, len(targets))
    rows = even_sample(targets, limit)
    assert len(set(rows.tolist())) == limit
    assert rows.tolist() == sorted(rows.tolist())
    taken, there = Counter(targets[rows].tolist()), Counter(targets.tolist())
    open_classes = [taken[c] for c in there if taken[c] < there[c]]
    if open_classes:  # no class gets two more than one that had images left
        assert max(taken.values()) - min(open_classes) <= 1
    assert even_sample(targets, limit).tolist() == rows.tolist()


def test_limited_rows_are_spread_over_their_class():
    rows = even_sample(np.zeros(100, dtype=np.int64), 5)
    assert rows.tolist() == [0, 25, 50, 74, 99]
