"""1000 classes to 16 categories: the published mapping, the decision rule, what file names tell."""

import numpy as np
import pytest

from testbed.data.labels import imagenet_wnids
from testbed.metrics.categories16 import AGGREGATIONS, NAMES, NO_ANSWER, SIXTEEN, Accuracy16, decide, picture, texture

# Sizes of the lists in texture-vs-shape and model-vs-human, helper/human_categories.py.
SIZES = dict(
    airplane=1, bear=4, bicycle=2, bird=49, boat=5, bottle=7, car=3, cat=6, chair=4, clock=3, dog=109, elephant=2,
    keyboard=2, knife=1, oven=1, truck=8,
)  # fmt: skip


def random_logits(rows=200, seed=0):
    return np.random.default_rng(seed).normal(0, 3, (rows, 1000)).astype(np.float32)


def test_mapping_has_the_published_sizes_and_no_class_twice():
    assert {name: len(indices) for name, indices in SIXTEEN.items()} == SIZES
    every = [i for indices in SIXTEEN.values() for i in indices]
    assert len(every) == len(set(every)) == 207
    assert list(NAMES) == sorted(NAMES)


@pytest.mark.parametrize(
    ("wnid", "category"),
    [
        ("n02690373", "airplane"),  # airliner
        ("n02132136", "bear"),
        ("n03792782", "bicycle"),
        ("n04612504", "boat"),  # yawl, which some lists leave out
        ("n04560804", "bottle"),  # water jug, likewise
        ("n03770679", "truck"),  # minivan
        ("n03983396", "bottle"),  # pop bottle
        ("n04111531", "oven"),  # rotisserie, the only one
        ("n01514668", None),  # cock, which some lists count as a bird
        ("n02981792", None),  # catamaran
        ("n02930766", None),  # cab
        ("n04442312", None),  # toaster
        ("n02085620", None),  # Chihuahua
        ("n02088094", "dog"),  # Afghan hound
        ("n02110341", None),  # dalmatian
    ],
)
def test_single_classes_are_where_they_were_published(wnid, category):
    index = imagenet_wnids().index(wnid)
    assert next((name for name, indices in SIXTEEN.items() if index in indices), None) == category


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_decision_is_that_of_aggregated_probabilities(aggregation):
    logits = random_logits().astype(np.float64)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    together = {"mean": np.mean, "sum": np.sum, "max": np.max}[aggregation]
    table = np.stack([together(probabilities[:, list(SIXTEEN[name])], axis=1) for name in NAMES], axis=1)
    assert decide(logits, aggregation).tolist() == table.argmax(1).tolist()


def test_logits_that_would_underflow_as_probabilities_still_decide():
    logits = np.full((1, 1000), -1000.0, dtype=np.float32)
    logits[0, 3] = 1000  # outside the 207 classes: a forced choice ignores it
    logits[0, 499] = -999
    assert NAMES[decide(logits)[0]] == "knife"


def test_ties_go_to_the_first_name():
    assert decide(np.zeros((2, 1000))).tolist() == [0, 0]
    logits = np.full((1, 1000), -5.0)
    logits[0, [766, 499]] = 1  # oven and knife
    assert NAMES[decide(logits)[0]] == "knife"


def test_sixteen_columns_are_answers_and_a_row_without_numbers_is_none():
    answers = np.zeros((3, 16))
    answers[0, 4] = answers[1, 15] = 1
    answers[2] = np.nan
    for aggregation in AGGREGATIONS:
        assert decide(answers, aggregation).tolist() == [4, 15, NO_ANSWER]


@pytest.mark.parametrize(
    ("columns", "aggregation", "words"),
    [(10, "mean", "got 10 columns"), (1001, "mean", "1000 classes or of 16"), (1000, "median", "got 'median'")],
)
def test_wrong_logits_and_rules_are_refused(columns, aggregation, words):
    with pytest.raises(ValueError, match=words):
        decide(np.zeros((1, columns)), aggregation)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("cat/cat10-elephant1.png", ("cat10-elephant1.png", "cat", "0")),
        ("edges/truck/truck3.png", ("truck3.png", "truck", "0")),
        ("0001_s5n_dnn_0_airplane_00_airplane1-bicycle2.png", ("airplane1-bicycle2.png", "airplane", "0")),
        (
            "dnn/session-1/1268_cop_dnn_c05_bicycle_10_n03792782_19774.png",
            ("n03792782_19774.png", "bicycle", "c05"),
        ),
        ("0007_nse_s01_0.10_dog_10_n02113799_653.png", ("n02113799_653.png", "dog", "0.1")),
        ("0007_fcl_s01_True_dog_10_n02113799_653.png", ("n02113799_653.png", "dog", "true")),
        ("0007_eid_dnn_16-10-10_oven_10_n04111531_1.png", ("n04111531_1.png", "oven", "16-10-10")),
    ],
)
def test_names_of_stimuli_tell_picture_category_and_condition(path, expected):
    found = picture(path)
    assert (found.id, found.category, found.condition) == expected


def test_texture_is_the_second_cue_and_other_names_are_refused():
    assert texture("bottle10-knife3.png") == "knife"
    with pytest.raises(ValueError, match=r"named like cat7-elephant1\.png, got bottle10\.png"):
        texture("bottle10.png")
    with pytest.raises(ValueError, match="folder of one of the 16 categories"):
        picture("n01440764/ILSVRC2012_val_00000293.JPEG")


def test_accuracy_counts_the_kept_conditions_and_shows_each():
    answers = np.zeros((4, 16))
    answers[:, NAMES.index("dog")] = 1
    paths = [f"000{i}_cop_dnn_{c}_{name}_10_n02113799_{i}.png" for i, (c, name) in enumerate(
        [("c100", "dog"), ("c50", "dog"), ("c50", "cat"), ("c01", "cat")]
    )]  # fmt: skip
    found = Accuracy16(("c50",))(answers, paths)
    assert {name: e.value for name, e in found.items()} == {
        "accuracy16": 50.0,
        "accuracy16.c100": 100.0,
        "accuracy16.c50": 50.0,
        "accuracy16.c01": 0.0,
    }
    assert found["accuracy16"].n == 2


def test_logits_are_measured_with_all_three_aggregations():
    paths = [f"{NAMES[i % 16]}/{NAMES[i % 16]}{i}.png" for i in range(64)]
    assert list(Accuracy16()(random_logits(64), paths)) == ["accuracy16", "accuracy16_sum", "accuracy16_max"]
