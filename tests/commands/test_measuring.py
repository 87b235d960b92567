"""Stored logits measured class by class and at the clean setting's temperature, against scikit-learn and scipy."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import recall_score

import tiny
from testbed.commands.database import main


@pytest.fixture
def db(tmp_path):
    tiny.run(tmp_path, ["tiny_a"], ["tiny", "tiny-even", "tiny.noise", "tiny-metric"])

    def run(*words, fails=False):
        where = ["--db", str(tmp_path / "results.db"), "--registry", str(tiny.REGISTRY)]
        done = CliRunner().invoke(main, [*where, *words])
        assert (done.exit_code != 0) == fails, done.output
        return done.output

    return run


@pytest.fixture
def logits(tmp_path, db):
    from testbed.store.opening import open_store

    store = open_store(str(tmp_path / "results.db"))
    return lambda setting: tiny.logits(store, "tiny_a", setting)


def test_accuracy_of_every_class_is_scikit_learns_recall(db, logits):
    rows = json.loads(db("--per-class", "tiny_a", "tiny", "--format", "json"))
    found = {row["class"]: row["value"] for row in rows}
    expected = 100 * recall_score(np.arange(200) % 10, logits("tiny").argmax(1), average=None)
    np.testing.assert_allclose([found[c] for c in range(10)], expected)
    assert [row["value"] for row in rows] == sorted(found.values())
    assert {row["n"] for row in rows} == {20}


def test_classes_of_a_subset_keep_their_numbers(db):
    rows = json.loads(db("--per-class", "tiny_a", "tiny-even", "--format", "json"))
    assert {row["class"] for row in rows} == {0, 2, 4, 6, 8}


def test_calibration_is_told_at_the_temperature_of_the_clean_setting(db, logits):
    targets = np.arange(200) % 10

    def nll(setting, temperature):
        return -log_softmax(logits(setting).astype(float) / temperature, axis=1)[np.arange(200), targets].mean()

    best = minimize_scalar(lambda t: nll("tiny", t), bounds=(0.01, 100), method="bounded").x
    words = ("--calibration", "tiny_a", "tiny.noise", "--clean", "tiny", "--format", "json")
    rows = {(row["temperature"], row["metric"]): row["value"] for row in json.loads(db(*words))}
    plain, cooled = sorted({t for t, _ in rows}, key=lambda t: t != 1)
    assert cooled == pytest.approx(best, rel=0.01)
    assert rows[plain, "nll"] == pytest.approx(nll("tiny.noise", 1.0), rel=1e-5)
    assert rows[cooled, "nll"] == pytest.approx(nll("tiny.noise", cooled), rel=1e-5)
    assert "name another setting with --clean" in db("--calibration", "tiny_a", "tiny")


def test_limited_run_is_measured_where_there_is_no_other_and_said_to_be_one(db, tmp_path):
    tiny.run(tmp_path, ["tiny_b"], ["tiny", "tiny.noise"], limit=50)
    assert "tiny_b on tiny (limit=50) by class" in db("--per-class", "tiny_b", "tiny")
    assert "tiny_b on tiny.noise (limit=50); the temperature was fitted on tiny" in db(
        *("--calibration", "tiny_b", "tiny.noise", "--clean", "tiny")
    )


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--calibration", "tiny_a", "tiny-even"), "expected a setting of 5 classes as 'tiny-even' has, 'tiny' has 10"),
        (("--per-class", "tiny_a", "tiny-metric"), "the targets of tiny-metric are not columns of the logits"),
        (("--per-class", "tiny_a", "tiny-size"), "tiny-size"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(db, words, answer):
    (line,) = db(*words, fails=True).strip().splitlines()
    assert line.startswith("Error: ") and answer in line
