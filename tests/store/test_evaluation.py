"""Typed evaluations, numbers and provenance, as they come from the database."""

from __future__ import annotations

import numpy as np
import pytest

import stored_results
from testbed.metrics.estimate import ERROR, UNDECLARED, Estimate
from testbed.store.evaluation import Provenance
from testbed.store.find import EVERY, find


@pytest.fixture
def evaluation(store):
    def made(**facts):
        stored_results.add(store, "m", "s", **facts)
        return stored_results.completed(store, "m", "s", facts.get("variant", ""))

    return made


def test_a_number_comes_back_as_its_metric_gave_it(store):
    given = {"e": Estimate(7.5, 6.0, 9.0, 50, ERROR), "bare": Estimate(1.0), "none": Estimate(float("nan"), n=0)}
    stored_results.add(store, "m", "s", metrics=given)
    found = {n.metric: n.estimate for n in stored_results.results(store)}
    assert found["e"] == given["e"]
    assert found["bare"] == Estimate(1.0, kind=UNDECLARED)
    assert np.isnan(found["none"].value)


def test_provenance_has_tuples_for_lists_and_keeps_what_it_does_not_know():
    read = Provenance.read({"bad_rows": [3, 4], "checkpoint": "x.pt", "normalization": None, "host": "h", "gone": None})
    assert read.bad_rows == (3, 4)
    assert read.checkpoint == "x.pt"
    assert read.normalization is None
    assert read.other == {"host": "h"}
    assert Provenance.read(None) == Provenance()


def test_marks_tell_what_an_evaluation_is(evaluation, store):
    own = evaluation()
    assert own.completed and not own.published
    assert own.label == "m on s"
    limited = evaluation(variant="limit=3")
    assert limited.label == "m on s (limit=3)"
    stored_results.add(store, "m", "s", version=2)
    stored_results.add_published(store, "m", "s", 70.0)
    old, published = (
        next(e for e in find(store, variant="", version=EVERY, source=EVERY) if (e.version, e.source) == key)
        for key in ((1, "own"), (0, "a paper"))
    )
    assert old.superseded and old.apart == " (version 1, superseded)"
    assert published.published and published.apart == " (published: a paper)"


def test_recorded_arrays_are_those_of_the_asked_head(evaluation):
    facts = {"recorded": ["features", "rotation"], "rotation_head": {"sha256": "abc"}}
    found = evaluation(provenance=facts)
    assert found.has_recorded(["features"])
    assert found.has_recorded([]) is True
    assert found.has_recorded(["features", "rotation"], "abc")
    assert found.has_recorded(["rotation"], "other") is False
    assert found.has_recorded(["features", "energy"]) is False


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"checkpoint": 3}, "expected text as checkpoint of the provenance, got int"),
        ({"bad_rows": {}}, "expected a list as bad_rows of the provenance, got dict"),
        ({"bad_rows": ["1"]}, "expected a list as bad_rows of the provenance, got list"),
        ({"versions": {"numpy": 2}}, "expected an object of texts as versions of the provenance, got dict"),
        ({"checkpoint": "x.pt", "bad_rows": [1], "versions": {"numpy": "2"}, "recorded": None, "host": 3}, ""),
    ],
)
def test_provenance_of_somebody_else_must_have_the_form_of_ours(stored, words):
    assert Provenance.problem(stored) == words
