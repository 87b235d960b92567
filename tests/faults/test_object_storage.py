"""Logits in object storage (moto's S3 on loopback): storage that fails, is slow or away, or loses what it was given."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

import tiny
from object_storage import BREAK_OFF, FAIL, counted, slow
from stored_results import completed, evaluations, results
from testbed.data.writing import this_machine
from testbed.engine.recording import Recorder
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.store import files, manage, moving, objects, schema
from testbed.store.comparing import compare
from testbed.store.copying import copy
from testbed.store.database import Store
from testbed.store.fetched import cache
from testbed.store.find import find
from testbed.store.merging import merge
from testbed.store.opening import open_store
from testbed.store.sweeping import sweep
from testbed.studies.groups import StoredGroup

SETTINGS = ["tiny", "tiny-even", "tiny-probe"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No test waits for storage that is away."""
    monkeypatch.setattr(objects, "PATIENCE_S", 0.0)
    monkeypatch.setattr(objects, "_gave_up", False)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The same run with files beside the database."""
    report, store = tiny.run(tmp_path_factory.mktemp("local"), ["tiny_a", "tiny_b"], SETTINGS)
    assert not report.failed
    yield store
    store.engine.dispose()


@pytest.fixture
def run(tmp_path, object_storage):
    """A function that runs the tiny models with their logits in object storage."""
    stores = []

    def run(models=("tiny_a",), settings=SETTINGS, folder="results", logits=object_storage.root, **more):
        report, store = tiny.run(tmp_path / folder, list(models), list(settings), logits=logits, **more)
        stores.append(store)
        return report, store

    yield run
    for store in stores:
        store.engine.dispose()


def trouble(what, method="PUT", times=10**6, ending=""):
    left = [times]

    def answer(asked, key):
        if asked != method or not key.endswith(ending) or not left[0]:
            return ""
        left[0] -= 1
        return what

    return answer


def drafts(store):
    """What is left of logits and chunks in the results folder."""
    return [path.name for path in store.folder.glob("logits/*/*") if not path.name.startswith("samples-")]


def forget_fetched(store):
    shutil.rmtree(cache(store.folder), ignore_errors=True)


def numbers(store):
    return [(n.model, n.eval_setting, n.metric, n.value, n.ci_low, n.ci_high, n.n) for n in results(store)]


def assert_same(store, local, models=("tiny_a",)):
    """Bit for bit what a run with local files has stored, and the objects are those of the rows."""
    forget_fetched(store)
    for model in models:
        for setting in SETTINGS:
            assert np.array_equal(tiny.logits(store, model, setting), tiny.logits(local, model, setting))
        here, there = completed(store, model, "tiny-probe"), completed(local, model, "tiny-probe")
        assert here.logits_sha256 == there.logits_sha256
        assert here.provenance.arrays_sha256 == there.provenance.arrays_sha256
    assert numbers(store) == [n for n in numbers(local) if n[0] in models]


# ---- whole objects ---------------------------------------------------------------------------------------------


def test_a_run_stores_whole_objects_with_the_checksums_of_its_rows_and_leaves_no_draft(run, object_storage, local):
    report, store = run(["tiny_a", "tiny_b"], devices=("cpu",))
    assert not report.failed and report.outcome.derived
    names = object_storage.objects()
    assert len(names) == 2 + 2 + 2 * 2 + 2 * 1  # lists of images; tiny, tiny-probe; brightness, argmax of its probe
    for evaluation in evaluations(store):
        if evaluation.logits_path is None:
            continue
        assert evaluation.logits_path.startswith(f"{object_storage.root}/{evaluation.eval_setting}/")
        for name, sha256 in evaluation.provenance.arrays_sha256.items():
            url = store.place(evaluation.logits_path).array(name).stored
            content = object_storage.system.cat_file(url)
            assert hashlib.sha256(content).hexdigest() == sha256
            assert evaluation.provenance.etags[name]
    assert drafts(store) == []
    assert_same(store, local, ["tiny_a", "tiny_b"])
    assert [problem for _, problem in manage.verify(store)] == [""] * 4


def test_logits_that_this_machine_made_are_not_fetched(run, object_storage):
    _, store = run()
    with counted(object_storage) as asked:
        tiny.logits(store, "tiny_a", "tiny")
    assert [request for request in asked if request.method == "GET" and ".npz" not in request.key] == []


def test_the_same_command_finds_everything_done(run, object_storage):
    run()
    before = object_storage.objects()
    report, _ = run()
    assert not report.worked and object_storage.objects() == before


# ---- storage that misbehaves ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [FAIL, pytest.param(BREAK_OFF, marks=pytest.mark.long)])
def test_storage_that_fails_for_a_while_costs_nothing_but_a_line(tmp_path, object_storage, local, what, monkeypatch):
    monkeypatch.setattr(objects, "PATIENCE_S", 300.0)
    monkeypatch.setattr(objects.time, "sleep", lambda seconds: None)
    object_storage.trouble = trouble(what, times=4, ending=".npy")
    done = tiny.call("eval.py", *words(tmp_path, object_storage.root, "tiny_a"))
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "trying again" in line]
    assert len(lines) == (1 if what == FAIL else 0)  # s3fs itself tries five times where a connection breaks
    assert all(line.endswith("; trying again, at most 300 s") for line in lines)
    assert_same(open_store(str(tmp_path / "results" / "results.db")), local)


def words(folder, root, *models):
    common = ("--db", folder / "results" / "results.db", "--gpus", "cpu")
    return ("--models", *models, "--eval-settings", *SETTINGS, "--logits", root, *common)


def test_storage_that_stays_away_fails_in_a_line_and_the_same_command_goes_on(
    tmp_path, object_storage, local, monkeypatch
):
    object_storage.trouble = trouble(FAIL, ending=".npy")
    done = tiny.call("eval.py", *words(tmp_path, object_storage.root, "tiny_a"))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    reason = f"{object_storage.root} cannot be written: We encountered an internal error; what is finished is kept"
    assert [line for line in done.stderr.splitlines() if "s3://" in line][-1].endswith(reason)
    assert object_storage.objects(".npy") == []
    object_storage.trouble = lambda method, key: ""

    def refuse(*arguments, **more):
        raise AssertionError("a finished chunk is computed again")

    monkeypatch.setattr(files, "write_part", refuse)
    done = tiny.call("eval.py", *words(tmp_path, object_storage.root, "tiny_a"))
    assert done.returncode == 0, done.stderr
    store = open_store(str(tmp_path / "results" / "results.db"))
    assert drafts(store) == []
    assert_same(store, local)


@pytest.mark.long
def test_slow_storage_only_takes_time(run, object_storage, local):
    object_storage.trouble = slow(0.05)
    report, store = run()
    assert not report.failed
    assert_same(store, local)


@pytest.mark.parametrize(
    ("root", "told"),
    [
        ("s3://no-such-bucket/x", "Error: s3://no-such-bucket/x/.testbed cannot be written: "),
        ("s3://key:hidden@bucket/x", "Error: --logits: expected a URL without user, password or parameters"),
        ("memory://x", "Error: --logits: expected a URL such as s3://bucket/prefix, got memory:"),
        ("foo://bucket/x", "Error: foo://bucket/x/.testbed cannot be opened: Protocol not known: foo"),
    ],
)
def test_a_place_where_nothing_can_be_kept_is_told_before_any_work(tmp_path, object_storage, root, told):
    done = tiny.call("eval.py", *words(tmp_path, root, "tiny_a"))
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(told)
    assert "Traceback" not in done.stderr and "hidden" not in done.stdout + done.stderr
    assert not list(tmp_path.glob("results/logits/*/*"))


# ---- killed in between ---------------------------------------------------------------------------------------


def killed_at(monkeypatch, owner, name, run):
    """A run that is interrupted where it calls something: nothing after it is done."""

    def kill(*arguments, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, kill)
        report, store = run(settings=["tiny-probe"])
    assert report.interrupted
    return store


def test_killed_between_the_upload_and_the_row_the_object_has_no_owner_and_goes(run, object_storage, monkeypatch):
    killed_at(monkeypatch, Store, "complete", run)
    before = object_storage.objects(".npy")
    report, store = run(settings=["tiny-probe"])
    assert not report.failed and len(before) == len(object_storage.objects(".npy")) == 3
    assert not set(before) & set(object_storage.objects(".npy"))
    assert drafts(store) == []


def test_killed_between_the_row_and_the_drafts_the_next_run_sweeps_them(run, object_storage, monkeypatch, local):
    store = killed_at(monkeypatch, Recorder, "_forget", run)
    assert len(drafts(store)) == 4 and find(store, ["tiny_a"], ["tiny-probe"])
    report, store = run(settings=["tiny"])
    assert not report.failed and drafts(store) == []
    run()
    assert_same(store, local)


# ---- missing, damaged, removed ---------------------------------------------------------------------------------


def key_of(storage, setting):
    (key,) = (k for k in storage.system.find(f"{storage.root}/{setting}") if k.endswith(".npy") and "~" not in k)
    return key


def damage(storage, key):
    content = bytearray(storage.system.cat_file(key))
    content[-1] ^= 1
    storage.system.pipe_file(key, bytes(content))


def remove(storage, key):
    storage.system.rm_file(key)


@pytest.mark.parametrize("harm", [damage, remove])
def test_a_harmed_object_is_found_marked_and_made_again(run, object_storage, local, harm, tmp_path):
    run()
    database = ("--db", tmp_path / "results" / "results.db")
    key = key_of(object_storage, "tiny")
    harm(object_storage, key)
    told = tiny.call("db.py", "--verify", *database)
    assert told.returncode == 1 and f"s3://{key} {'is missing' if harm is remove else 'has changed'}" in told.stderr
    told = tiny.call("db.py", "--status", *database)
    assert told.returncode == 0 and "damaged: 2 pairs (tiny_a on tiny, tiny-even)" in told.stdout
    report, store = run()
    assert not report.failed
    assert key not in object_storage.system.find(object_storage.root)  # the one that was harmed is removed
    assert_same(store, local)
    assert tiny.call("db.py", "--verify", *database).returncode == 0


def test_status_sees_by_itself_that_an_object_is_missing(run, object_storage, tmp_path):
    run()
    remove(object_storage, key_of(object_storage, "tiny"))
    told = tiny.call("db.py", "--status", "--db", tmp_path / "results" / "results.db")
    assert told.returncode == 0 and "is missing; eval.py makes it again" in told.stdout


def test_status_and_numbers_are_shown_while_the_storage_is_away(run, object_storage, tmp_path):
    run()
    database = ("--db", tmp_path / "results" / "results.db")
    whole = tiny.call("db.py", "--status", *database)
    object_storage.trouble = lambda method, key: FAIL
    away = tiny.call("db.py", "--status", *database)
    assert (away.returncode, away.stdout) == (0, whole.stdout)
    (line,) = away.stderr.splitlines()
    assert line.startswith("warning: s3://") and line.endswith("; whether logits there are whole is not known")
    assert tiny.call("db.py", "--print-eval", "tiny_a", "tiny", *database).returncode == 0
    told = tiny.call("db.py", "--verify", *database)
    assert told.returncode == 1 and told.stderr.startswith("Error: s3://") and len(told.stderr.splitlines()) == 1


def test_another_object_storage_is_not_taken_for_the_loss_of_all_logits(run, object_storage, tmp_path):
    _, store = run()
    object_storage.system.rm(object_storage.root, recursive=True)
    told = tiny.call("db.py", "--verify", "--db", tmp_path / "results" / "results.db")
    assert told.returncode == 1 and "holds no logits of the testbed: expected .testbed there; is it" in told.stderr
    with pytest.raises(StoreError, match="is it the right object storage"):
        run(logits=None)  # nothing is run again
    assert {e.status for e in evaluations(store)} == {"completed"}


def test_a_group_is_not_measured_without_what_cannot_be_read(run, object_storage, tmp_path):
    """An aggregate leaves out settings that were not run; one whose storage is away was."""
    _, store = run()
    forget_fetched(store)
    object_storage.trouble = lambda method, key: FAIL
    stored = StoredGroup(store, Registry(), "tiny_a", ("tiny",), "")
    assert stored.samples("tiny.noise") is None
    with pytest.raises(objects.StorageAway):
        stored.samples("tiny")


@pytest.mark.parametrize("words", [("--remove-evaluation", "tiny_a", "tiny-probe"), ("--remove-model", "tiny_a")])
def test_what_is_removed_goes_with_its_objects(run, object_storage, tmp_path, words):
    run(["tiny_a", "tiny_b"])
    others = [name for name in object_storage.objects(".npy") if "/tiny_b-" in name or "model" not in words[0]]
    told = tiny.call("db.py", *words, "--override", "--db", tmp_path / "results" / "results.db")
    assert told.returncode == 0, told.stderr
    left = object_storage.objects(".npy")
    assert left == [n for n in others if not n.startswith("tiny-probe/tiny_a-")]


def test_what_cannot_be_removed_is_told(run, object_storage, tmp_path):
    run()
    object_storage.trouble = lambda method, key: FAIL
    told = tiny.call(
        "db.py", "--remove-evaluation", "tiny_a", "tiny", "--override", "--db", tmp_path / "results" / "results.db"
    )
    assert told.returncode == 1 and "but not all of its files: s3://" in told.stderr
    assert len(told.stderr.splitlines()) == 1


# ---- several machines, several databases -----------------------------------------------------------------------


def on_another_machine(store, folder):
    """The same database with a results folder that has nothing of the first one's."""
    other = open_store(store.engine.url.database)
    other.folder = Path(folder)
    return other


def test_two_machines_read_each_others_logits(run, local, tmp_path):
    _, here = run()
    there = on_another_machine(here, tmp_path / "there")
    assert np.array_equal(tiny.logits(there, "tiny_a", "tiny"), tiny.logits(local, "tiny_a", "tiny"))
    assert np.array_equal(tiny.logits(there, "tiny_a", "tiny-even"), tiny.logits(local, "tiny_a", "tiny-even"))
    assert [problem for _, problem in manage.verify(there)] == ["", ""]
    assert not list((tmp_path / "there").glob("logits/*/*"))
    there.engine.dispose()


def test_a_pair_that_another_machine_began_is_made_without_its_chunks(run, object_storage, local, monkeypatch):
    """Chunks lie with the machine that made them: what it has begun is begun again by another."""
    store = killed_at(monkeypatch, Recorder, "finish", run)
    shutil.rmtree(store.folder / "logits")
    report, store = run()
    assert not report.failed and drafts(store) == []
    assert_same(store, local)


def test_a_copy_and_a_merge_use_the_same_objects(run, object_storage, local, tmp_path):
    _, store = run()
    before = object_storage.objects()
    copied, merged = (open_store(str(tmp_path / name / "results.db"), create=True) for name in ("copy", "merged"))
    copy(store, copied)
    merge(merged, store)
    assert object_storage.objects() == before
    for other in (copied, merged):
        assert_same(other, local)
        assert drafts(other) == []
    assert compare(store, copied).elsewhere == 2 and compare(store, copied).differences == []
    for other in (copied, merged):
        other.engine.dispose()


def test_an_unfinished_pair_goes_on_in_a_copy_with_its_chunks(run, object_storage, local, monkeypatch, tmp_path):
    store = killed_at(monkeypatch, Recorder, "finish", run)
    copied = open_store(str(tmp_path / "copy" / "results.db"), create=True)
    copy(store, copied)
    copied.engine.dispose()
    shutil.rmtree(store.folder)

    def refuse(*arguments, **more):
        raise AssertionError("a finished chunk is computed again")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_part", refuse)
        report, copied = run(settings=["tiny-probe"], folder="copy")
    assert not report.failed
    run(folder="copy")
    assert_same(copied, local)


def test_a_merge_that_replaces_a_result_removes_its_objects(run, object_storage, tmp_path):
    _, older = run(settings=["tiny"], folder="older")
    _, newer = run(settings=["tiny"], folder="newer", logits_dtype="float16")
    assert len(object_storage.objects(".npy")) == 2
    with newer.writing() as connection:
        connection.execute(schema.evaluations.update().values(finished_at="9999-01-01T00:00:00+00:00"))
    assert merge(older, newer, override=True).replaced == 1
    assert len(object_storage.objects(".npy")) == 1
    forget_fetched(older)
    assert tiny.logits(older, "tiny_a", "tiny").dtype == np.float16


# ---- what reads and writes logits ------------------------------------------------------------------------------


def test_saved_logits_and_measures_are_those_of_local_files(run, local, tmp_path):
    _, store = run(["tiny_a", "tiny_b"])
    forget_fetched(store)
    here, there = (("--db", s.engine.url.database) for s in (store, local))
    for words in (
        ("--per-class", "tiny_a", "tiny-even", "--format", "csv"),
        ("--calibration", "tiny_b", "tiny", "--format", "csv"),
        ("--recompute-metrics",),
    ):
        one, other = (tiny.call("db.py", *words, *database) for database in (here, there))
        assert (one.returncode, one.stdout) == (0, other.stdout), one.stderr
    for database, name in ((here, "here"), (there, "there")):
        assert tiny.call("db.py", "--save-logits", "tiny-probe", tmp_path / name, *database).returncode == 0
    for model in ("tiny_a", "tiny_b"):
        one, other = (np.load(tmp_path / name / f"{model}.npz") for name in ("here", "there"))
        assert set(one.files) == set(other.files) and all(np.array_equal(one[n], other[n]) for n in one.files)


def test_label_free_estimates_are_those_of_local_files(run, local):
    _, store = run(["tiny_a", "tiny_b"])
    forget_fetched(store)
    words = ("--models", "tiny_a", "--source", "tiny", "--test", "tiny-probe", "--methods", "doc")
    one, other = (
        tiny.call("autoeval.py", *words, "--format", "csv", "--db", s.engine.url.database) for s in (store, local)
    )
    assert other.stdout and (one.returncode, one.stdout) == (other.returncode, other.stdout), one.stderr


def test_imported_logits_and_ensembles_are_kept_there_too(run, object_storage, local, tmp_path, monkeypatch):
    database = ("--db", tmp_path / "imported" / "results.db")
    monkeypatch.setenv("TESTBED_LOGITS", object_storage.root)
    saved = tiny.call("db.py", "--save-logits", "tiny", tmp_path / "saved", "--db", local.engine.url.database)
    assert saved.returncode == 0, saved.stderr
    told = tiny.call("db.py", "--import-logits", tmp_path / "saved", *database)
    assert told.returncode == 0, told.stderr
    assert len(object_storage.objects(".npy")) == 2
    store = open_store(str(database[1]))
    assert drafts(store) == []
    forget_fetched(store)
    assert np.array_equal(tiny.logits(store, "tiny_a", "tiny"), tiny.logits(local, "tiny_a", "tiny"))
    store.engine.dispose()
    done = tiny.call("eval.py", "--models", "ensemble:tiny_a+tiny_b", "--eval-settings", "tiny", *database)
    assert done.returncode == 0, done.stderr
    assert len(object_storage.objects(".npy")) == 3


# ---- another folder --------------------------------------------------------------------------------------------


def test_logits_in_another_folder(run, local, tmp_path):
    report, store = run(logits=f"file://{tmp_path}/elsewhere")
    assert not report.failed and drafts(store) == []
    assert len(list((tmp_path / "elsewhere").glob("*/*.npy"))) == 4
    assert_same(store, local)
    assert [problem for _, problem in manage.verify(store)] == ["", ""]
    manage.remove_model(store, "tiny_a", override=True)
    assert list((tmp_path / "elsewhere").glob("*/*.npy")) == []


def test_the_results_folder_itself_as_that_folder_loses_nothing(run, local, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "results")
    report, store = run(logits=f"file://{tmp_path}/link/logits")
    assert not report.failed and len(drafts(store)) == 4
    for folder in store.folder.glob("logits/*/*.npy"):  # as a run leaves it that is killed before it has cleaned up
        files.make_parts_folder(files.parts_folder(folder))
    store.begin_run()
    sweep(store)
    store.end_run()
    assert_same(store, local)


def test_what_a_killed_run_leaves_in_another_folder_is_swept(run, tmp_path, object_storage):
    _, store = run(logits=f"file://{tmp_path}/elsewhere")
    left = tmp_path / "elsewhere" / "tiny" / f".tiny_a-1.npy.{this_machine()}-{2**22 + 1}"
    left.write_bytes(b"half")
    store.begin_run()
    assert sweep(store) == [left]
    store.end_run()


def test_the_address_of_a_run_is_in_its_row_and_no_secret_of_the_environment(run, object_storage):
    _, store = run()
    with store.reading() as connection:
        rows = [tuple(row) for table in schema.tables.sorted_tables for row in connection.execute(table.select())]
    assert object_storage.root in repr(rows)
    assert object_storage.environment["AWS_SECRET_ACCESS_KEY"] not in repr(rows)


# ---- moving what is there --------------------------------------------------------------------------------------


def move(tmp_path, root):
    return tiny.call("db.py", "--move-logits", root, "--db", tmp_path / "results" / "results.db")


def test_local_logits_move_to_object_storage(run, object_storage, local, tmp_path):
    _, store = run(logits=None)
    told = move(tmp_path, object_storage.root)
    assert (told.returncode, told.stdout) == (0, f"moved the logits of 2 results to {object_storage.root}\n"), (
        told.stderr
    )
    assert {e.logits_path.startswith("s3://") for e in evaluations(store) if e.logits_path} == {True}
    assert {e.samples_path.startswith("s3://") for e in evaluations(store)} == {True}  # of the derived one too
    shutil.rmtree(store.folder / "logits")
    assert_same(store, local)
    assert [problem for _, problem in manage.verify(store)] == ["", ""]
    assert completed(store, "tiny_a", "tiny").provenance.etags
    assert move(tmp_path, object_storage.root).stdout.startswith("moved the logits of 0 results")
    report, _ = run(logits=None)
    assert not report.worked


def test_a_move_that_is_interrupted_goes_on(run, object_storage, local, tmp_path):
    _, store = run(logits=None)
    object_storage.trouble = trouble(FAIL, ending="~brightness.npy")
    told = move(tmp_path, object_storage.root)
    assert told.returncode == 1 and "what is finished is kept" in told.stderr
    assert np.array_equal(tiny.logits(store, "tiny_a", "tiny-probe"), tiny.logits(local, "tiny_a", "tiny-probe"))
    object_storage.trouble = lambda method, key: ""
    assert move(tmp_path, object_storage.root).stdout.startswith("moved the logits of 1 result ")
    assert_same(store, local)


def test_damaged_logits_do_not_move_and_a_result_that_is_replaced_meanwhile_leaves_no_object(
    run, object_storage, tmp_path, monkeypatch
):
    _, store = run(settings=["tiny"], logits=None)
    path = store.folder / completed(store, "tiny_a", "tiny").logits_path
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"x")
    told = move(tmp_path, object_storage.root)
    assert told.returncode == 1 and "stays, it is damaged: " in told.stderr and object_storage.objects() == []
    path.write_bytes(whole)

    def removed(*arguments):
        with store.writing() as connection:
            connection.execute(schema.evaluations.delete())
        return publish(*arguments)

    publish = moving.publish
    monkeypatch.setattr(moving, "publish", removed)
    assert move(tmp_path, object_storage.root).returncode == 0
    assert object_storage.objects(".npy") == []


def test_a_secret_in_the_place_to_move_to_is_not_repeated(run, tmp_path):
    run(settings=["tiny"], logits=None)
    told = move(tmp_path, "s3://key:hidden/slash@bucket")
    assert told.returncode == 1 and "hidden" not in told.stdout + told.stderr
    assert told.stderr.startswith("Error: --move-logits: expected a URL without user")


def test_two_commands_that_move_the_same_lose_nothing(run, object_storage, local, tmp_path, monkeypatch):
    _, store = run(logits=None)
    publish, nested = moving.publish, []

    def meanwhile(*arguments):
        etags = publish(*arguments)
        if not nested:
            nested.append(True)
            assert move(tmp_path, object_storage.root).returncode == 0
        return etags

    monkeypatch.setattr(moving, "publish", meanwhile)
    move(tmp_path, object_storage.root)
    assert_same(store, local)
    assert [problem for _, problem in manage.verify(store)] == ["", ""]
