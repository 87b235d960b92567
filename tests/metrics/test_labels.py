"""What metrics functions declare their targets to be."""

import pytest

from testbed.metrics.accuracy import accuracy_topk, class_accuracy
from testbed.metrics.calibration import calibration
from testbed.metrics.categories16 import Accuracy16
from testbed.metrics.class_groups import InGroup, Merged, Superclasses
from testbed.metrics.classification import classification, subset_classification
from testbed.metrics.contrastive import explanation_metrics
from testbed.metrics.labels import COLUMNS, OWN, meaning_of_targets, targets_are
from testbed.metrics.multilabel import AnyOf, SeveralLabels, ValidationLabels, folder_labels
from testbed.metrics.ood import mean_scores
from testbed.metrics.sequences import FlipRate, FrameAccuracy
from testbed.metrics.shape_bias import CueConflict
from testbed.metrics.shortcuts import accuracy_by_folder, carton, spurious_feature

DECLARED = {
    COLUMNS: (
        *(accuracy_topk, class_accuracy, calibration, classification, subset_classification, carton),
        *(accuracy_by_folder, Merged(((0,),)), SeveralLabels(dict)),
    ),
    OWN: (
        *(InGroup(((0,),)), Superclasses(((0,),)), AnyOf(((0,),)), FrameAccuracy(((0,),), lambda paths: None)),
        *(Accuracy16(), CueConflict(), mean_scores),
    ),
    None: (ValidationLabels(list), FlipRate(), folder_labels, spurious_feature, explanation_metrics),
}


@pytest.mark.parametrize("meaning", list(DECLARED))
def test_metrics_declare_what_their_targets_are(meaning):
    for metrics_fn in DECLARED[meaning]:
        assert meaning_of_targets(metrics_fn) == meaning, metrics_fn


def test_decorator_declares_and_changes_nothing_else():
    def metrics_fn(logits):
        return {}

    assert meaning_of_targets(metrics_fn) is None
    assert targets_are(OWN)(metrics_fn) is metrics_fn
    assert meaning_of_targets(metrics_fn) == OWN


def test_unknown_word_is_refused_where_it_is_said_and_where_it_is_read():
    with pytest.raises(ValueError, match="expected targets to be 'columns' or 'own', got 'classes'"):
        targets_are("classes")

    class Metric:
        targets_are = True

    with pytest.raises(ValueError, match="metrics function Metric: expected targets to be 'columns' or 'own', got Tru"):
        meaning_of_targets(Metric())
