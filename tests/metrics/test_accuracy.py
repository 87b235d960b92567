from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.metrics.accuracy import accuracy_topk, target_rank
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
