"""Removing, renaming, checking."""

from __future__ import annotations

import re

import numpy as np
import pytest

from stored_results import add, add_published, again, claim, completed, evaluations, every_number, stored_outputs
from testbed.errors import StoreError, UnknownName
from testbed.store import files, manage
from testbed.store.find import find_one
from testbed.store.names import model_names
from testbed.store.runs import Busy

LOGITS = np.arange(12, dtype=np.float32).reshape(6, 2)
EXTRAS = {"features": np.ones((6, 3), dtype=np.float32)}


@pytest.fixture
def filled(store):
    store.begin_run()
    for model in ("m", "other"):
        for setting in ("s", "t"):
            add(store, model, setting, logits=LOGITS, extras=EXTRAS)
    add(store, "m", "s", variant="limit=3", logits=LOGITS)
    add(store, "m", "s", version=2, logits=LOGITS)
    store.ensure_model("unused")
    return store


def pairs(store):
    return [(e.model, e.eval_setting) for e in evaluations(store)]


def logits_files(store):
    return sorted(p.name for p in (store.folder / "logits").glob("*/*.npy"))


REMOVALS = {
    "model": (lambda s, o: manage.remove_model(s, "m", o), 4, [("other", "s"), ("other", "t")]),
    "setting": (lambda s, o: manage.remove_eval_setting(s, "s", o), 4, [("m", "t"), ("other", "t")]),
    "pair": (
        lambda s, o: manage.remove_evaluation(s, "m", "s", o),
        3,
        [("m", "t"), ("other", "s"), ("other", "t")],
    ),
}


@pytest.mark.parametrize(("remove", "count", "left"), REMOVALS.values(), ids=REMOVALS)
def test_removal_needs_override_and_takes_the_files_along(filled, remove, count, left):
    before, all_files = pairs(filled), logits_files(filled)
    with pytest.raises(StoreError, match=rf"with {count} evaluation\(s\) and their logits: repeat with --override"):
        remove(filled, False)
    assert (pairs(filled), logits_files(filled)) == (before, all_files)
    assert remove(filled, True) == f"{count} evaluation(s)"
    assert pairs(filled) == left
    paths = [filled.folder / e.logits_path for e in evaluations(filled)]
    assert logits_files(filled) == sorted(f for p in paths for f in (p.name, files.array_path(p, "features").name))
    assert all(stored_outputs(filled, e).extras for e in evaluations(filled))


def test_results_derived_from_what_is_removed_are_told_before_they_go_too(filled):
    parent = find_one(filled, "other", "s", version=1).id
    child = add(filled, "other", "s-even", derived_from_id=parent)
    add(filled, "other", "s-even-some", derived_from_id=child)
    told = r"1 evaluation\(s\), 2 derived from them \(other on s-even, other on s-even-some\)"
    with pytest.raises(StoreError, match=rf"{told} and their logits: repeat with --override"):
        manage.remove_evaluation(filled, "other", "s", override=False)
    assert re.fullmatch(told, manage.remove_evaluation(filled, "other", "s", override=True))
    assert [p for p in pairs(filled) if p[0] == "other"] == [("other", "t")]


def test_many_derived_results_are_counted_and_the_first_ones_named(filled):
    parent = find_one(filled, "other", "s", version=1).id
    for i in range(7):
        add(filled, "other", f"s-{i}", derived_from_id=parent)
    with pytest.raises(StoreError, match=r"7 derived from them \(other on s-0, .*, other on s-4 and 2 more\)"):
        manage.remove_eval_setting(filled, "s", override=False)


def test_names_without_results_go_without_override(filled):
    assert manage.remove_model(filled, "unused", override=False) == "0 evaluation(s)"
    assert "unused" not in model_names(filled)


def test_files_of_a_model_with_a_similar_name_stay(store):
    """m-1.5 on s is stored beside the first evaluation of m, whose files begin with m-1."""
    store.begin_run()
    first = add(store, "m", "s", logits=LOGITS, extras=EXTRAS)
    add(store, f"m-{first}.5", "s", logits=LOGITS + 1)
    assert list(stored_outputs(store, completed(store, "m", "s")).extras) == ["features"]
    manage.remove_model(store, "m", override=True)
    left = stored_outputs(store, completed(store, f"m-{first}.5", "s"))
    assert (left.logits == LOGITS + 1).all()


def test_published_results_are_removed_only_with_override_too(store):
    add_published(store, "m", "s", 76.1)
    with pytest.raises(StoreError, match="repeat with --override"):
        manage.remove_model(store, "m", override=False)
    assert manage.remove_model(store, "m", override=True) == "1 evaluation(s)"
    assert every_number(store) == []


def test_what_another_run_is_at_is_not_removed_under_it(store):
    other = again(store)
    other.begin_run()
    claim(other, "m", "s")
    for remove, _, _ in REMOVALS.values():
        with pytest.raises(Busy, match="under way in another run"):
            remove(store, True)
    assert pairs(store) == [("m", "s")]
    other.end_run()
    manage.remove_evaluation(store, "m", "s", override=True)
    assert pairs(store) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: manage.remove_model(s, "ohter", True), "no model 'ohter' in the database"),
        (lambda s: manage.rename_model(s, "ohter", "new"), "no model 'ohter' in the database"),
        (lambda s: manage.remove_evaluation(s, "ohter", "s", True), "no model 'ohter' in the database"),
    ],
)
def test_unknown_name_is_answered_with_near_ones(filled, change, message):
    with pytest.raises(UnknownName) as error:
        change(filled)
    assert str(error.value).startswith(message)
    assert str(error.value).endswith("; did you mean other?")


def test_pair_that_was_never_run_cannot_be_removed(filled):
    with pytest.raises(StoreError, match="unused on s has not been run"):
        manage.remove_evaluation(filled, "unused", "s", override=True)


def test_renamed_entries_keep_their_results_and_files(filled):
    manage.rename_model(filled, "m", "m2")
    manage.rename_eval_setting(filled, "s", "a")
    assert pairs(filled) == [("m2", "a")] * 3 + [("m2", "t"), ("other", "a"), ("other", "t")]
    assert sorted(e.version for e in evaluations(filled, "m2", "a")) == [1, 1, 2]
    assert all(problem == "" for _, problem in manage.verify(filled))


@pytest.mark.parametrize(
    ("rename", "kind"), [(manage.rename_model, "model"), (manage.rename_eval_setting, "eval setting")]
)
def test_rename_onto_a_taken_name_is_refused(filled, rename, kind):
    old, new = ("m", "other") if kind == "model" else ("s", "t")
    with pytest.raises(StoreError) as error:
        rename(filled, old, new)
    assert str(error.value) == f"there is a {kind} '{new}' already: remove it first, or choose another name"
    assert (old in model_names(filled)) == (kind == "model")


# ---- verify ----------------------------------------------------------------------------------------------


def change_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        ("logits", change_byte, "has changed since it was written"),
        ("features", change_byte, "has changed since it was written"),
        ("logits", lambda p: p.unlink(), "is missing"),
        ("features", lambda p: p.unlink(), "is missing"),
    ],
)
def test_verify_finds_the_one_file_that_is_not_whole(filled, name, damage, problem):
    assert [problem for _, problem in manage.verify(filled)] == [""] * 6
    path = files.array_path(filled.folder / completed(filled, "other", "t").logits_path, name)
    damage(path)
    found = {(e.model, e.eval_setting): p for e, p in manage.verify(filled) if p}
    assert found == {("other", "t"): f"{path} {problem}"}


def test_verify_misses_a_sample_list(filled):
    samples = filled.folder / completed(filled, "m", "t").samples_path
    samples.unlink()
    assert {e.eval_setting for e, p in manage.verify(filled) if p == f"{samples} is missing"} == {"t"}
