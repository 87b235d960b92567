"""Whatever table of answers is given: it is taken in with the accuracy of its answers, or refused in one line."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.fuzzing import fuzz_settings
from stored_results import evaluations, results
from testbed import ArrayDataset, EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import TestbedError
from testbed.store.formats.predictions import read_predictions
from testbed.store.formats.predictions_import import import_predictions
from testbed.store.opening import open_store

N, CLASSES = 6, 3
TARGETS = np.arange(N) % CLASSES
IDS = [f"{i:06d}" for i in range(N)]
DATA = ArrayDataset(make=lambda: (np.zeros((N, 4, 4, 3), dtype=np.uint8), TARGETS), num_classes=CLASSES)
REGISTRY = Registry()
REGISTRY.eval_settings.add(EvalSetting(name="s", dataset=DATA, size=N), "here")


@pytest.fixture(scope="module")
def folder():
    place = Path(tempfile.mkdtemp(prefix="testbed-answers-"))
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def empty(folder):
    open_store(str(folder / "empty.db"), create=True).engine.dispose()
    return (folder / "empty.db").read_bytes()


def taken_or_refused(path, empty, missing):
    """The stored accuracy; None where the table was refused."""
    (path.parent / "results.db").write_bytes(empty)
    store = open_store(str(path.parent / "results.db"))
    try:
        import_predictions(store, REGISTRY, path, "s", "api", missing=missing)
    except TestbedError as error:
        told = str(error)
        assert told and "\n" not in told and "\x1b" not in told and len(told) < 700
        assert evaluations(store) == []
        return None
    else:
        return next(n.value for n in results(store, ["api"], ["s"]) if n.metric == "top1")
    finally:
        store.engine.dispose()


ANSWERS = st.one_of(
    st.sampled_from(["0", "1", "2", "2", "", "3", "-1", "1.0", "0;1", "cat", "=1"]), st.text(max_size=4)
)
IMAGES = st.one_of(st.sampled_from([*IDS, "x/000001.png", "000002.jpg"]), st.text(max_size=8))


@fuzz_settings(150)
@given(st.lists(st.tuples(IMAGES, ANSWERS), max_size=8), st.booleans(), st.sampled_from(["refuse", "wrong"]))
def test_any_table_is_taken_in_with_its_own_accuracy_or_refused_in_one_line(folder, empty, rows, whole, missing):
    if whole:
        rows = [(id_, answer) for id_, (_, answer) in zip(IDS, [*rows, *[("", "0")] * N], strict=False)]
    path = folder / "table.csv"
    with path.open("w", newline="", encoding="utf-8", errors="surrogatepass") as file:
        csv.writer(file).writerows([("image", "answer"), *rows])
    top1 = taken_or_refused(path, empty, missing)
    if top1 is not None and whole:
        first = [answer.split(";")[0].strip() for _, answer in rows]
        right = [word.isdecimal() and int(word) == target for word, target in zip(first, TARGETS, strict=True)]
        assert top1 == pytest.approx(100 * np.mean(right))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**400) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
CELLS = st.fixed_dictionaries({"image": IMAGES | JSON}, optional={"answer": ANSWERS | JSON, "probabilities": JSON})


@fuzz_settings(150)
@given(st.lists(CELLS | JSON, max_size=4))
def test_any_json_is_taken_in_or_refused_in_one_line(folder, empty, lines):
    path = folder / "table.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    taken_or_refused(path, empty, "wrong")


@fuzz_settings(100)
@given(st.binary(max_size=80), st.sampled_from(["csv", "jsonl", "parquet"]))
def test_any_bytes_are_taken_in_or_refused_in_one_line(folder, empty, content, ending):
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    path = folder / f"table.{ending}"
    path.write_bytes(content)
    taken_or_refused(path, empty, "wrong")


@pytest.mark.parametrize("name", ["fifo.csv", "folder.csv", "missing.csv", "table.txt"])
def test_what_is_no_table_is_refused_and_never_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / "fifo.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TestbedError):
        read_predictions(tmp_path / name)
