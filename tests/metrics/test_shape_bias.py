"""Shape bias: the published integers from the published decisions, and what is left out."""

import csv

import numpy as np
import pytest
from scipy.stats import binomtest

from shared_data import shared_data
from testbed.metrics.categories16 import NAMES, NO_ANSWER, SIXTEEN
from testbed.metrics.shape_bias import CueConflict, bias_by_category, count_metrics, cue_counts, cues, shape_bias


def published(name):
    """Decisions, shapes and textures of one file of texture-vs-shape, raw-data."""
    folder = shared_data("cue-conflict-decisions")
    (path,) = folder.glob(f"*_{name}_session*.csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    responses = [NAMES.index(r["object_response"]) if r["object_response"] != "na" else NO_ANSWER for r in rows]
    return np.array(responses), *cues([r["imagename"] for r in rows])


@pytest.mark.parametrize(
    ("observer", "counts", "bias"),
    [  # S/T/N of the published files; the paper's ResNet-50 is 22.1 %, AlexNet of torchvision 25.3 %
        ("resnet50", (162, 572, 466), 0.220708),
        ("alexnet", (182, 537, 481), 0.253129),
        ("subject-01", (829, 33, 338), 0.961717),
        ("subject-02", (907, 54, 239), 0.943809),
        ("subject-03", (1006, 34, 160), 0.967308),
    ],
)
def test_published_decisions_give_the_published_counts(observer, counts, bias):
    found = cue_counts(*published(observer))
    assert (found.shape, found.texture, found.neither) == counts
    assert found.stimuli == 1200
    assert found.bias.value / 100 == pytest.approx(bias, abs=5e-7)
    assert found.bias.ci_low < found.bias.value < found.bias.ci_high


def test_bias_is_pooled_and_not_the_mean_of_categories():
    decisions = published("resnet50")
    categories = bias_by_category(*decisions)
    assert len(categories) == 16
    assert shape_bias(*decisions).value == pytest.approx(22.07, abs=0.005)
    assert np.mean([e.value for e in categories.values()]) == pytest.approx(19.51, abs=0.005)
    assert sum(e.n for e in categories.values()) == 162 + 572


def test_stimuli_of_one_category_are_left_out_and_no_answer_is_neither():
    shapes, textures = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 1, 0, 0])
    found = cue_counts(np.array([0, 0, 1, 5, NO_ANSWER]), shapes, textures)
    assert (found.shape, found.texture, found.neither) == (1, 1, 2)


def test_without_a_decision_for_shape_or_texture_the_bias_is_empty():
    found = shape_bias(np.array([5, NO_ANSWER]), np.array([0, 1]), np.array([1, 0]))
    assert np.isnan(found.value)
    assert (found.ci_low, found.ci_high, found.n) == (None, None, 0)


def test_arrays_of_different_length_are_refused():
    with pytest.raises(ValueError, match="2 decisions, 1 shapes"):
        cue_counts(np.array([0, 1]), np.array([0]), np.array([1]))


def logits_for(*classes):
    logits = np.zeros((len(classes), 1000), dtype=np.float32)
    for row, index in enumerate(classes):
        logits[row, index] = 20
    return logits


def test_metrics_of_logits_hold_counts_categories_and_all_aggregations():
    paths = ["cat/cat1-dog2.png", "cat/cat2-knife1.png", "dog/dog1-dog3.png", "knife/knife4-cat1.png"]
    cat, knife = SIXTEEN["cat"][0], SIXTEEN["knife"][0]
    found = CueConflict()(logits_for(cat, knife, cat, 999), paths)
    values = {name: e.value for name, e in found.items()}
    # the last picture has no class among the 207: all categories tie in the mean, the biggest (dog) wins the sum
    assert values["shape_bias"] == 50
    assert (values["shape_correct"], values["texture_correct"], values["neither"]) == (1, 1, 1)
    assert values["non_conflict_accuracy"] == 0
    assert values["accuracy16"] == 25
    assert values["shape_bias.cat"] == 50
    assert np.isnan(values["shape_bias.knife"])
    assert {
        f"{n}_{a}" for n in ("shape_bias", "shape_correct", "texture_correct", "neither") for a in ("sum", "max")
    } <= {*values}


def test_sum_lets_the_biggest_category_win_where_the_mean_does_not():
    logits = np.zeros((1, 1000), dtype=np.float32)
    logits[0, SIXTEEN["knife"][0]] = 3  # e^3 = 20 beats the mean of any, not the sum of 109 dogs
    found = CueConflict()(logits, ["knife/knife1-dog1.png"])
    assert found["shape_correct"].value == found["shape_correct_max"].value == 1
    assert found["texture_correct_sum"].value == 1
    paths = ["knife/knife1-dog1.png"]
    assert CueConflict().decided(logits, paths)["shape_correct"].value == 1
    assert CueConflict().decided(logits, paths, "sum")["texture_correct"].value == 1


def test_answers_have_no_aggregation():
    found = CueConflict()(np.eye(16)[[7]], ["cat/cat1-dog2.png"])
    assert found["shape_bias"].value == 100
    assert not any(name.endswith(("_sum", "_max")) for name in found)


def test_counts_have_the_exact_interval_of_their_share():
    decisions, shapes, textures = np.array([0, 0, 0, 1, 2]), np.zeros(5, dtype=int), np.ones(5, dtype=int)
    found = count_metrics(cue_counts(decisions, shapes, textures))
    for name, hits in (("shape_correct", 3), ("texture_correct", 1), ("neither", 1)):
        interval = binomtest(hits, 5).proportion_ci(method="exact")
        assert found[name].value == hits
        assert (found[name].ci_low, found[name].ci_high) == pytest.approx((5 * interval.low, 5 * interval.high))
        assert found[name].n == 5


def test_counts_of_no_stimulus_with_conflict_are_0():
    found = count_metrics(cue_counts(np.array([0]), np.array([0]), np.array([0])))
    assert (found["shape_correct"].value, found["shape_correct"].n) == (0, 0)
