"""What would be changed without a word on its way in is refused at the door: expected ..., got ..."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import testbed
from faults.fuzzing import fuzz_settings
from testbed import ArrayDataset, EvalSetting, ManifestDataset, Model
from testbed.data.labels import checked_labels
from testbed.data.listed import ListedDataset
from testbed.data.rows import Rows
from testbed.errors import DataError, EntryError, ModelError
from testbed.metrics.estimate import Estimate
from testbed.store.measuring import measure
from testbed.store.outputs import Outputs

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


def setting(labels=(0, 1, 2, 0, 1, 2), **more):
    return EvalSetting(name="six", dataset=ArrayDataset(make=lambda: (IMAGES, np.asarray(labels)), **more))


def model(classify):
    return Model(
        name="odd",
        transform=None,
        classifier_loader=lambda: torch.nn.Flatten(),
        classify=lambda images, model: classify(images),
        eval_batch_size=4,
    )


def logits_with(value, row=None):
    def classify(images):
        logits = torch.zeros(len(images), 3, dtype=torch.as_tensor(value).dtype)
        logits[:, 0] = images.mean(dim=(1, 2, 3))
        if row is None or images.mean() > 0:
            logits[row if row is not None else slice(None), 1] = value
        return logits

    return classify


# ---- what a model gives ----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
def test_infinite_logits_are_refused_with_model_and_image(value):
    with pytest.raises(DataError, match="model 'odd' gives infinite logits for image 000002: expected finite numbers"):
        testbed.predict(model(logits_with(value, row=2)), setting())


def test_nan_is_still_told_as_nan():
    with pytest.raises(DataError, match="model 'odd' gives NaN for image 000001"):
        testbed.predict(model(logits_with(float("nan"), row=1)), setting())


def test_complex_logits_are_refused_and_keep_no_real_part():
    with pytest.raises(ModelError, match="model 'odd': expected real logits, got complex64"):
        testbed.predict(model(logits_with(torch.tensor(1 + 2j))), setting())


def test_logits_beyond_float16_are_not_stored_as_infinite():
    largest = model(logits_with(65504.0))  # the largest finite number of binary16, IEEE 754
    assert np.isfinite(testbed.predict(largest, setting(), logits_dtype="float16").logits).all()
    with pytest.raises(DataError, match=r"gives logits up to 70000, float16 ends at 65504: leave out --logits-dtype"):
        testbed.predict(model(logits_with(70000.0)), setting(), logits_dtype="float16")
    assert testbed.predict(model(logits_with(70000.0)), setting()).logits.max() == 70000


# ---- labels ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "came"),
    [
        (float("nan"), "got nan for image 3"),
        (float("inf"), "got inf for image 3"),
        (3.7, "got 3.7 for image 3"),
        (-5, "got -5 for image 3"),
        (-1.5, "got -1.5 for image 3"),
        (10, "got 10 for image 3"),
        (2**40, f"got {2**40} for image 3"),
        (2**64 - 1, f"got {2.0**64:g}"[:8]),
        (1 + 0j, "got complex128 values such as '0j'"),
        ("two", "got <U"),
        (None, "got object values"),
    ],
)
def test_label_that_is_no_class_number_is_refused(label, came):
    labels = [0, 1, 2, label, 1, 2]
    with pytest.raises(
        DataError, match="expected labels that are whole numbers from 0 to 9, or -1 for no label"
    ) as told:
        setting(labels, num_classes=10).dataset.open([])
    assert came in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint64, np.int64, np.float32, np.float64, np.bool_])
def test_whole_numbers_of_any_type_are_labels(kind):
    opened = setting(np.array([0, 1, 1, 0, 1, 1], dtype=kind), num_classes=2).dataset.open([])
    assert opened.targets.dtype == np.int64 and opened.targets.tolist() == [0, 1, 1, 0, 1, 1]
    assert setting([0, -1, 1, 0, 1, 1], num_classes=2).dataset.open([]).targets.tolist() == [0, -1, 1, 0, 1, 1]


numbers = st.one_of(st.integers(-3, 12), st.floats(-3, 12), st.sampled_from([np.nan, np.inf, -np.inf, 2.0**53]))


some_labels = st.one_of(
    arrays.arrays(np.float64, 5, elements=numbers), arrays.arrays(np.int64, 5, elements=st.integers(-3, 12))
)


@fuzz_settings(200)
@given(some_labels)
def test_labels_come_through_unchanged_or_not_at_all(values):
    good = all(v == int(v) and -1 <= v <= 9 for v in values.tolist() if np.isfinite(v)) and np.isfinite(values).all()
    if good:
        assert checked_labels(values, "x", 10).tolist() == [int(v) for v in values]
    else:
        with pytest.raises(DataError, match="x: expected labels that are whole numbers"):
            checked_labels(values, "x", 10)


@pytest.mark.parametrize("cell", ["-5", "3.7", "nan", "NaN", "1e3", "inf", "-1", "None", "0x1", "1_0", "²"])
def test_cell_that_is_no_class_number_is_refused_in_lists_of_numbers(image_folder, cell):
    folder = image_folder(["a.png", "b.png"])
    (folder / "list.csv").write_text(f"image,label\na.png,0\nb.png,{cell}\n", encoding="utf-8")
    if cell not in ("0x1", "1_0", "²"):  # names, among which 0 is a name too
        with pytest.raises(DataError, match=r"line 3: expected class numbers 0, 1, 2, \.\.\. or nothing for no label"):
            ManifestDataset(folder / "list.csv").open([])
    with pytest.raises(DataError, match=r"expected integer class names|expected class numbers"):
        ManifestDataset(folder / "list.csv", labels="integer").open([])
    (folder / "list.txt").write_text(f"a.png,0\nb.png,{cell}\n", encoding="utf-8")
    with pytest.raises(DataError, match="expected a picture and the number of its class, got"):
        ListedDataset(name=folder.name, listing="list.txt").open([folder.parent])


def test_bread_is_a_class_where_no_label_is_a_number(image_folder):
    folder = image_folder(["a.png", "b.png"])
    (folder / "list.csv").write_text("image,label\na.png,nan\nb.png,pizza oven\n")
    assert ManifestDataset(folder / "list.csv").open([]).targets.tolist() == [0, 1]


# ---- what a metric gives ---------------------------------------------------------------------------------


def measured(metrics_fn, targets=(0, 1, 2, 0)):
    n = len(targets)
    rows = Rows(np.array([str(i) for i in range(n)]), np.array(targets), np.arange(n))
    outputs = Outputs(rows, np.eye(n, 3, dtype=np.float32), {}, "m")
    dataset = ArrayDataset(make=lambda: (IMAGES, None))
    return measure(EvalSetting(name="six", dataset=dataset, metrics_fn=metrics_fn), None, outputs)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"a": 1 + 2j}, "metric 'a': expected a real number, got complex '(1+2j)'"),
        ({"a": np.complex64(1)}, "metric 'a': expected a real number, got complex"),
        ({"a": "12"}, "metric 'a': expected a real number, got str '12'"),
        ({"a": None}, "metric 'a': expected a real number, got NoneType 'None'"),
        ({"a": [1.0]}, "metric 'a': expected a real number, got list '[1.0]'"),
        ({"a": np.array([1.0, 2.0])}, "metric 'a': expected a real number, got ndarray"),
        ({"a": Estimate(1j)}, "metric 'a': expected a real number, got complex"),
        ({"a": Estimate(1.0, 0.5, "2")}, "metric 'a': expected a real number, got str '2'"),
        ({3: 1.0}, "expected names of metrics as text, got 3"),
        ({"": 1.0}, "expected names of metrics as text, got ''"),
        ({" ": 1.0}, "expected names of metrics as text, got ' '"),
        ({None: 1.0}, "expected names of metrics as text, got None"),
        ({("a", "b"): 1.0}, "expected names of metrics as text, got ('a', 'b')"),
        (0.5, "must return a dict of numbers, got float"),
        (None, "must return a dict of numbers, got NoneType"),
        ([("a", 1.0)], "must return a dict of numbers, got list"),
    ],
    ids=str,
)
def test_metric_that_is_no_number_by_name_is_refused(numbers, words):
    with pytest.raises(EntryError) as told:
        measured(lambda logits, targets: numbers)
    assert str(told.value).startswith("metrics_fn of 'six'") and words in str(told.value)


@pytest.mark.parametrize("value", [1, True, 0.5, np.float32(0.5), np.int64(3), np.array(0.5), torch.tensor(0.5)])
def test_numbers_of_every_library_are_metrics(value):
    assert measured(lambda logits, targets: {"a": value})["a"].value == float(value)


@pytest.mark.filterwarnings("ignore:All-NaN slice")
def test_nan_is_a_metric_that_has_no_value_as_before():
    assert np.isnan(measured(lambda logits, targets: {"a": float("nan")})["a"].value)


def test_label_beyond_the_columns_is_told_where_a_metric_stumbles_over_it():
    def likelihood(logits, targets):
        return {"likelihood": float(logits[np.arange(len(targets)), targets].mean())}

    assert measured(likelihood)["likelihood"].n == 4
    with pytest.raises(DataError, match="metrics_fn of 'six': expected labels from 0 to 2, one for each column of the"):
        measured(likelihood, targets=(0, 1, 12, 0))


def test_index_error_of_a_metric_of_its_own_making_stays_what_it_is():
    with pytest.raises(IndexError, match="list index out of range"):
        measured(lambda logits, targets: {"a": [][1]})
