"""One meaning of words: whoever asks for a stored result gets the same one."""

from __future__ import annotations

import json

import numpy as np
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

import testbed
from stored_results import add, add_published, address, claim
from testbed import EvalSetting
from testbed.commands.database import main
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.store.evaluation import OWN
from testbed.store.find import EVERY, find, find_one, meant_variant, numbers, states
from testbed.store.formats.logits import save_logits

LOGITS = np.eye(6, 10, dtype=np.float32)


@pytest.fixture
def versions(store):
    """A was run on version 2 of a setting, B only on version 1."""
    store.begin_run()
    add(store, "a", "s", 10.0, version=1, logits=LOGITS)
    add(store, "a", "s", 20.0, version=2, logits=LOGITS)
    add(store, "b", "s", 30.0, version=1, logits=LOGITS)
    return store


def db(store, *arguments):
    return CliRunner().invoke(main, ["--db", address(store), *arguments])


def test_a_result_on_an_older_version_is_none_for_every_reader(versions, tmp_path):
    with versions.reading() as connection:
        view = connection.execute(sa.text("SELECT model, value FROM results")).all()
    assert [tuple(row) for row in view] == [("a", 20.0)]
    assert [(e.model, e.version) for e in find(versions)] == [("a", 2)]
    assert [(n.model, n.value) for n in numbers(versions)] == [("a", 20.0)]
    expected = "b on s: no result of the newest version; stored: version 1"
    with pytest.raises(StoreError) as error:
        find_one(versions, "b", "s")
    assert str(error.value) == expected
    printed = db(versions, "--print-eval", "b", "s")
    assert printed.exit_code == 1 and expected in printed.output
    registry = Registry()
    registry.eval_settings.add(EvalSetting(name="s", dataset=testbed.ArrayDataset(make=lambda: None)), "test")
    assert [e.model for e in save_logits(versions, registry, "s", tmp_path / "dump")] == ["a"]
    path = address(versions)
    assert testbed.results(db=path).model.tolist() == ["a"]
    with pytest.raises(StoreError, match="no own result of the newest version; stored: version 1"):
        testbed.logits("b", "s", db=path)


def test_an_older_version_is_found_by_name(versions):
    assert {e.model for e in find(versions, version=1)} == {"a", "b"}
    assert "top1" in db(versions, "--print-eval", "b", "s", "--version", "1").output
    path = address(versions)
    assert testbed.logits("b", "s", db=path, version=1).tolist() == LOGITS.tolist()
    assert [(e.model, e.version) for e in find(versions, version=EVERY)] == [("a", 1), ("a", 2), ("b", 1)]


def test_superseded_results_say_so(versions):
    (old,) = find(versions, ["b"], version=1)
    assert old.superseded and old.label == "b on s (version 1, superseded)"


def test_a_run_that_has_failed_or_goes_on_supersedes_nothing(versions):
    versions.fail(claim(versions, "a", "s", version=3).evaluation_id, "ValueError: no")
    claim(versions, "b", "s", version=3)
    assert [(e.model, e.version) for e in find(versions)] == [("a", 2)]


# ---- variants --------------------------------------------------------------------------------------------


@pytest.fixture
def limited(store):
    store.begin_run()
    for model in "abc":
        add(store, model, "s", 50.0, variant="limit=40", logits=LOGITS)
    add(store, "a", "s", 60.0, variant="limit=5", logits=LOGITS)
    add(store, "a", "t", 70.0)
    return store


def test_partial_results_are_meant_where_there_is_no_whole_one(limited, tmp_path):
    assert meant_variant(limited, eval_settings=["s"]) == "limit=40"
    assert {e.variant for e in find(limited, eval_settings=["s"])} == {"limit=40"}
    assert [(e.eval_setting, e.variant) for e in find(limited)] == [("t", "")]  # never two variants at once
    assert "a on s (limit=40)" in db(limited, "--print-eval", "a", "s").output
    told = db(limited, "--save-logits", "s", str(tmp_path / "dump")).output
    assert told.startswith("wrote 3 file(s) of limit=40 and manifest.json")
    assert testbed.logits("b", "s", db=address(limited)).shape == (6, 10)


def test_a_named_variant_is_meant_alone(limited):
    assert [e.model for e in find(limited, variant="limit=5")] == ["a"]
    assert "a on s (limit=5)" in db(limited, "--print-eval", "a", "s", "--variant", "limit=5").output
    told = db(limited, "--print-eval", "b", "s", "--variant", "limit=5").output
    assert "b on s: no result of limit=5 of the newest version; stored: limit=40 of version 1" in told


def test_options_that_a_flag_cannot_follow_are_refused(limited, tmp_path):
    told = db(limited, "--save-logits", "s", str(tmp_path / "dump"), "--source", "a paper").output
    assert "--save-logits takes no --source: published results have no logits" in told
    told = db(limited, "--save-logits", "s", str(tmp_path / "dump"), "--version", "7").output
    assert "any model on s: no own result of version 7; stored: limit=40 of version 1 (--variant limit=40), " in told
    assert not (tmp_path / "dump").exists()
    with pytest.raises(StoreError, match=r"a on s: expected one variant, version and source, got \*"):
        find_one(limited, "a", "s", variant=EVERY)


# ---- sources ---------------------------------------------------------------------------------------------


@pytest.fixture
def published(store):
    store.begin_run()
    add_published(store, "resnet50", "objectnet-1.0-beta", 35.75)
    add_published(store, "resnet50", "val", 76.13)
    add(store, "resnet50", "val", 76.0)
    return store


def test_published_results_are_found_and_marked_where_there_is_no_own_one(published):
    printed = db(published, "--print-eval", "resnet50", "objectnet-1.0-beta").output
    assert printed.startswith("resnet50 on objectnet-1.0-beta (published: a paper)")
    assert "35.75" in printed and "source               a paper" in printed
    table = testbed.results("resnet50", db=address(published))
    assert list(zip(table.eval_setting, table.value, table.source, strict=True)) == [
        ("objectnet-1.0-beta", 35.75, "a paper"),
        ("val", 76.0, "own"),
    ]


def test_what_else_is_stored_of_a_pair_is_told_below_it(published):
    printed = db(published, "--print-eval", "resnet50", "val").output
    assert "76.00" in printed
    assert "also stored          published by a paper (--source a paper)" in printed
    assert "76.13" in db(published, "--print-eval", "resnet50", "val", "--source", "a paper").output
    rows = json.loads(
        db(published, "--print-eval", "resnet50", "val", "--source", "a paper", "--format", "json").output
    )
    assert [(r["value"], r["source"], r["unit"], r["better"]) for r in rows] == [(76.13, "a paper", "%", "higher")]


@pytest.mark.parametrize(
    ("source", "values"),
    [(None, [35.75, 76.0]), (OWN, [76.0]), ("a paper", [35.75, 76.13]), (EVERY, [35.75, 76.13, 76.0])],
)
def test_a_source_chooses(published, source, values):
    assert [n.value for n in numbers(published, source=source)] == values


# ---- how it is asked -------------------------------------------------------------------------------------


def fetched(store, ask):
    """How many rows the database gave for a question."""
    counts = []

    @sa.event.listens_for(store.engine, "after_cursor_execute")
    def count(connection, cursor, statement, parameters, context, many):
        if statement.lstrip().startswith("SELECT"):
            again = connection.connection.driver_connection.execute(statement, parameters)
            counts.append(len(again.fetchall()))

    ask()
    sa.event.remove(store.engine, "after_cursor_execute", count)
    return sum(counts)


def test_the_database_chooses_the_rows_not_the_program(store):
    store.begin_run()
    for model in range(6):
        for setting in range(6):
            add(store, f"m{model}", f"s{setting}")
    assert fetched(store, lambda: numbers(store, ["m3"], ["s4"], "top1")) <= 2  # the number, and its variant
    assert fetched(store, lambda: find_one(store, "m3", "s4")) <= 2


@pytest.mark.backend("sqlite", "a server chooses by its statistics, and reads tables as small as these whole")
@pytest.mark.parametrize("view", ["all_results", "all_evaluations", "results"])
def test_one_pair_is_found_by_indexes(store, view):
    store.begin_run()
    add(store)
    with store.reading() as connection:
        question = f"EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE model = 'm' AND eval_setting = 's'"
        steps = [row[3] for row in connection.execute(sa.text(question))]
    assert steps and not [step for step in steps if step.startswith("SCAN")], steps


def test_globs_and_lists_of_names_mean_what_they_match(store):
    store.begin_run()
    for model in ("alpha", "beta", "Beta", "b[1]"):
        add(store, model, "s")
    assert [e.model for e in find(store, ["b*"])] == ["b[1]", "beta"]
    assert [e.model for e in find(store, ["b[1]"])] == ["b[1]"]  # a name that looks like a glob
    assert [e.model for e in find(store, ["alpha", "B*"])] == ["Beta", "alpha"]
    assert find(store, []) == find(store, ["gamma"]) == []


def test_states_tell_every_own_evaluation(limited):
    limited.fail(claim(limited, "d", "s").evaluation_id, "ValueError: no")
    told = {(s.model, s.eval_setting, s.variant): s.status for s in states(limited)}
    assert told["d", "s", ""] == "failed"
    assert told["a", "s", "limit=40"] == "completed"
    assert len(told) == 6
