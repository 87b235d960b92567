"""Watermarks, spurious features, edited pictures, and pictures with several right answers."""

from types import SimpleNamespace

import numpy as np
import pytest

from testbed.metrics.aggregates import FlipRates, SpuriousScore
from testbed.metrics.estimate import Estimate
from testbed.metrics.multilabel import AnyOf, folder_labels
from testbed.metrics.shortcuts import accuracy_by_folder, carton, class_of_feature, probability, spurious_feature


def one_hot(predictions, classes=1000, height=5.0):
    return height * np.eye(classes, dtype=np.float32)[list(predictions)]


def test_probability_is_the_softmax():
    scipy_special = pytest.importorskip("scipy.special")
    logits = np.random.default_rng(0).normal(size=(6, 9))
    expected = scipy_special.softmax(logits, axis=1)
    np.testing.assert_allclose(probability(logits, 4), expected[:, 4])
    columns = np.array([0, 8, 1, 2, 3, 4])
    np.testing.assert_allclose(probability(logits, columns), expected[np.arange(6), columns])


def test_carton_class_is_counted_apart():
    found = carton(one_hot([478, 0, 478, 3]), np.array([478, 478, 1, 3]))
    assert found["top1"].value == 50
    assert (found["top1_carton"].value, found["top1_carton"].n) == (50, 2)
    high = np.exp(5) / (np.exp(5) + 999)
    assert found["p_carton"].value == pytest.approx(100 * (2 * high + 2 / (np.exp(5) + 999)) / 4)


def test_values_of_single_images_have_the_means_that_are_told():
    """What paired comparisons use: the means of its parts are the metric itself."""
    logits = np.random.default_rng(1).normal(size=(40, 1000)).astype(np.float32)
    targets = np.where(np.arange(40) % 4 == 0, 478, np.arange(40))
    logits[::8, 478] += 50
    found, single = carton(logits, targets), carton.per_image(logits, targets)
    assert set(single) <= set(found)
    for name, values in single.items():
        assert np.nanmean(values) == pytest.approx(found[name].value)
    assert np.isfinite(single["top1_carton"]).tolist() == (targets == 478).tolist()


def test_pictures_without_labels_have_no_accuracy():
    assert carton(one_hot([478, 0]), np.array([-1, -1])) == {}


def test_the_class_of_a_spurious_feature_is_the_third_word_of_its_folder():
    """As the published loader reads it: int(folder.split('_')[2]), the component last."""
    assert class_of_feature(["images/class_x_17_part_3/a.jpg", "in_class_2_comp_0/b.jpg"]).tolist() == [17, 2]
    with pytest.raises(ValueError, match="third word is a class number"):
        class_of_feature(["seventeen/a.jpg"])


def test_pictures_taken_for_a_class_that_is_not_in_them():
    found = spurious_feature(one_hot([17, 2]), ["a_b_17_c_0/1.jpg", "a_b_17_c_0/2.jpg"])
    assert found["taken_for_class"].value == 50
    high, low = np.exp(5) / (np.exp(5) + 999), 1 / (np.exp(5) + 999)
    assert found["p_class"].value == pytest.approx(100 * (high + low) / 2)


class Stored:
    """Results of one model, as an aggregate sees them."""

    members = ("spurious",)

    def __init__(self, logits=None, samples=None, estimates=None, other=None):
        self._logits, self._samples, self._estimates, self._other = logits or {}, samples or {}, estimates or {}, other
        self.members = tuple(self._estimates) or self.members

    def logits(self, setting):
        return self._logits.get(setting)

    def samples(self, setting):
        return self._samples.get(setting)

    def estimate(self, setting, metric):
        return self._estimates.get(setting, {}).get(metric)

    def of(self, model):
        return self._other if model == "alexnet" else None


def test_spurious_score_is_the_mean_over_classes_of_average_precision_and_auroc():
    """Against scikit-learn, which the published program uses."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    val, spurious = rng.normal(size=(40, 5)), rng.normal(size=(30, 5))
    targets, of_class = np.arange(40) % 5, np.repeat([1, 3], 15)
    val[np.arange(40), targets] += 1
    stored = Stored(
        {"val": val, "spurious": spurious},
        {
            "val": SimpleNamespace(ids=[], targets=targets),
            "spurious": SimpleNamespace(ids=[f"a_b_{c}_d_0/{i}.jpg" for i, c in enumerate(of_class)], targets=None),
        },
    )
    expected = {"spurious_ap": [], "spurious_auroc": []}
    for c in (1, 3):
        scores = np.concatenate([probability(val[targets == c], c), probability(spurious[of_class == c], c)])
        truth = np.concatenate([np.ones(8), np.zeros(15)])
        expected["spurious_ap"].append(100 * metrics.average_precision_score(truth, scores))
        expected["spurious_auroc"].append(100 * metrics.roc_auc_score(truth, scores))
    found = SpuriousScore("spurious", "val")(stored)
    assert {name: e.value for name, e in found.items()} == pytest.approx({n: np.mean(v) for n, v in expected.items()})
    assert SpuriousScore("spurious", "val")(Stored()) == {}


def test_flip_rates_are_relative_to_alexnet_where_it_has_been_run():
    own = {"p.a": {"flip_rate": Estimate(10.0), "t5d": Estimate(2.0)}, "p.b": {"flip_rate": Estimate(4.0)}}
    alexnet = Stored(estimates={"p.a": {"flip_rate": Estimate(20.0)}, "p.b": {"flip_rate": Estimate(5.0)}})
    found = FlipRates()(Stored(estimates=own, other=alexnet))
    assert {n: e.value for n, e in found.items()} == {"mean_flip_rate": 7, "mfr": (50 + 80) / 2, "mean_t5d": 2}
    assert "mfr" not in FlipRates()(Stored(estimates=own))
    assert "mfr" not in FlipRates()(Stored(estimates={**own, "p.c": {}}, other=alexnet))  # one is missing


def test_edits_are_counted_by_folder_and_originals_apart():
    paths = ["ori/a.JPEG", "full/a.JPEG", "inver/a.png", "inver/b.png"]
    found = accuracy_by_folder(one_hot([1, 1, 1, 0]), np.array([1, 1, 1, 1]), paths)
    values = {name: e.value for name, e in found.items()}
    assert values == {"top1": pytest.approx(200 / 3), "top1.ori": 100, "top1.full": 100, "top1.inver": 50}


def test_any_class_of_the_group_is_right_and_groups_may_share_one():
    found = AnyOf(((1, 2), (2,)))(one_hot([1, 2, 1, 2]), np.array([0, 0, 1, 1]))["top1"]
    assert (found.value, found.n) == (75, 4)


def test_labels_may_be_the_name_of_the_folder():
    found = folder_labels(one_hot([530, 4, 7]), ["409+530/1.jpg", "4/2.jpg", "8/3.jpg"])["top1"]
    assert found.value == pytest.approx(200 / 3)
    with pytest.raises(ValueError, match=r"class numbers such as 409\+530, got 'clock'"):
        folder_labels(one_hot([1]), ["clock/1.jpg"])


def test_pictures_of_a_feature_that_are_taken_for_its_class():
    folders = [f"class_1_{c}_component_0/{i}.jpg" for i, c in enumerate((7, 7, 9, 9))]
    found = spurious_feature(one_hot([7, 3, 9, 9]), folders)
    assert (found["taken_for_class"].value, found["taken_for_class"].n) == (75, 4)
