"""Arrays in object storage: some rows without the rest, all of them with their checksum, and a bounded cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import testbed.store.places
from object_storage import counted
from stored_results import completed
from testbed.data.rows import Rows
from testbed.errors import DamagedError, StoreError
from testbed.metrics.estimate import Estimate
from testbed.store import fetched, manage
from testbed.store.elsewhere import OutputsElsewhere
from testbed.store.find import EVERY, find
from testbed.store.measuring import read_outputs
from testbed.store.outputs import Outputs
from testbed.store.write import write_outputs

ROWS, COLUMNS = 10_000, 50  # 2 MB
LOGITS = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
FEATURES = np.arange(ROWS * 3, dtype=np.int64).reshape(ROWS, 3)

pytestmark = pytest.mark.backend("sqlite", "what is asked of the database is the same as for local files")


@pytest.fixture
def stored(store, object_storage):
    """One evaluation with logits and features in object storage, and nothing fetched."""
    store.keep_logits_under(object_storage.root)
    put(store, "m")
    forget(store)
    return store


def put(store, model, logits=LOGITS, **extras):
    rows = Rows([f"{n}.png" for n in range(len(logits))], np.zeros(len(logits), np.int64), np.arange(len(logits)))
    store.begin_run()
    extras = extras or {"features": FEATURES[: len(logits)]}
    write_outputs(store, model, ("s", 1), Outputs(rows, logits, extras), {"top1": Estimate(50.0)})
    store.end_run()


def cached(store):
    return sorted(fetched.cache(store.folder).glob("*.npy"))


def forget(store):
    for path in cached(store):
        path.unlink()


def outputs(store, model="m"):
    return read_outputs(store, completed(store, model, "s"))


def received(asked):
    return sum(request.sent for request in asked if request.method == "GET")


@pytest.mark.parametrize(
    "which",
    [
        np.array([17]),
        np.array([9_999, 3, 3, 5_000, 0]),
        np.arange(4_000, 4_400),
        np.flatnonzero(np.arange(ROWS) % 2_500 == 1),
        np.arange(ROWS) == 123,  # a mask
        np.array([], dtype=np.int64),
    ],
    ids=["one", "unsorted and twice", "a stretch", "far apart", "a mask", "none"],
)
def test_a_few_rows_are_read_in_ranges(stored, object_storage, which):
    whole = outputs(stored)
    assert len(whole.rows) == ROWS  # the list of images is fetched
    with counted(object_storage) as asked:
        some = whole.take(which)
        assert np.array_equal(some.logits, LOGITS[which])
        assert received(asked) < 0.25 * LOGITS.nbytes and len(asked) <= 2 + 5
        assert not any("features" in request.key for request in asked)  # nobody has asked for them
        assert np.array_equal(some.extras["features"], FEATURES[which])
        assert list(some.ids) == [f"{n}.png" for n in np.arange(ROWS)[which]]
    assert [p.stat().st_size for p in cached(stored)] in ([], [FEATURES.nbytes + 128])


def test_rows_of_rows_are_read_without_the_others(stored, object_storage):
    some = outputs(stored).take(np.arange(5_000)).take(np.arange(100, 110))
    with counted(object_storage) as asked:
        assert np.array_equal(some.logits, LOGITS[100:110])
    assert received(asked) < 10_000
    assert isinstance(some, OutputsElsewhere) and some.columns == COLUMNS and len(some) == 10


def test_many_rows_fetch_the_file_once_and_it_is_kept(stored, object_storage):
    with counted(object_storage) as asked:
        assert np.array_equal(outputs(stored).logits, LOGITS)
        assert LOGITS.nbytes < received(asked) < 1.3 * LOGITS.nbytes  # with the list of images
        assert len(cached(stored)) == 1
        asked.clear()
        assert np.array_equal(outputs(stored).take(np.arange(9_000)).logits, LOGITS[:9_000])
        assert np.array_equal(outputs(stored).take(np.array([5])).logits, LOGITS[[5]])
        assert asked == []


def replace(storage, ending, content):
    (key,) = (key for key in storage.system.find(storage.root) if key.endswith(ending) and "~" not in key)
    storage.system.pipe_file(key, content)


def changed(array):
    import io

    file = io.BytesIO()
    array = array.copy()
    array[7, 3] += 1
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("which", [slice(None), np.array([17])], ids=["all", "a row that is right"])
def test_an_object_that_has_changed_is_refused_and_marked(stored, object_storage, which):
    replace(object_storage, ".npy", changed(LOGITS))
    read = outputs(stored)
    with pytest.raises(
        DamagedError, match=r"m on s is damaged: s3://.*\.npy has changed since it was written; eval.py"
    ):
        read.logits if isinstance(which, slice) else read.take(which).logits
    assert [e.status for e in find(stored, variant=EVERY)] == ["damaged"]
    assert cached(stored) == []


def test_an_object_that_was_written_again_with_the_same_contents_is_read(stored, object_storage):
    """Its ETag may be another one, as after a copy between buckets: then the checksum decides."""
    with stored.writing() as connection:
        connection.exec_driver_sql("UPDATE evaluations SET provenance = json_remove(provenance, '$.etags')")
    assert np.array_equal(outputs(stored).take(np.array([17])).logits, LOGITS[[17]])
    assert len(cached(stored)) == 1


def test_a_missing_object_is_refused_and_marked_and_one_in_another_storage_is_not(stored, object_storage):
    system, root = object_storage.system, object_storage.root
    read = outputs(stored)
    system.rm(root, recursive=True)
    with pytest.raises(StoreError, match=r"holds no logits of the testbed.*is it the right object storage") as told:
        len(read.logits)
    assert not isinstance(told.value, DamagedError)
    forget_rows(stored)
    with pytest.raises(StoreError, match="holds no logits of the testbed"):
        outputs(stored)
    with pytest.raises(StoreError, match="holds no logits of the testbed"):
        list(manage.verify(stored))
    assert [e.status for e in find(stored, variant=EVERY)] == ["completed"]
    system.pipe_file(f"{root}/.testbed", b"")
    with pytest.raises(DamagedError, match=r"m on s is damaged: s3://.*samples.*\.npz is missing; eval\.py"):
        outputs(stored)


def forget_rows(store):
    for path in fetched.cache(store.folder).glob("*.npz"):
        path.unlink()


def test_verify_reads_the_objects_and_not_the_cache(stored, object_storage):
    assert np.array_equal(outputs(stored).logits, LOGITS)  # in the cache, whole
    assert [problem for _, problem in manage.verify(stored)] == [""]
    replace(object_storage, ".npy", changed(LOGITS))
    ((_, problem),) = manage.verify(stored)
    assert problem.startswith("s3://") and problem.endswith("has changed since it was written")
    assert [e.status for e in find(stored, variant=EVERY)] == ["damaged"]


# ---- the cache ---------------------------------------------------------------------------------------------


def test_what_was_used_least_recently_makes_room(stored, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_VARIABLE, str(2.5 * LOGITS.nbytes / 1e9))
    for n, model in enumerate(("a", "b", "c"), start=1):
        put(stored, model, LOGITS + n, features=FEATURES[:, :1])
    forget(stored)
    kept = {}
    for at, model in enumerate("abac"):
        logits = outputs(stored, model).logits
        (new,) = set(cached(stored)) - set(kept.values()) or {kept[model]}
        kept[model] = new
        os.utime(new, ns=(at * 10**9, new.stat().st_mtime_ns))
        assert sum(path.stat().st_size for path in cached(stored)) <= 2.5 * LOGITS.nbytes
    assert set(cached(stored)) == {kept["a"], kept["c"]}
    assert np.array_equal(logits, LOGITS + 3)


def test_with_no_room_at_all_files_are_read_all_the_same(stored, monkeypatch):
    monkeypatch.setenv(fetched.CACHE_VARIABLE, "0")
    assert np.array_equal(outputs(stored).logits, LOGITS)
    put(stored, "a", LOGITS + 1)
    assert np.array_equal(outputs(stored, "a").logits, LOGITS + 1)
    assert len(cached(stored)) == 1


@pytest.mark.parametrize("given", ["-1", "much", "nan"])
def test_a_size_that_is_none_is_refused_before_any_work(store, object_storage, monkeypatch, given):
    monkeypatch.setenv(fetched.CACHE_VARIABLE, given)
    with pytest.raises(StoreError, match="TESTBED_LOGITS_CACHE_GB: expected a number of GB from 0 on, got"):
        store.keep_logits_under(object_storage.root)


def test_a_torn_file_of_the_cache_is_fetched_again(stored):
    assert np.array_equal(outputs(stored).logits, LOGITS)
    (path,) = cached(stored)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert np.array_equal(outputs(stored).logits, LOGITS)
    (rows,) = fetched.cache(stored.folder).glob("*.npz")
    rows.write_bytes(b"torn")
    assert len(outputs(stored)) == ROWS


def test_a_file_that_another_process_has_removed_in_between_is_fetched_again(stored, monkeypatch):
    assert np.array_equal(outputs(stored).logits, LOGITS)
    at_hand = fetched.at_hand

    def removed(folder, sha256):
        path = at_hand(folder, sha256)
        path.unlink()
        return path

    monkeypatch.setattr(fetched, "at_hand", removed)
    evaluation = completed(stored, "m", "s")
    array = fetched.array(stored.folder, evaluation.logits_path, evaluation.logits_sha256)
    assert np.array_equal(array, LOGITS)


def test_files_that_were_never_fetched_to_the_end_are_removed(stored):
    folder = fetched.cache(stored.folder)
    left, at_work = (folder / f".{name}.npy.0123abcd-12" for name in "ab")
    for path in (left, at_work):
        path.write_bytes(b"half")
    os.utime(left, (time.time() - 7200,) * 2)
    assert np.array_equal(outputs(stored).logits, LOGITS)
    assert not left.exists() and at_work.exists()


def test_where_results_are_read_only_the_cache_is_the_users_own(stored, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine"))
    monkeypatch.setattr(fetched.os, "access", lambda place, how, **more: tmp_path / "mine" in Path(place).parents)
    assert np.array_equal(outputs(stored).logits, LOGITS)
    assert len(list((tmp_path / "mine" / "testbed" / "logits").iterdir())) == 2


def test_a_cache_on_another_disk_leaves_no_draft(store, object_storage, monkeypatch):
    def refuse(source, target):
        raise OSError(18, "Invalid cross-device link")

    store.keep_logits_under(object_storage.root)
    with monkeypatch.context() as patch:
        patch.setattr(fetched.os, "replace", Replacing(refuse))
        put(store, "m")
    assert list(store.folder.glob("logits/s/m-*")) == []
    assert np.array_equal(outputs(store).logits, LOGITS)


class Replacing:
    """os.replace that refuses what goes into the cache."""

    def __init__(self, refuse):
        self._replace, self._refuse = os.replace, refuse

    def __call__(self, source, target):
        return self._refuse(source, target) if "cache" in Path(target).parts else self._replace(source, target)


def test_thousands_of_results_are_looked_at_by_one_listing_of_each_folder(stored, object_storage):
    listing = testbed.store.places.Listing()
    (evaluation,) = find(stored, variant=EVERY)
    with counted(object_storage) as asked:
        for _ in range(50):
            assert listing.size(evaluation.logits_path) == LOGITS.nbytes + 128
    assert len(asked) <= 2
