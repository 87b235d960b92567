"""The estimate to begin with: which one it is, how far it may be off, and which methods stand alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from testbed.stats.intervals import wilson
from testbed.studies.labelfree.answers import SetEstimate
from testbed.studies.labelfree.recommended import recommended, standing_alone
from testbed.studies.labelfree.regression import fit_score

from .test_autoeval import autoeval, filled, made  # noqa: F401  (fixtures)


def of(method, value, kind="direct", **more):
    same = dict(model="m", eval_setting="s", group="s", accuracy=None, evaluation_id=1, n=400)
    return SetEstimate(method=method, value=value, kind=kind, **(same | more))


DIRECT = [of("doc-ts", 80.0), of("atc-mc-ts", 70.0), of("atc-ne-ts", 64.0), of("cot-ts", 60.0), of("ac", 99.0)]


def test_without_fit_sets_it_is_the_middle_of_two_methods_and_the_range_of_four():
    (answer,) = recommended(DIRECT)
    assert answer.estimate == 62.0
    # Wilson's interval of the smallest and of the largest of the four, at 400 images.
    assert answer.low == pytest.approx(100 * wilson(240, 400)[0])
    assert answer.high == pytest.approx(100 * wilson(320, 400)[1])
    assert answer.by == "atc-ne-ts and cot-ts"


def test_with_fit_sets_it_is_the_best_line_that_does_not_extrapolate():
    line = dict(kind="score", margin=4.0)
    lines = [
        of("entropy", 55.0, left_out_error=2.0, **line),
        of("energy", 90.0, left_out_error=1.0, extrapolates=True, **line),
        of("mano", 98.0, left_out_error=1.5, **line),
    ]
    (answer,) = recommended([*DIRECT, *lines])
    assert (answer.by, answer.estimate, answer.low, answer.high) == ("mano", 98.0, 94.0, 100.0)
    (answer,) = recommended([*DIRECT, lines[1]])
    assert answer.by == "atc-ne-ts and cot-ts"


def test_nothing_is_recommended_where_the_methods_were_not_used():
    assert recommended([of("ac", 50.0), of("cot-ts", 60.0), of("no-change", 90.0, kind="baseline")]) == []


def test_left_out_error_is_that_of_lines_fitted_without_each_set():
    rng = np.random.default_rng(0)
    x, noise = rng.random(9), rng.normal(size=9)
    y = 20 + 60 * x + 3 * noise
    off = []
    for i in range(9):
        others = np.arange(9) != i
        slope, intercept = np.polyfit(x[others], y[others], 1)
        off.append(y[i] - intercept - slope * x[i])
    assert fit_score(x, y).left_out_error == pytest.approx(np.sqrt(np.mean(np.square(off))))
    assert fit_score(x[:2], y[:2]).left_out_error is None
    # The third set alone has another score: without it there is no line.
    assert fit_score([0.1, 0.1, 0.5], [10, 20, 30]).left_out_error is None


def test_prediction_interval_holds_95_of_100_new_sets():
    """2,000 lines through eight sets each: the share has a standard error of half a point."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        x = rng.random(9)
        y = 20 + 60 * x + rng.normal(scale=5, size=9)
        line = fit_score(x[:8], y[:8])
        held += abs(y[8] - line.predict(x[8])) <= line.margin(x[8])
    assert held / 2000 == pytest.approx(0.95, abs=0.02)


def test_only_an_estimate_far_from_the_others_stands_alone():
    near = [of(f"a{i}", 70.0 + i) for i in range(5)]
    assert standing_alone([*near, of("b", 30.0), of("base", 0.0, kind="baseline")]) == {("m", "s", "b")}
    assert standing_alone([*near, of("b", 76.5)]) == set()  # within five points of the median
    assert standing_alone([of("a", 70.0), of("b", 30.0)]) == set()  # two cannot tell which


def test_command_says_the_recommended_one_first(filled):  # noqa: F811
    words = ("--models", "first", "--source", "clean", "--test", "street", "noise-1")
    done = autoeval(filled, *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Recommended estimate of the accuracy of first (%)"
    (street,) = [line.split() for line in lines[:8] if line.startswith("street")]
    told = json.loads(autoeval(filled, *words, "--format", "json").stdout)
    first = told["recommended"][0]
    assert street[1:6] == ["?", f"{first['estimate']:.1f}", f"{first['low']:.1f}", "to", f"{first['high']:.1f}"]
    estimates = {(e["eval_setting"], e["method"]): e["estimate"] for e in told["estimates"]}
    middle = (estimates["street", "atc-ne-ts"] + estimates["street", "cot-ts"]) / 2
    assert first["estimate"] == pytest.approx(middle)
    assert "The range" not in done.stdout and "recommended: the middle of atc-ne-ts and cot-ts" in done.stdout


def test_command_that_mends_keeps_the_users_own_words(filled):  # noqa: F811
    database = filled.engine.url.database
    done = autoeval(filled, "--models", "first", "second", "--source", "clean", "--test", "folder:new pictures")
    assert (
        f"`python eval.py --models first second --eval-settings 'folder:new pictures' --db {database}` makes them"
        in done.stderr
    )
    done = autoeval(filled, "--models", "zzz", "--source", "clean", "--test", "street")
    assert f"`python db.py --list-models-db --db {database}` lists those" in done.stderr
