"""db.py: decisions in and out, comparison with people, published numbers."""

import csv
import json

import numpy as np
import pytest
from click.testing import CliRunner

import tiny
from stored_results import results
from testbed.commands.database import main
from testbed.metrics.categories16 import NAMES
from testbed.store.opening import open_store

STIMULI = [(a, f"{a}1-{b}1.png") for a in NAMES[:4] for b in NAMES[:4]]


@pytest.fixture
def db(tmp_path, monkeypatch):
    """Run db.py in an empty folder; returns its output, and asserts success unless told."""
    monkeypatch.chdir(tmp_path)

    def invoke(*words, fails=False):
        result = CliRunner().invoke(main, [str(w) for w in words], catch_exceptions=False)
        assert (result.exit_code == 1) == fails, result.output
        return result.output

    return invoke


@pytest.fixture
def people(tmp_path):
    folder = tmp_path / "people"
    folder.mkdir()
    rng = np.random.default_rng(0)
    header = ["subj", "session", "trial", "rt", "object_response", "category", "condition", "imagename"]
    for name in ("subject-01", "subject-02", "resnet50"):
        answers = [s if rng.random() < 0.7 else NAMES[rng.integers(0, 4)] for s, _ in STIMULI]
        rows = [
            [name, 1, i + 1, "NaN", a, s, 0, image]
            for i, (a, (s, image)) in enumerate(zip(answers, STIMULI, strict=True))
        ]
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *rows])
    return folder


def test_people_come_in_and_go_out_in_the_published_format(db, people, tmp_path):
    told = db("--import-decisions", people, "--setting", "cue-conflict")
    assert "took in 3 observer(s) on cue-conflict: resnet50@decisions, subject-01, subject-02" in told
    assert "warning: subject-01: expected 1280 trials, found 16" in told
    assert "shape_bias.airplane" in db("--print-eval", "subject-01", "cue-conflict")
    out = tmp_path / "out"
    assert "decisions of 2 observer(s)" in db(
        "--export-decisions", out, "--setting", "cue-conflict", "--models", "subject-*"
    )
    again = (out / "cue-conflict_subject-01_session-1.csv").read_text()
    assert again == (people / "subject-01.csv").read_text()


def test_comparison_with_people_is_a_table(db, people):
    db("--import-decisions", people, "--setting", "cue-conflict", "--source", "paper")
    rows = json.loads(db("--compare-people", "--setting", "cue-conflict", "--format", "json"))
    assert [r["observer"] for r in rows] == ["people (subject-*)", "resnet50@paper"]
    assert set(rows[0]) == {
        "observer", "accuracy16", "accuracy_difference", "observed_consistency", "error_consistency"
    }  # fmt: skip
    assert "[" in db("--compare-people", "--setting", "cue-conflict", "--models", "resnet50@*")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--import-decisions", "people"), "--import-decisions needs --setting NAME"),
        (("--import-decisions", "nowhere", "--setting", "cue-conflict"), "expected CSV files of decisions"),
        (("--import-decisions", "people", "--setting", "cue-conflit"), "did you mean cue-conflict"),
        (("--check-references",), "there is no results database"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(db, people, words, answer):
    told = db(*words, fails=True)
    assert answer in told
    assert len(told.strip().splitlines()) == 1


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """A small database and a registry folder with published numbers for it; returns a function that writes them."""
    monkeypatch.setenv("TESTBED_REGISTRY", str(tiny.REGISTRY))
    tiny.run(tmp_path / "results", ["tiny_a"], ["tiny"])
    value = results(open_store(str(tmp_path / "results" / "results.db")), ["tiny_a"], metric="top1")[0].value
    folder = tmp_path / "more" / "references"
    folder.mkdir(parents=True)

    def publish(difference):
        line = f"tiny_a,tiny,top1,{value + difference},0.5,a paper\ntiny_b,tiny,top1,1,1,a paper\n"
        (folder / "tiny.csv").write_text("model,eval_setting,metric,value,tolerance,source\n" + line)
        return tmp_path / "more"

    return publish


def test_references_that_agree_end_with_success(db, checked):
    told = db("--check-references", "--models", "tiny*", "--registry", checked(0.3))
    assert "all 1 stored numbers agree with the references" in told
    assert "not run yet: tiny_b on tiny" in told


def test_references_that_do_not_agree_end_with_failure_and_what_was_tried(db, checked):
    told = db("--check-references", "--models", "tiny*", "--registry", checked(40), "--diagnose-images", 20, fails=True)
    assert "OUTSIDE" in told
    assert "normalisation: ImageNet's mean and std" in told
    assert "None of these explains the published numbers" in told
    assert "Error: 1 of 1 stored numbers do not agree with the references" in told
    quick = db("--check-references", "--models", "tiny*", "--registry", checked(40), "--diagnose-images", 0, fails=True)
    assert "normalisation" not in quick


def test_nothing_to_check_is_a_failure(db, checked):
    assert "nothing to check" in db("--check-references", "--models", "tiny_b", "--registry", checked(0), fails=True)
