from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from testbed.metrics.accuracy import (
    FULL_PREDICTION,
    accuracy_topk,
    class_accuracy,
    full_accuracy,
    right_or_wrong,
    target_rank,
)
from testbed.metrics.estimate import Estimate, share

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("n", "classes"), [(1, 6), (50, 10), (333, 100), (20, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_top_1_and_5_are_those_of_scikit_learn_and_torch(n, classes, dtype):
    import torch
    from sklearn.metrics import top_k_accuracy_score

    logits = RNG.normal(size=(n, classes)).astype(dtype)
    targets = RNG.integers(0, classes, n)
    logits[np.arange(n), targets] += 1.5
    found = accuracy_topk(logits, targets)
    best = torch.from_numpy(logits).topk(5).indices.numpy()
    for k in (1, 5):
        by_sklearn = top_k_accuracy_score(targets, logits, k=k, labels=np.arange(classes))
        by_torch = (best[:, :k] == targets[:, None]).any(axis=1).mean()
        assert found[f"top{k}"].value == pytest.approx(100 * by_sklearn, abs=1e-9)
        assert found[f"top{k}"].value == pytest.approx(100 * by_torch, abs=1e-9)
        assert found[f"top{k}"].n == n


@given(st.lists(st.lists(st.integers(0, 3), min_size=7, max_size=7), min_size=1, max_size=20), st.integers(0, 6))
def test_ties_go_to_the_lower_index_as_argmax_decides(rows, target):
    logits = np.array(rows, dtype=np.float32)
    targets = np.full(len(logits), target)
    assert accuracy_topk(logits, targets)["top1"].value == pytest.approx(100 * (logits.argmax(1) == target).mean())
    order = np.argsort(-logits, axis=1, kind="stable")
    assert target_rank(logits, targets).tolist() == [row.tolist().index(target) for row in order]


@pytest.mark.parametrize(("classes", "names"), [(2, ["top1"]), (5, ["top1"]), (6, ["top1", "top5"])])
def test_top_5_needs_more_than_five_classes(classes, names):
    assert list(accuracy_topk(np.zeros((1, classes)), np.array([0]))) == names


def test_images_without_a_label_are_left_out():
    logits = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    found = accuracy_topk(logits, np.array([0, -1, 1, -1]))
    assert (found["top1"].value, found["top1"].n) == (50.0, 2)
    assert accuracy_topk(logits, np.full(4, -1)) == {}


def test_rank_does_not_depend_on_how_many_rows_are_read_at_once(tmp_path):
    logits, targets = RNG.normal(size=(25, 8)), RNG.integers(0, 8, 25)
    np.save(tmp_path / "logits.npy", logits)
    mapped = np.load(tmp_path / "logits.npy", mmap_mode="r")
    whole = target_rank(logits, targets)
    assert whole.tolist() == [int((row > row[t]).sum()) for row, t in zip(logits, targets, strict=True)]
    for size in (1, 7, 25, 100):
        assert target_rank(mapped, targets, rows_at_once=size).tolist() == whole.tolist()


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (3, 10), (10, 10), (38065, 50000)])
def test_share_has_the_exact_binomial_interval(hits, n):
    from scipy.stats import binomtest

    expected = binomtest(hits, n).proportion_ci(0.95, method="exact")
    found = share(hits, n)
    assert (found.value, found.n) == (pytest.approx(100 * hits / n), n)
    assert (found.ci_low, found.ci_high) == (pytest.approx(100 * expected.low), pytest.approx(100 * expected.high))


def test_estimate_without_interval_says_so():
    assert Estimate(1.0) == Estimate(1.0, None, None, None)


def test_accuracy_over_classes_and_of_the_worst_ones_by_hand():
    """Twenty classes of five images; class k has min(k, 5) right, so the worst tenth are classes 0 and 1."""
    targets = np.repeat(np.arange(20), 5)
    right = np.tile(np.arange(5), 20) < np.minimum(targets, 5)
    logits = np.eye(20)[np.where(right, targets, (targets + 1) % 20)]
    found = class_accuracy(logits, targets)
    accuracies = 20.0 * np.minimum(np.arange(20), 5)
    mean, tenth, worst = (found[f"top1_{name}"] for name in ("mean_per_class", "worst_tenth", "worst_class"))
    assert (mean.value, mean.n) == (pytest.approx(accuracies.mean()), 100)
    interval = stats.norm.interval(0.95, accuracies.mean(), stats.sem(accuracies))
    assert (mean.ci_low, mean.ci_high) == pytest.approx(interval)
    assert (tenth.value, tenth.n) == (10, 10)
    assert worst == share(0, 5)


def test_worst_tenth_of_few_classes_is_the_worst_class_with_its_interval():
    found = class_accuracy(np.eye(3)[[0, 0, 1, 2, 0]], np.array([0, 0, 1, 2, 2]))
    assert found["top1_worst_tenth"] == found["top1_worst_class"] == share(1, 2)


def test_each_image_is_right_wrong_or_does_not_count():
    found = right_or_wrong(np.array([True, False, True]), np.array([0, 2, -1]))
    np.testing.assert_array_equal(found, [100, 0, np.nan])


def test_accuracy_among_all_classes_counts_labelled_images_of_any_class():
    predicted = {FULL_PREDICTION: np.array([0, 3, 0])}
    assert full_accuracy(np.array([0, 0, -1]), predicted)["top1_full1000"] == share(1, 2)
    assert full_accuracy(np.array([-1, -1, -1]), predicted) == {}
    assert full_accuracy(np.array([0, 0, 0]), {}) == {}
