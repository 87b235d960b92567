import numpy as np
import pytest

from testbed.metrics.multilabel import ValidationLabels, multilabel_accuracy, validation_number

LOGITS = np.eye(4)[[0, 1, 2, 3, 0]]  # predicts 0 1 2 3 0


def test_a_hit_is_a_prediction_among_the_labels_and_empty_lists_are_dropped():
    found = multilabel_accuracy(LOGITS, [[0], [0, 1], [3], [], [1, 2]])["top1"]
    assert (found.value, found.n) == (50, 4)


def test_labels_are_found_by_the_number_in_the_file_name():
    metric = ValidationLabels(lambda: [[3], [1], [2]])
    paths = ["n1/ILSVRC2012_val_00000003.JPEG", "n2/ILSVRC2012_val_00000002.JPEG"]
    assert metric(LOGITS[[2, 0]], paths)["top1"].value == 50


def test_other_file_names_are_refused():
    with pytest.raises(ValueError, match=r"named like ILSVRC2012_val_00000293\.JPEG, got n1/a\.png"):
        validation_number("n1/a.png")
    with pytest.raises(ValueError, match="expected labels of 5 pictures, got 1"):
        multilabel_accuracy(LOGITS, [[0]])
