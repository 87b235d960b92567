import numpy as np
import pytest

from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.labels import COLUMNS, meaning_of_targets
from testbed.metrics.multilabel import (
    SeveralLabels,
    ValidationLabels,
    folder_labels,
    multilabel_accuracy,
    validation_number,
)

LOGITS = np.eye(4)[[0, 1, 2, 3, 0]]  # predicts 0 1 2 3 0


def test_a_hit_is_a_prediction_among_the_labels_and_empty_lists_are_dropped():
    found = multilabel_accuracy(LOGITS, [[0], [0, 1], [3], [], [1, 2]])["top1"]
    assert (found.value, found.n) == (50, 4)


def test_labels_are_found_by_the_number_in_the_file_name():
    metric = ValidationLabels(lambda: [[3], [1], [2]])
    paths = ["n1/ILSVRC2012_val_00000003.JPEG", "n2/ILSVRC2012_val_00000002.JPEG"]
    assert metric(LOGITS[[2, 0]], paths)["top1"].value == 50


def test_file_names_of_hugging_face_have_the_number_too():
    assert validation_number("n01440764/ILSVRC2012_val_00000293.JPEG") == 293
    assert validation_number("ILSVRC2012_val_00000293_n01440764.JPEG") == 293


def test_without_several_labels_accuracy_is_that_of_the_targets():
    rng = np.random.default_rng(0)
    logits, targets = rng.normal(size=(50, 10)), rng.integers(-1, 10, 50)
    paths = [f"{i}.png" for i in range(50)]
    assert SeveralLabels(dict)(logits, targets, paths) == accuracy_topk(logits, targets)
    assert SeveralLabels(dict)(logits, np.full(50, -1), paths) == {}
    assert meaning_of_targets(SeveralLabels(dict)) == COLUMNS


def test_any_of_several_labels_is_right():
    metric = SeveralLabels(lambda: {"b": (0, 1), "c": (3, 1), "d": (2, 3)})
    found = metric(LOGITS, np.array([0, 0, 3, 2, -1]), list("abcde"))
    assert (found["top1"].value, found["top1"].n) == (75, 4)  # a, b and d; e has no label


def test_any_of_several_labels_may_be_among_the_first_five():
    logits = -np.arange(8.0)[None].repeat(2, axis=0)
    found = SeveralLabels(lambda: {"a": (7, 4), "b": (7, 5)})(logits, np.array([7, 7]), ["a", "b"])
    assert (found["top1"].value, found["top5"].value) == (0, 50)


def test_labels_of_another_list_or_beyond_the_columns_are_refused():
    with pytest.raises(ValueError, match=r"expected 2 among the labels of a, got \[0, 1\]: the list has changed"):
        SeveralLabels(lambda: {"a": (1, 0)})(LOGITS[:1], np.array([2]), ["a"])
    with pytest.raises(ValueError, match=r"expected labels below 4, the number of classes, got 9 of a"):
        SeveralLabels(lambda: {"a": (1, 9, 2)})(LOGITS[:1], np.array([1]), ["a"])


def test_folders_name_several_labels():
    found = folder_labels(LOGITS, ["0+3/a.jpg", "2/b.jpg", "x/1+2/c.jpg", "3/d.jpg", "1/e.jpg"])["top1"]
    assert (found.value, found.n) == (60, 5)


@pytest.mark.parametrize("folder", ["3+", "+", "cat", "-3", "3 + 4"])
def test_folder_that_names_no_classes_is_refused(folder):
    with pytest.raises(ValueError) as error:
        folder_labels(LOGITS[:2], ["1/a.jpg", f"{folder}/a.jpg"])
    assert str(error.value) == f"expected folders named after class numbers such as 409+530, got {folder!r}"


def test_other_file_names_are_refused():
    with pytest.raises(ValueError, match=r"named like ILSVRC2012_val_00000293\.JPEG, got n1/a\.png"):
        validation_number("n1/a.png")
    with pytest.raises(ValueError, match="expected labels of 5 pictures, got 1"):
        multilabel_accuracy(LOGITS, [[0]])


def test_labels_must_be_columns_of_the_logits():
    for several, refused in (([0, 3], False), ([0, 4], True)):
        metric = SeveralLabels(lambda several=several: {"a.jpg": several})
        if refused:
            with pytest.raises(ValueError, match=r"expected labels below 4, the number of classes, got 4 of a.jpg"):
                metric(LOGITS[:1], np.array([0]), ["a.jpg"])
        else:
            assert metric(LOGITS[:1], np.array([0]), ["a.jpg"])["top1"].value == 100
