"""Every metric declares what kind of number it is, and keeps to it."""

import json
from pathlib import Path

import numpy as np
import pytest

from testbed.metrics import consistency
from testbed.metrics.accuracy import FULL_PREDICTION, accuracy_topk, class_accuracy, per_class_accuracy
from testbed.metrics.aggregates import GAP, CorruptionSummary, Difference, FlipRates, Mean
from testbed.metrics.calibration import calibration
from testbed.metrics.categories16 import Accuracy16
from testbed.metrics.class_groups import InGroup, Merged, Superclasses
from testbed.metrics.classification import classification, subset_classification
from testbed.metrics.contrastive import explanation_metrics
from testbed.metrics.estimate import (
    ACCURACY,
    COUNT,
    ERROR,
    UNDECLARED,
    Estimate,
    MetricKind,
    as_number,
    clipped,
    mean_estimate,
    mean_of_estimates,
    share,
)
from testbed.metrics.multilabel import AnyOf, SeveralLabels, ValidationLabels, folder_labels
from testbed.metrics.ood import detection, mean_scores
from testbed.metrics.sequences import FlipRate, flip_rate, pm_accuracy
from testbed.metrics.shape_bias import CueConflict
from testbed.metrics.shortcuts import accuracy_by_folder, carton, spurious_feature
from testbed.stats.intervals import mean_interval

RNG = np.random.default_rng(0)
N = 24
LOGITS = 4 * RNG.normal(size=(N, 8)).astype(np.float32)
WIDE = 4 * RNG.normal(size=(N, 1000)).astype(np.float32)
TARGETS = RNG.integers(0, 8, N)
GROUPS = ((0, 1), (2, 3), (4, 5), (6, 7))
SHAPES = ("cat", "dog", "car")
CUES = [f"{s}/{s}1-{t}{i}.png" for i in range(3) for s in SHAPES for t in ("cat", "oven")] + ["cat/cat1-cat9.png"] * 6
FOLDERS = [f"class_1_{i % 3}_component_0/{i}.jpg" for i in range(N)]
FRAMES = [f"video{i // 4}/{i % 4}.jpg" for i in range(N)]
PATHS = [f"{('ori', 'full')[i % 2]}/{i}.jpg" for i in range(N)]
BASELINE = json.loads(
    (Path(__file__).parents[2] / "registry" / "metadata" / "alexnet_imagenet_c_error.json").read_text()
)


class Stored:
    """Results as they come from the store, without kinds."""

    members = ("a", "b")

    def per_image(self, setting, metric):
        return None

    def estimate(self, setting, metric):
        return Estimate(8.0, 6.0, 11.0, 50) if metric in ("flip_rate", "t5d") else Estimate(40.0, 30.0, 50.0, 50)

    def of(self, model):
        return self


def explanations():
    values = RNG.random((5, 2))
    names = ("cauc", "cdrop", "cauc_per_area", "deletion_auc", "insertion_auc")
    shape = {"positive": np.ones((5, 2, 1)), "invalid": np.zeros((5, 2)), "salient_percent": 100 * values}
    return explanation_metrics(shape | dict.fromkeys(names, values))


def people():
    correct = RNG.random((3, 40)) < 0.7
    numbers = consistency.averaged([consistency.draws([correct], [(0, 1), (0, 2)], 50)])
    return {name: getattr(numbers, name) for name in ("accuracy_difference", "observed", "error")}


def corruption_summary():
    return CorruptionSummary("c.{corruption}.{severity}", "clean", tuple(BASELINE), BASELINE)(Stored())


HIGHER, LOWER, NEITHER = "higher", "lower", None
# What the papers say of each number; names that end in . stand for all that begin so.
CASES = {
    "accuracy_topk": (lambda: accuracy_topk(LOGITS, TARGETS), {"top1": HIGHER, "top5": HIGHER}),
    "class_accuracy": (lambda: class_accuracy(LOGITS, TARGETS), {"top1_": HIGHER}),
    "per_class_accuracy": (lambda: {f"c{k}": e for k, e in per_class_accuracy(LOGITS, TARGETS).items()}, {"c": HIGHER}),
    "classification": (
        lambda: classification(LOGITS, TARGETS),
        {"top": HIGHER, "nll": LOWER, "brier": LOWER, "ece": LOWER},
    ),
    "subset_classification": (
        lambda: subset_classification(LOGITS, TARGETS, {FULL_PREDICTION: TARGETS}),
        {"top": HIGHER, "nll": LOWER, "brier": LOWER, "ece": LOWER},
    ),
    "calibration": (
        lambda: calibration(LOGITS, TARGETS),
        {"temperature": NEITHER} | dict.fromkeys(("ece", "adaptive_ece", "nll", "brier", "selective_risk"), LOWER),
    ),
    "InGroup": (lambda: InGroup(GROUPS)(LOGITS, TARGETS // 2), {"top1": HIGHER}),
    "Merged": (
        lambda: Merged(GROUPS, {"w": (1, 2, 3, 4)}, uniform=True)(LOGITS, TARGETS),
        {"top1": HIGHER, "w": HIGHER},
    ),
    "Superclasses": (lambda: Superclasses(GROUPS)(LOGITS, TARGETS // 2), {"top1": HIGHER}),
    "AnyOf": (lambda: AnyOf(GROUPS)(LOGITS, TARGETS // 2), {"top1": HIGHER}),
    "SeveralLabels": (lambda: SeveralLabels(dict)(LOGITS, TARGETS, PATHS), {"top": HIGHER}),
    "ValidationLabels": (
        lambda: ValidationLabels(lambda: [[0, 3]] * N)(
            LOGITS, [f"ILSVRC2012_val_{i:08d}.JPEG" for i in range(1, N + 1)]
        ),
        {"top1": HIGHER},
    ),
    "folder_labels": (lambda: folder_labels(LOGITS, ["1+2/a.jpg"] * N), {"top1": HIGHER}),
    "detection": (
        lambda: detection(LOGITS[:, 0], LOGITS[:, 1]),
        {"auroc": HIGHER, "fpr95": LOWER, "aupr_": HIGHER},  # OpenOOD
    ),
    "mean_scores": (lambda: mean_scores(LOGITS), dict.fromkeys(("msp", "max_logit", "energy", "entropy"), NEITHER)),
    "pm": (lambda: pm_accuracy(TARGETS > 3, [0, 5, 9], [[1], [2, 4], []]), {"pm": HIGHER}),
    "FlipRate": (lambda: FlipRate()(LOGITS, FRAMES), {"flip_rate": LOWER, "t5d": LOWER}),
    "flip_rate": (lambda: {"flip_rate": flip_rate(TARGETS.reshape(6, 4))}, {"flip_rate": LOWER}),
    "CueConflict": (
        lambda: CueConflict()(WIDE, CUES),
        dict.fromkeys(("shape_", "texture_", "neither"), NEITHER) | {"accuracy16": HIGHER, "non_conflict": HIGHER},
    ),
    "Accuracy16": (lambda: Accuracy16()(WIDE, CUES), {"accuracy16": HIGHER}),
    "carton": (
        lambda: carton(WIDE, np.where(TARGETS > 3, 478, TARGETS)),
        {"nll": LOWER, "brier": LOWER, "ece": LOWER, "top1_carton": NEITHER, "top": HIGHER, "p_carton": NEITHER},
    ),
    "spurious_feature": (lambda: spurious_feature(LOGITS, FOLDERS), {"taken_for_class": LOWER, "p_class": LOWER}),
    "accuracy_by_folder": (lambda: accuracy_by_folder(LOGITS, TARGETS, PATHS), {"top1": HIGHER}),
    "explanation_metrics": (
        explanations,
        {"cauc": LOWER, "cdrop": HIGHER, "deletion_auc": LOWER, "insertion_auc": HIGHER}  # Xie et al., Petsiuk et al.
        | {"salient_percent": NEITHER, "n_": NEITHER},
    ),
    "consistency": (people, {"accuracy_difference": LOWER, "observed": HIGHER, "error": HIGHER}),  # model-vs-human
    "CorruptionSummary": (corruption_summary, {"mean_top1": HIGHER, "mce": LOWER, "relative_mce": LOWER, "ce.": LOWER}),
    "Mean": (lambda: Mean()(Stored()), {"mean_top1": HIGHER}),
    "Difference": (lambda: Difference("gap", "a", "b", kind=GAP)(Stored()), {"gap": LOWER}),
    "FlipRates": (lambda: FlipRates()(Stored()), {"mean_": LOWER, "mfr": LOWER, "mt5d": LOWER}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_number_declares_its_kind_and_lies_in_its_range(case):
    measure, directions = CASES[case]
    metrics = measure()
    assert metrics
    for name, estimate in metrics.items():
        kind = estimate.kind
        assert kind != UNDECLARED, name
        start = next(word for word in directions if name.startswith(word))
        assert kind.better == directions[start], name
        for end in (estimate.value, estimate.ci_low, estimate.ci_high):
            if end is not None and not np.isnan(end):
                assert kind.clip(end) == pytest.approx(end, abs=1e-12), name
        if estimate.ci_low is not None:
            assert estimate.ci_low <= estimate.value + 1e-12, name
            assert estimate.ci_high >= estimate.value - 1e-12, name


def test_units_tell_what_is_counted():
    metrics = calibration(LOGITS, TARGETS)
    assert [metrics[name].kind.unit for name in ("ece", "nll", "brier")] == ["%", "nats", ""]
    cues = CueConflict()(WIDE, CUES)
    assert (cues["shape_bias"].kind.unit, cues["neither"].kind.unit) == ("%", "images")


def test_kind_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match="expected better to be 'higher', 'lower' or None, got 'more'"):
        MetricKind("%", "more")
    with pytest.raises(ValueError, match="expected lowest <= highest, got 1 and 0"):
        MetricKind(lowest=1, highest=0)


def test_share_is_an_accuracy_unless_told_otherwise():
    assert share(1, 2).kind == ACCURACY
    assert share(1, 2, ERROR).kind == ERROR
    assert Estimate(1.0).kind == UNDECLARED


def test_mean_has_the_usual_interval_inside_the_range_of_its_kind():
    values = np.array([3.0, 5.0, 4.0])
    middle = mean_estimate(values, ACCURACY)
    assert (middle.value, middle.ci_low, middle.ci_high) == mean_interval(values)
    assert middle.n == 3
    edge = mean_estimate([0.0, 0.0, 9.0], ACCURACY, n=50)
    assert (edge.value, edge.ci_low, edge.n) == (3.0, 0.0, 50)
    assert mean_estimate([0.0, 0.0, 9.0], UNDECLARED).ci_low < 0
    assert mean_estimate([100.0, 100.0, 91.0], ACCURACY).ci_high == 100.0


def test_one_value_and_infinite_values_have_no_interval():
    assert mean_estimate([7.0], COUNT) == Estimate(7.0, n=1, kind=COUNT)
    assert clipped(1.0, float("-inf"), 2.0, 3, COUNT) == Estimate(1.0, n=3, kind=COUNT)


def test_mean_of_estimates_takes_the_mean_of_the_ends():
    members = [Estimate(10.0, 8.0, 13.0), Estimate(20.0, 18.0, 25.0)]
    assert mean_of_estimates(members, ERROR) == Estimate(15.0, 13.0, 19.0, kind=ERROR)
    assert mean_of_estimates([*members, Estimate(30.0)], ERROR) == Estimate(20.0, kind=ERROR)


def test_an_array_with_a_single_number_is_one_and_an_array_with_a_place_is_none():
    assert as_number(np.array(2.5)) == 2.5
    for value in (np.array([2.5]), np.array([[2.5]])):
        with pytest.raises(ValueError, match="expected a real number, got ndarray"):
            as_number(value)
