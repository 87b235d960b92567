"""Files in object storage, against moto's S3 on loopback: whole or not there, never overwritten, told in one line."""

from __future__ import annotations

import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import pairwise

import pytest

from object_storage import BREAK_OFF, FAIL, counted
from testbed.errors import StoreError
from testbed.store import objects


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """How long an upload would have waited; no test does."""
    waited: list[float] = []
    monkeypatch.setattr(objects.time, "sleep", waited.append)
    monkeypatch.setattr(objects, "_gave_up", False)
    return waited


@pytest.fixture
def file(tmp_path):
    """A function that makes a file, and its checksum."""

    def make(content=b"logits", name="a.npy"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name, hashlib.sha256(content).hexdigest()

    return make


def failing(times, what=FAIL, method="PUT"):
    """Trouble for the first requests of a kind."""
    left = [times]

    def trouble(asked, key):
        if asked != method or not left[0]:
            return ""
        left[0] -= 1
        return what

    return trouble


def content(url):
    return b"".join(objects.blocks(url, objects.facts_of(url).size))


def test_a_file_that_was_put_comes_back(object_storage, file):
    path, sha256 = file(b"0123456789")
    url = f"{object_storage.root}/s/a.npy"
    facts = objects.put_new(path, url, sha256)
    assert facts.size == 10 and facts.etag and objects.facts_of(url) == facts
    assert content(url) == b"0123456789" and objects.known_sha256(url) == sha256
    assert objects.ranges(url, [(7, 9), (0, 3)]) == [b"78", b"012"]
    assert objects.sizes_below(f"{object_storage.root}/s") == {"a.npy": 10}
    assert objects.sizes_below(f"{object_storage.root}/none") == {}


def test_large_objects_are_read_in_blocks_in_their_order(object_storage, file, monkeypatch):
    monkeypatch.setattr(objects, "_BLOCK", 1000)
    path, sha256 = file(bytes(range(256)) * 25)
    url = f"{object_storage.root}/a.npy"
    objects.put_new(path, url, sha256)
    with counted(object_storage) as asked:
        assert content(url) == path.read_bytes()
    assert sorted(r.sent for r in asked if r.method == "GET") == [400] + [1000] * 6


def test_an_object_with_other_contents_is_not_overwritten(object_storage, file):
    url = f"{object_storage.root}/a.npy"
    objects.put_new(*arguments(file(b"first"), url))
    objects.put_new(*arguments(file(b"first"), url))  # the same again is no error
    with pytest.raises(StoreError, match=r"a\.npy is there already, with other contents: it is not overwritten"):
        objects.put_new(*arguments(file(b"other"), url))
    assert content(url) == b"first"


def arguments(made, url):
    path, sha256 = made
    return path, url, sha256


def test_of_eight_writers_of_one_name_one_wins(object_storage, file):
    url = f"{object_storage.root}/a.npy"
    made = [file(f"writer {n}".encode(), f"{n}.npy") for n in range(8)]

    def put(each):
        try:
            objects.put_new(*arguments(each, url))
        except StoreError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(put, made))
    assert sorted(said)[0] == "" and all("other contents" in error for error in sorted(said)[1:])
    assert content(url) == made[said.index("")][0].read_bytes()


def test_a_lost_answer_is_no_error(object_storage, file):
    path, sha256 = file()
    url = f"{object_storage.root}/a.npy"
    object_storage.trouble = failing(1, BREAK_OFF)
    told: list[str] = []
    facts = objects.patiently(lambda: objects.put_new(path, url, sha256), told.append)
    assert facts.size == len(b"logits") and content(url) == b"logits"
    assert sum(r.method == "PUT" for r in object_storage.asked) >= 2  # it was sent again, and found to be there


@pytest.mark.parametrize("what", [FAIL, BREAK_OFF])
def test_storage_that_is_away_for_a_while_is_waited_for_with_one_line(object_storage, file, waits, what):
    path, sha256 = file()
    url = f"{object_storage.root}/a.npy"
    object_storage.system.retries = 1  # those of s3fs come before ours
    try:
        object_storage.trouble = failing(3, what, "HEAD" if what == BREAK_OFF else "PUT")
        told: list[str] = []
        objects.patiently(lambda: objects.put_new(path, url, sha256), told.append)
    finally:
        del object_storage.system.retries
    assert content(url) == b"logits"
    assert len(told) == 1 and "\n" not in told[0] and told[0].endswith("; trying again, at most 300 s")
    assert told[0].startswith(url)
    assert waits and waits == [1.0, 2.0, 4.0][: len(waits)]  # aiohttp repeats some requests by itself


def test_storage_that_stays_away_is_given_up_and_the_next_upload_does_not_wait(object_storage, file, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(objects.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(objects.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    tries: list[float] = []

    def away():
        tries.append(clock[0])
        raise objects.StorageAway("s3://b/x cannot be written", "no answer")

    told: list[str] = []
    with pytest.raises(objects.StorageAway, match="no answer"):
        objects.patiently(away, told.append)
    assert tries[-1] == objects.PATIENCE_S and len(told) == 1
    assert max(b - a for a, b in pairwise(tries)) == 15.0
    tries.clear()
    with pytest.raises(objects.StorageAway):
        objects.patiently(away, told.append)
    assert len(tries) == 1 and len(told) == 1
    assert objects.patiently(lambda: 3, told.append) == 3  # it is back: the next ones are waited for again
    tries.clear()
    with pytest.raises(objects.StorageAway):
        objects.patiently(away, told.append)
    assert len(tries) > 10


def test_an_answer_that_is_cut_off_is_no_content(object_storage, file):
    path, sha256 = file(b"0123456789")
    url = f"{object_storage.root}/a.npy"
    objects.put_new(path, url, sha256)
    with pytest.raises(objects.StorageAway, match=r"a\.npy cannot be read: its end did not come"):
        objects.ranges(url, [(0, 4), (8, 20)])


def test_an_upload_in_parts_that_breaks_leaves_no_object_and_no_upload(object_storage, file, monkeypatch):
    """s3fs ends the upload itself, where the storage answers. Its parts have 50 MB, here as little as may be."""
    import s3fs.core

    monkeypatch.setattr(s3fs.core, "calculate_chunksize", lambda size, chunksize=None: 5 * 2**20)
    path, sha256 = file(bytes(11 * 2**20))
    url = f"{object_storage.root}/large.npy"
    object_storage.trouble = failing(1)
    with pytest.raises(objects.StorageAway, match=r"large\.npy cannot be written"):
        objects.put_new(path, url, sha256)
    assert sum("uploads" in r.query for r in object_storage.asked) == 1  # it was one in parts
    assert object_storage.objects() == [] and object_storage.unfinished_uploads() == 0
    object_storage.trouble = lambda method, key: ""
    assert objects.put_new(path, url, sha256).size == 11 * 2**20
    with pytest.raises(StoreError, match="other contents"):
        objects.put_new(path, url, "0" * 64)
    assert object_storage.unfinished_uploads() == 0


def test_removing_takes_the_recorded_arrays_and_nobody_elses(object_storage, file):
    path, sha256 = file()
    folder = f"{object_storage.root}/s"
    for name in ("m-1.npy", "m-1~features.npy", "m-12.npy", "m-1.5.npy"):
        objects.put_new(path, f"{folder}/{name}", sha256)
    objects.remove_beginning(folder, "m-1")
    objects.remove_beginning(folder, "m-1")  # what is gone is gone
    assert object_storage.objects() == ["s/m-1.5.npy", "s/m-12.npy"]


def test_what_is_wrong_is_told_in_one_line(object_storage, file, monkeypatch):
    path, sha256 = file()
    bucket = object_storage.root.split("/")[2]
    with pytest.raises(objects.MissingObject, match=rf"^s3://{bucket}/none\.npy is missing$"):
        objects.facts_of(f"s3://{bucket}/none.npy")
    with pytest.raises(StoreError, match=r"s3://no-such-bucket/a\.npy cannot be written: .*bucket does not exist$"):
        objects.put_new(path, "s3://no-such-bucket/a.npy", sha256)
    with pytest.raises(StoreError, match=r"foo://b/a\.npy cannot be opened: Protocol not known: foo"):
        objects.facts_of("foo://b/a.npy")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    object_storage.system.clear_instance_cache()
    with pytest.raises(objects.StorageAway, match=r'cannot be looked at: Could not connect to the endpoint URL: "http'):
        objects.facts_of(f"s3://{bucket}/none.npy")
    object_storage.system.clear_instance_cache()


def test_without_the_package_the_answer_names_it(monkeypatch):
    known = import_module("fsspec.registry")._registry
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(known, "s3", raising=False)
    with pytest.raises(
        StoreError, match=r"^s3:// needs a package that is not installed: pip install s3fs, or the extra"
    ):
        objects.facts_of("s3://bucket/a.npy")
