"""Decisions in the published CSV format: read, refused, written."""

import math

import numpy as np
import pytest

from shared_data import shared_data
from testbed.errors import StoreError
from testbed.metrics.categories16 import NAMES, NO_ANSWER
from testbed.store.formats.decisions import answers, read_folder, write_csv

HEADER = "subj,session,trial,rt,object_response,category,condition,imagename"
CAT = "subject-01,1,2,0.75,cat,cat,0,0002_s5n_s01_0_cat_00_cat10-dog1.png"
NONE = "subject-01,1,1,NaN,na,airplane,0,0001_s5n_s01_0_airplane_00_airplane1-dog2.png"


@pytest.fixture
def folder(tmp_path):
    """A function that makes a folder of CSV files from lists of lines."""

    def make(**files):
        for name, lines in files.items():
            (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path

    return make


def test_trials_come_in_the_order_of_their_pictures(folder):
    (found,) = read_folder(folder(a=[HEADER, CAT, NONE]))
    assert found.observer == "subject-01" and found.is_person
    assert [t.id for t in found.trials] == ["airplane/airplane1-dog2.png", "cat/cat10-dog1.png"]
    assert [t.response for t in found.trials] == [NO_ANSWER, NAMES.index("cat")]
    assert [t.trial for t in found.trials] == [1, 2]
    assert math.isnan(found.trials[0].seconds) and found.trials[1].seconds == 0.75


def test_sessions_of_an_observer_are_joined_and_headers_may_have_capitals(folder):
    (found,) = read_folder(folder(a=[HEADER, CAT], b=[HEADER.replace("session", "Session"), NONE]))
    assert len(found.trials) == 2
    assert found.files == ("a.csv", "b.csv")


def test_conditions_keep_the_name_of_the_trial_and_bare_names_go_to_their_category(folder):
    noise = "net,1,1,NaN,dog,dog,0.10,0001_nse_dnn_0.10_dog_10_n02113799_653.png"
    bare = "net,1,2,NaN,dog,cat,NaN,cat3-dog1.png"
    (found,) = read_folder(folder(a=[HEADER, noise, bare]))
    assert sorted(t.id for t in found.trials) == [
        "0001_nse_dnn_0.10_dog_10_n02113799_653.png",
        "cat/cat3-dog1.png",
    ]
    assert not found.is_person


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([HEADER.replace("rt,", "")], "expected the columns .*, rt missing"),
        (
            [HEADER, CAT.replace(",cat,cat,", ",zebra,cat,")],
            "line 2: expected one of the 16 categories or na, got 'zebra'",
        ),
        ([HEADER, CAT.replace(",cat,cat,", ",cat,zebra,")], "line 2: expected one of the 16 categories, got 'zebra'"),
        ([HEADER, "a,b"], "line 2: expected 8 cells, got 2"),
        ([HEADER, CAT.replace("0.75", "fast")], "seconds or NaN as rt, got '2' and 'fast'"),
        ([HEADER, CAT, CAT], "subject-01 has two answers to cat/cat10-dog1.png"),
    ],
)
def test_what_is_not_the_format_is_refused_with_its_place(folder, lines, words):
    with pytest.raises(StoreError, match=words):
        read_folder(folder(bad=lines))


def test_folder_without_files_is_refused(tmp_path):
    with pytest.raises(StoreError, match="expected CSV files of decisions"):
        read_folder(tmp_path)


def test_answers_become_logits_of_the_categories(folder):
    (found,) = read_folder(folder(a=[HEADER, CAT, NONE]))
    logits = answers(found.trials)
    assert np.isnan(logits[0]).all()
    assert logits[1].argmax() == NAMES.index("cat") and logits[1].sum() == 1


def test_written_file_is_the_file_that_was_read(folder, tmp_path):
    lines = [HEADER, NONE, CAT]
    (found,) = read_folder(folder(a=lines))
    write_csv(tmp_path / "out" / "b.csv", found.observer, found.trials)
    assert (tmp_path / "out" / "b.csv").read_text(encoding="utf-8").splitlines() == lines


@pytest.mark.parametrize("name", ["resnet50_session-1", "subject-02_session_1"])
def test_published_files_come_out_as_they_went_in(name, tmp_path):
    path = shared_data("cue-conflict-decisions", f"style-transfer-512-nomask-experiment_{name}.csv")
    found = {d.observer: d for d in read_folder(path.parent)}
    observer = name.split("_")[0]
    assert len(found[observer].trials) == 1280
    write_csv(tmp_path / "again.csv", observer, found[observer].trials)
    assert (tmp_path / "again.csv").read_text().splitlines() == path.read_text().splitlines()
