"""What is stored and read back."""

from __future__ import annotations

import numpy as np
import pytest
import sqlalchemy as sa

from stored_results import (
    add,
    add_published,
    chunk,
    claim,
    completed,
    evaluations,
    every_number,
    numbers_of_id,
    results,
    stored_outputs,
)
from testbed.data import writing
from testbed.entries.registry import Registry
from testbed.errors import StoreError, UnknownName
from testbed.metrics.estimate import Estimate
from testbed.store import schema
from testbed.store.find import EVERY, find_one
from testbed.store.measuring import outputs_of
from testbed.store.names import eval_setting_names, model_names, throughputs

LOGITS = np.arange(12, dtype=np.float32).reshape(6, 2)


def view(store, name="results"):
    with store.reading() as connection:
        return connection.execute(sa.text(f"SELECT model, eval_setting, metric, value FROM {name}")).all()


# ---- completing ------------------------------------------------------------------------------------------


def test_completed_result_replaces_the_earlier_one_and_tells_its_files(store):
    store.begin_run()
    first = add(store, value=40.0, logits=LOGITS)
    old = store.folder / completed(store, "m", "s").logits_path
    held = claim(store, resumable=False)
    assert store.complete(held.evaluation_id, {"top1": Estimate(45.0)}, logits_path="new.npy") == [
        f"logits/s/m-{first}.npy"
    ]
    assert old.is_file()  # the caller removes it, after the transaction
    assert view(store) == [("m", "s", "top1", 45.0)]
    assert [e.id for e in evaluations(store)] == [held.evaluation_id]
    with store.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.metrics)).scalar_one() == 1


def test_failure_while_completing_leaves_everything_as_it_was(store):
    store.begin_run()
    add(store, value=40.0)
    held = claim(store, resumable=False)
    with pytest.raises(TypeError):  # raised when the earlier result has been deleted
        store.complete(held.evaluation_id, {"top1": Estimate(1.0), "top5": Estimate("no number")})
    assert view(store) == [("m", "s", "top1", 40.0)]
    assert [e.status for e in evaluations(store)] == ["completed", "running"]


def test_results_of_other_pairs_versions_and_variants_stay(store):
    store.begin_run()
    add(store, "m", "s", 1.0)
    for other in (("m2", "s"), ("m", "s2")):
        add(store, *other, 2.0)
    add(store, "m", "s", 3.0, version=2)
    add(store, "m", "s", 4.0, variant="limit=10")
    add_published(store, "m", "s", 5.0)
    add(store, "m", "s", 6.0)
    assert sorted(r.value for r in every_number(store)) == [2.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_derived_result_goes_with_the_logits_it_was_computed_from(store):
    store.begin_run()
    parent = add(store, "m", "s")
    add(store, "m", "s-animals", derived_from_id=parent)
    assert len(view(store)) == 2
    add(store, "m", "s")
    assert [r[1] for r in view(store)] == ["s"]


def test_metrics_come_back_in_their_order_with_intervals(store):
    store.begin_run()
    metrics = {
        "z": Estimate(1.5, 1.0, 2.0, 10),
        "a": Estimate(np.float32(0.25), None, None, np.int64(3)),
        "m": Estimate(float("nan"), float("nan"), 1.0, None),
    }
    evaluation = add(store, metrics=metrics)
    found = [
        tuple(getattr(r, k) for k in ("metric", "value", "ci_low", "ci_high", "n"))
        for r in numbers_of_id(store, evaluation)
    ]
    assert found == [("z", 1.5, 1.0, 2.0, 10), ("a", 0.25, None, None, 3), ("m", None, None, 1.0, None)]
    assert [r.metric for r in results(store)] == ["z", "a", "m"]
    store.replace_metrics(evaluation, {"new": Estimate(1.0)})
    assert [r.metric for r in results(store)] == ["new"]


def test_numbers_keep_all_their_digits(store):
    store.begin_run()
    add(store, metrics={"top1": Estimate(100 / 3, 1 / 7, 99.99999999999999, 2**31 - 1)}, seconds=1 / 3)
    (row,) = results(store)
    assert (row.value, row.ci_low, row.ci_high, row.n) == (100 / 3, 1 / 7, 99.99999999999999, 2**31 - 1)
    assert evaluations(store)[0].seconds == 1 / 3


# ---- reading ---------------------------------------------------------------------------------------------


@pytest.fixture
def full(store):
    """Two models, old and new versions, a limited, a published, a failed and a running evaluation."""
    store.begin_run()
    add(store, "b", "s", 1.0)
    add(store, "a", "s", 2.0)
    add(store, "B", "s", 3.0)
    add(store, "a", "t", 4.0, version=1)
    add(store, "b", "t", 5.0, version=1)
    add(store, "a", "t", 6.0, version=2)
    add(store, "a", "s", 7.0, variant="limit=10")
    add_published(store, "a", "s", 8.0)
    add_published(store, "paper-only", "u", 9.0)
    store.fail(claim(store, "b", "u").evaluation_id, "ValueError: no")
    claim(store, "a", "u")
    return store


OWN_RESULTS = [("B", "s", 3.0), ("a", "s", 2.0), ("a", "t", 6.0), ("b", "s", 1.0)]


def test_view_shows_whole_own_results_of_the_newest_version(full):
    assert sorted((m, s, v) for m, s, _, v in view(full)) == OWN_RESULTS


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, OWN_RESULTS),
        ({"models": ["b"]}, [("b", "s", 1.0)]),  # its result on the old version of t does not come back
        ({"models": ["a", "B*"], "eval_settings": ["s"]}, [("B", "s", 3.0), ("a", "s", 2.0)]),
        ({"eval_settings": ["?"], "models": ["[ab]"]}, OWN_RESULTS[1:]),
        ({"metric": "top5"}, []),
        ({"variant": "limit=10"}, [("a", "s", 7.0)]),
        ({"source": "a paper"}, [("a", "s", 8.0), ("paper-only", "u", 9.0)]),
        ({"source": EVERY, "models": ["a"], "eval_settings": ["s"]}, [("a", "s", 8.0), ("a", "s", 2.0)]),
        # published results come where there is no own one
        ({"source": None, "models": ["a"], "eval_settings": ["s"]}, [("a", "s", 2.0)]),
        ({"source": None, "eval_settings": ["u"]}, [("paper-only", "u", 9.0)]),
    ],
)
def test_results_are_filtered_and_ordered_as_python_sorts(full, how, expected):
    assert [(r.model, r.eval_setting, r.value) for r in results(full, **how)] == expected


def test_new_version_of_a_setting_hides_the_old_results_from_view_and_query_alike(full):
    newer = claim(full, "a", "s", version=2).evaluation_id
    full.fail(newer, "ValueError: no")  # what has failed hides nothing
    assert [(m, s) for m, s, _, _ in sorted(view(full))] == [(m, s) for m, s, _ in OWN_RESULTS]
    add(full, "a", "s", 2.5, version=2)
    assert sorted((m, s) for m, s, _, _ in view(full)) == [("a", "s"), ("a", "t")]
    assert [(r.model, r.eval_setting) for r in results(full)] == [("a", "s"), ("a", "t")]


def test_everything_is_in_the_other_view(full):
    assert sorted(v for *_, v in view(full, "all_results")) == [float(i) for i in range(1, 10)]


def test_names_are_listed_as_python_sorts(full):
    assert model_names(full) == ["B", "a", "b", "paper-only"]
    assert model_names(full, "[a-c]") == ["a", "b"]
    assert eval_setting_names(full) == ["s", "t", "u"]  # t once, although it has two versions


def test_completed_gives_the_newest_version(full):
    assert completed(full, "a", "t").version == 2
    assert find_one(full, "a", "t", version=1).version == 1
    with pytest.raises(StoreError) as error:  # a result on an older version is none, here as in tables and figures
        completed(full, "b", "t")
    expected = "b on t: no own result on the whole setting of the newest version; stored: version 1"
    assert str(error.value) == expected
    assert find_one(full, "b", "t", version=1).version == 1


@pytest.mark.parametrize(
    ("pair", "error", "message"),
    [
        (("c", "s"), UnknownName, "no model 'c' in the database"),
        (("b", "sss"), UnknownName, "no eval setting 'sss' in the database"),
        (("b", "u"), StoreError, "b on u failed: ValueError: no"),
        (("a", "u"), StoreError, "a on u is running"),
        (("B", "t"), StoreError, "B on t has not been run"),
        (
            ("paper-only", "u"),
            StoreError,
            "paper-only on u: no own result on the whole setting",
        ),
    ],
)
def test_what_is_not_completed_is_told(full, pair, error, message):
    with pytest.raises(error) as raised:
        completed(full, *pair)
    assert str(raised.value).startswith(message)


def test_throughput_is_that_of_the_latest_run(store):
    store.begin_run()
    for speed in (10.0, 20.0, None):
        add(store, "m", f"s{speed}", images_per_second=speed)
    assert throughputs(store) == {"m": 20.0}


def test_logits_targets_and_extras_come_back(store):
    store.begin_run()
    targets, features = np.array([1, 0, 1, 1, 0, 0]), np.ones((6, 4))
    add(store, logits=LOGITS, targets=targets, extras={"features": features})
    stored = stored_outputs(store, completed(store, "m", "s"))
    assert (stored.logits == LOGITS).all() and stored.logits.dtype == np.float32
    assert stored.targets.tolist() == targets.tolist()
    assert stored.ids.tolist() == [f"{i:03d}.png" for i in range(6)]
    assert list(stored.extras) == ["features"] and (stored.extras["features"] == features).all()
    assert stored.n_bad == 0


def test_evaluation_without_logits_says_so(store):
    store.begin_run()
    add(store)
    with pytest.raises(StoreError, match="m on s has no logits"):
        outputs_of(store, Registry(), completed(store, "m", "s"))


def test_rows_hold_what_was_written(store):
    store.begin_run()
    held = claim(store)
    store.record_chunk(held.evaluation_id, **chunk(0, bad_rows=[1]))
    provenance = {"versions": {"torch": "2"}, "bad_rows": [1], "note": "ä ≥ \u2603"}
    values = dict(n_bad=1, warning="expected 7", provenance=provenance, dtype="float32", device="cpu", seed=3)
    store.complete(held.evaluation_id, {}, **values)
    (evaluation,) = evaluations(store)
    told = {
        **vars(evaluation),
        "provenance": {"versions": {"torch": "2"}, "bad_rows": [1], **evaluation.provenance.other},
    }
    assert {k: told[k] for k in values} == values
    assert evaluation.provenance.bad_rows == (1,) and evaluation.provenance.versions == {"torch": "2"}
    assert evaluation.run_id == store.run_id and evaluation.completed
    assert evaluation.finished_at >= evaluation.created_at
    assert writing.safe_name("timm:resnet50.tv_in1k/x y~z") == "timm_resnet50.tv_in1k_x_y_z"
