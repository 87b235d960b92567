"""Merging and copying results databases, in files and on a PostgreSQL server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from faults.running import LIMIT_S, wait_until
from postgres_server import serving_or_skip
from stored_results import (
    add,
    add_published,
    again,
    chunk,
    claim,
    completed,
    evaluations,
    every_number,
    results,
    stored_outputs,
)
from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.store import files, schema
from testbed.store.comparing import compare
from testbed.store.copying import copy
from testbed.store.database import Store
from testbed.store.estimates import save_estimates
from testbed.store.find import every_evaluation
from testbed.store.merging import merge
from testbed.store.opening import open_store


@pytest.fixture(scope="module")
def server():
    with serving_or_skip() as running:
        yield running.url


@pytest.fixture
def opened(tmp_path, request) -> Iterator:
    """A function that opens a new database, in a folder of its own: a file, or one of the server."""
    stores, numbers = [], count()

    def open_new(kind: str = "sqlite") -> Store:
        number = next(numbers)
        folder = tmp_path / f"store-{number}"
        folder.mkdir()
        if kind == "sqlite":
            store = open_store(str(folder / "results.db"), create=True)
        else:
            url, name = request.getfixturevalue("server"), f"t{os.getpid()}_{number}"
            _on_server(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"CREATE DATABASE {name}")
            store = open_store(url.replace("/postgres?", f"/{name}?"), create=True)
            store.folder = folder
        stores.append(store)
        return store

    yield open_new
    for store in stores:
        store.engine.dispose()


def _on_server(url, *statements):
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def array(seed, rows=6):
    return np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32)


def fill(store: Store) -> dict[str, int]:
    """Everything that a database may hold."""
    store.begin_run()
    ids = {"a": add(store, "a", "s", 50.0, logits=array(1), extras={"features": array(2)})}
    ids["derived"] = add(store, "a", "s-some", 60.0, derived_from_id=ids["a"])
    ids["deeper"] = add(store, "a", "s-few", 65.0, derived_from_id=ids["derived"])
    ids["gone"] = add(store, "b", "s", logits=array(3))
    ids["b"] = add(store, "b", "s", 55.0, logits=array(4))  # in the place of the last
    ids["limited"] = add(store, "b", "s", 40.0, variant="limit=6", logits=array(5))
    members = {"a": {"evaluation": ids["a"], "logits_sha256": "x"}}
    ids["both"] = add(store, "both", "s", 58.0, provenance={"ensemble": {"members": members}})
    add_published(store, "c", "s", 70.0)
    row = dict(evaluation_id=ids["a"], method="ac", source="s", fit="", assumes="", set_group="", value=1.5)
    save_estimates(store, [{**row, "accuracy": None, "extrapolates": False, "r2": None, "notes": {"n": 1}}])
    held = claim(store, "d", "s", samples_path=completed(store, "a", "s").samples_path, logits_path="logits/s/d-x.npy")
    folder = files.parts_folder(store.folder / "logits/s/d-x.npy")
    files.make_parts_folder(folder)
    for start in (0, 2):
        files.write_part(folder, start, {"logits": array(6)[start : start + 2]})
        store.record_chunk(held.evaluation_id, **chunk(start))
    ids["begun"] = held.evaluation_id
    store.fail(claim(store, "e", "s").evaluation_id, "no such weights")
    store.end_run()
    return ids


def dump(store: Store, with_ids: bool = True) -> list:
    """Every table as text; without numbers, where these are given anew."""
    told = []
    for table in schema.tables.sorted_tables:
        names = [c.name for c in table.c if with_ids or not (c.name == "id" or c.name.endswith("_id"))]
        with store.reading() as connection:
            rows = connection.execute(sa.select(*(table.c[name] for name in names))).all()
        told.append((table.name, sorted(map(repr, rows))))
    return told


def assert_whole(store: Store) -> None:
    for e in evaluations(store):
        if e.completed and e.logits_path:
            stored_outputs(store, e)  # refuses what is damaged
            assert files.known_sha256(store.folder / e.logits_path) == e.logits_sha256


# ---- copying -----------------------------------------------------------------------------------------------------


def test_a_database_goes_to_a_server_and_comes_back_the_same(opened):
    first, server, last = opened(), opened("postgresql"), opened()
    ids = fill(first)
    taken = copy(first, server)
    assert (taken.completed, taken.failed, taken.unfinished) == (7, 1, 1)
    compared = compare(first, server)
    assert compared.differences == [] and compared.logits == 3
    assert compared.rows["evaluations"] == 9 and compared.rows["estimates"] == 1
    copy(server, last)
    assert dump(first) == dump(server) == dump(last)
    assert compare(first, last).digest == compared.digest
    for store in (server, last):
        assert_whole(store)
        assert stored_outputs(store, completed(store, "a", "s")).extras["features"].shape == (6, 3)
        store.begin_run()
        assert claim(store, "new", "s").evaluation_id == max(ids["begun"], len(ids)) + 2
        assert store.ensure_model("newer") == 8 and store.ensure_eval_setting("newer") == 5


def test_numbers_that_were_given_once_are_not_given_again(opened):
    first, server, last = opened(), opened("postgresql"), opened()
    first.begin_run()
    ids = [add(first, f"m{i}", "s") for i in range(5)]
    with first.writing() as connection:
        connection.execute(schema.evaluations.delete().where(schema.evaluations.c.id >= ids[2]))
    first.end_run()
    copy(first, server)
    copy(server, last)
    for store in (first, server, last):
        store.begin_run()
        assert add(store, "new", "s") == ids[-1] + 1


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_unfinished_evaluation_goes_on_in_the_copy(opened, kind):
    first, second = opened(), opened(kind)
    ids = fill(first)
    copy(first, second)
    assert copy(first, second).stored == 7  # once more: what is whole is passed by
    second.begin_run()
    held = claim(second, "d", "s", logits_path="logits/s/d-y.npy")
    assert (held.evaluation_id, held.done, held.inherited) == (ids["begun"], ((0, 2), (2, 4)), True)
    folder = files.parts_folder(second.folder / str(held.logits_path))
    assert files.part_problem(files.part_path(folder, 2), 2) == ""


def test_a_copy_follows_what_was_finished_since(opened):
    first, second = opened(), opened()
    ids = fill(first)
    copy(first, second)
    first.begin_run()
    held = claim(first, "d", "s", logits_path="logits/s/d-z.npy")
    first.complete(held.evaluation_id, {"top1": Estimate(1.0)})
    first.end_run()
    add(first, "f", "s", logits=array(9))
    assert copy(first, second).completed == 2
    assert compare(first, second).differences == []
    assert completed(second, "d", "s").id == ids["begun"]


def test_in_one_folder_only_rows_are_copied(opened):
    first, second = opened(), opened()
    fill(first)
    second.folder = first.folder
    before = sorted(first.folder.rglob("*"))
    taken = copy(first, second)
    copy(first, second)
    assert sorted(first.folder.rglob("*")) == before
    assert taken.files.linked == taken.files.copied == 0 and taken.files.stayed
    assert_whole(first)
    assert_whole(second)


@pytest.mark.parametrize("place", ["s3://bucket/logits/a.npy", "file:///elsewhere/a.npy"])
def test_a_file_at_an_address_stays_there(opened, place):
    first, second, third = opened(), opened(), opened()
    first.begin_run()
    add(first, "a", "s", logits_path=place, logits_sha256="0" * 64, samples_path=place.replace("a.npy", "s.npz"))
    first.end_run()
    copy(first, second)
    merge(third, first)
    for store in (second, third):
        assert completed(store, "a", "s").logits_path == place
        assert not (store.folder / "logits").exists()
    assert compare(first, second).elsewhere == 1


def test_where_there_are_no_links_files_are_copied(opened, monkeypatch):
    def refuse(source, target):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    first, second = opened(), opened()
    fill(first)
    carried = copy(first, second).files
    assert carried.linked == 0 and carried.copied == 3 + 1 + 1 + 2  # logits, features, samples, chunks
    assert compare(first, second).differences == []
    assert_whole(second)


def test_a_database_with_results_of_its_own_is_no_target(opened):
    first, second = opened(), opened()
    fill(first)
    second.begin_run()
    add(second, "mine", "s")
    with pytest.raises(StoreError, match=r"has a result of its own, mine on s: expected an empty database.*--merge"):
        copy(first, second)
    assert [e.model for e in evaluations(second)] == ["mine"]


def test_a_database_at_which_a_run_is_at_work_is_not_copied(opened):
    first, second = opened(), opened()
    again(first).begin_run()
    with pytest.raises(StoreError, match=r"1 run\(s\) are at work on it: wait until they have ended"):
        copy(first, second)


def test_names_that_the_server_cannot_hold_are_told_before_anything_is_copied(opened):
    first, server = opened(), opened("postgresql")
    first.begin_run()
    add(first, "a", "folder:" + "x" * 300)
    first.end_run()
    with pytest.raises(StoreError, match="holds names of at most 255 letters"):
        copy(first, server)
    assert evaluations(server) == []


def test_a_damaged_file_is_noted_on_both_sides_and_its_numbers_go_along(opened):
    first, second = opened(), opened()
    ids = fill(first)
    (first.folder / completed(first, "b", "s").logits_path).write_bytes(b"something else")
    taken = copy(first, second)
    assert len(taken.damaged) == 1 and taken.damaged[0].startswith("b on s is damaged: ")
    assert "has changed since it was written" in taken.damaged[0]
    assert compare(first, second).differences == []
    for store in (first, second):
        assert {e.id for e in evaluations(store) if e.status == "damaged"} == {ids["b"]}


def test_what_differs_between_two_sides_is_told(opened):
    first, second = opened(), opened()
    ids = fill(first)
    copy(first, second)
    with second.writing() as connection:
        connection.execute(schema.metrics.update().where(schema.metrics.c.value == 60).values(value=61))
        connection.execute(schema.estimates.delete())
    os.replace(second.folder / completed(second, "b", "s").logits_path, second.folder / "away")
    told = "\n".join(compare(first, second).differences)
    assert "estimates: 1 rows, the copy has 0" in told
    assert "numbers differ, first a on s-some: 60.0, the copy has 61.0" in told
    assert "is missing or is not the file of b on s" in told
    assert ids


def test_a_server_whose_files_lie_in_another_folder_is_refused_and_nothing_is_marked(opened):
    first, second = opened("postgresql"), opened()
    fill(first)
    first.folder = first.folder / "elsewhere"  # as where TESTBED_RESULTS was forgotten
    for take in (lambda: copy(first, second), lambda: merge(second, first)):
        with pytest.raises(StoreError, match=r"elsewhere has none of the files of .* TESTBED_RESULTS"):
            take()
    assert "damaged" not in {e.status for e in evaluations(first)} and not every_evaluation(second)


def test_a_derived_result_is_not_marked_for_files_that_are_not_its_own(opened):
    first, second = opened(), opened()
    ids = fill(first)
    samples = completed(first, "a", "s").samples_path
    (first.folder / samples).unlink()
    copy(first, second)
    assert ids["derived"] not in {e.id for e in evaluations(first) if e.status == "damaged"}
    assert ids["a"] in {e.id for e in evaluations(first) if e.status == "damaged"}


KILLED = """
import sys
from testbed.store import transfer
from testbed.store.copying import copy
from testbed.store.opening import open_store
transfer._AT_ONCE = 3
first, second = open_store(sys.argv[1]), open_store(sys.argv[2], create=True)
copy(first, second)
print("done", flush=True)
"""


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_copy_that_is_killed_goes_on_and_ends_the_same(opened, kind, monkeypatch):
    first, second = opened(), opened(kind)
    fill(first)
    first.begin_run()
    for i in range(40):
        parent = add(first, f"m{i}", "s", float(i), logits=array(i))
        add(first, f"m{i}", "s-some", float(i), derived_from_id=parent)
    first.end_run()
    urls = [store.engine.url.render_as_string(hide_password=False) for store in (first, second)]
    environment = {**os.environ, "TESTBED_RESULTS": str(second.folder)}
    for reached in (1, 12, 30, 60):
        process = subprocess.Popen([sys.executable, "-c", KILLED, *urls], env=environment, stdout=subprocess.PIPE)
        try:
            wait_until(lambda reached=reached: len(every_evaluation(second)) >= reached)
        finally:
            process.kill()
            process.communicate()
    done = subprocess.run([sys.executable, "-c", KILLED, *urls], env=environment, capture_output=True, timeout=LIMIT_S)
    assert done.stdout == b"done\n", done.stderr.decode()
    assert dump(first) == dump(second)
    assert compare(first, second).differences == []
    assert_whole(second)


# ---- merging -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_merge_takes_results_with_their_files_and_repeated_changes_nothing(opened, kind):
    source, target = opened(), opened(kind)
    ids = fill(source)
    target.begin_run()
    add(target, "z", "s", 10.0)  # so that numbers differ
    add(target, "z", "t", 10.0)
    target.end_run()
    taken = merge(target, source)
    assert (taken.completed, taken.failed, taken.unfinished, taken.stored) == (7, 1, 1, 0)
    assert not taken.differing and not taken.damaged
    before = dump(target)
    taken = merge(target, source)
    assert (taken.completed, taken.failed, taken.unfinished, taken.stored) == (0, 0, 1, 7)
    assert dump(target) == before
    told = {n._replace(evaluation_id=0) for n in every_number(source)}
    assert told == {n._replace(evaluation_id=0) for n in every_number(target) if n.model != "z"}
    a, derived = completed(target, "a", "s"), completed(target, "a", "s-some")
    assert derived.derived_from_id == a.id != ids["a"]
    assert completed(target, "a", "s-few").derived_from_id == derived.id
    members = completed(target, "both", "s").provenance.other["ensemble"]["members"]
    assert members["a"]["evaluation"] == a.id
    assert {e.model for e in evaluations(target) if e.status == "failed"} == {"e"}
    assert_whole(target)
    here = target.folder / a.logits_path
    assert here.samefile(source.folder / completed(source, "a", "s").logits_path)


def test_equal_results_of_both_are_passed_by_and_others_stay_unless_newer_ones_are_wanted(opened):
    source, target = opened(), opened()
    for store, seed, day in ((target, 1, "2026-01-01"), (source, 2, "2026-01-03")):
        store.begin_run()
        add(store, "same", "s", 1.0, logits=array(0))
        parent = add(store, "other", "s", float(seed), logits=array(seed))
        add(store, "other", "s-some", 10.0 * seed, derived_from_id=parent)
        if store is target:
            add(store, "other", "s-few", derived_from_id=parent)
        add_published(store, "paper", "s", 70.0)
        store.end_run()
        with store.writing() as connection:
            e = schema.evaluations
            connection.execute(e.update().values(finished_at=day))
            # Derived later here than there: what it is derived from decides.
            connection.execute(e.update().where(e.c.derived_from_id.is_not(None)).values(finished_at="2026-01-02"))
    taken = merge(target, source)
    assert (taken.completed, taken.stored, taken.differing, taken.followers) == (0, 2, ["other on s"], 1)
    assert {n.value for n in results(target, ["other"], ["s", "s-some"])} == {1.0, 10.0}
    taken = merge(source, target, override=True)  # the older one
    assert (taken.completed, taken.differing) == (0, ["other on s"])
    old = target.folder / completed(target, "other", "s").logits_path
    taken = merge(target, source, override=True)
    assert (taken.completed, taken.replaced, taken.differing) == (2, 1, [])
    assert taken.removed == ["other on s-few"]
    assert {n.value for n in results(target, ["other"])} == {2.0, 20.0}
    assert not old.exists()
    assert_whole(target)
    assert_whole(source)


def test_a_failure_gives_way_to_a_result_and_not_the_other_way_round(opened):
    source, target = opened(), opened()
    source.begin_run()
    source.fail(claim(source, "m", "s", logits_path="logits/s/m-x.npy").evaluation_id, "no memory")
    merge(target, source)
    assert merge(target, source).failed == 0
    (failed,) = evaluations(target)
    assert (failed.status, failed.error, failed.logits_path) == ("failed", "no memory", None)
    add(source, "m", "s", 5.0, logits=array(1))
    assert merge(target, source).completed == 1
    assert [e.status for e in evaluations(target)] == ["completed"]
    source.fail(claim(source, "m", "s").evaluation_id, "later")
    assert merge(target, source).failed == 0
    assert [e.status for e in evaluations(target)] == ["completed"]


def test_a_damaged_result_is_left_out_with_what_is_derived_from_it(opened):
    source, target = opened(), opened()
    fill(source)
    (source.folder / completed(source, "a", "s").logits_path).unlink()
    taken = merge(target, source)
    assert [line.split(":")[0] for line in taken.damaged] == ["a on s is damaged"]
    assert taken.followers == 2
    assert {e.model for e in evaluations(target) if e.completed} == {"b", "both"}


def test_a_file_whose_name_is_taken_gets_another(opened):
    """Older programs named files by numbers, which two databases give to different results."""
    sources, target = [opened(), opened()], opened()
    for i, source in enumerate(sources):
        source.begin_run()
        add(source, "m", "s", float(i), version=i + 1, logits=array(i), extras={"features": array(10 + i)})
        source.end_run()
        merge(target, source)
        merge(target, source)
    paths = {e.logits_path for e in evaluations(target)}
    assert len(paths) == 2 and len(list((target.folder / "logits/s").glob("m-*.npy"))) == 4
    assert_whole(target)
    for i, e in enumerate(sorted(evaluations(target), key=lambda e: e.version)):
        outputs = stored_outputs(target, e)
        np.testing.assert_array_equal(outputs.logits, array(i))
        np.testing.assert_array_equal(outputs.extras["features"], array(10 + i))


def test_a_database_in_the_folder_of_the_target_shares_its_files(opened):
    source, target = opened(), opened()
    fill(source)
    target.folder = source.folder
    assert merge(target, source).completed == 7
    assert_whole(target)
    assert_whole(source)


def test_a_database_is_not_merged_into_itself(opened):
    store = opened()
    other = open_store(os.path.relpath(Path(store.engine.url.database)))
    with pytest.raises(StoreError, match=r"expected two databases, got database .* twice"):
        merge(store, other)
    other.engine.dispose()


def test_a_newer_database_is_refused_and_an_older_one_brought_up_to_date(opened):
    store = opened()
    with store.writing() as connection:
        connection.execute(schema.schema_version.update().values(version=schema.SCHEMA_VERSION + 1))
    with pytest.raises(StoreError, match="update the program"):
        again(store)
