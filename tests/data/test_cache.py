from __future__ import annotations

import errno
import os
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from testbed.data.cache import open_cache, reopen_cache

SHAPE = (4, 5, 3)
BYTES = 60


def image(index):
    return np.random.default_rng(index).integers(0, 256, SHAPE, dtype=np.uint8)


def opened(root, key="key", n=10, budget=10**6):
    return open_cache(root, key, n, SHAPE, budget)


def file_of(root, name):
    (path,) = root.glob(f"*/{name}")
    return path


def test_images_come_back_bit_equal_also_when_opened_again(tmp_path):
    cache = opened(tmp_path)
    assert cache.get(3) is None
    for index in (3, 0, 9):
        cache.put(index, image(index))
    again = opened(tmp_path)
    for index in (3, 0, 9):
        assert (again.get(index) == image(index)).all()
        assert again.get(index).shape == SHAPE
        assert again.get(index).flags.writeable  # perturbations may change an image in place
    assert again.get(1) is None
    again.put(1, image(1))
    assert (cache.get(1) == image(1)).all()  # as another process would see it


def test_caches_of_different_keys_and_shapes_are_apart(tmp_path):
    opened(tmp_path, "one").put(0, image(0))
    assert opened(tmp_path, "other").get(0) is None
    assert open_cache(tmp_path, "one", 10, (3, 5, 4), 10**6).get(0) is None


def test_known_shape_is_taken_up_again_without_an_image(tmp_path):
    assert reopen_cache(tmp_path, "key", 10, 10**6) is None
    opened(tmp_path).put(4, image(4))
    assert (reopen_cache(tmp_path, "key", 10, 10**6).get(4) == image(4)).all()
    file_of(tmp_path, "info.json").write_text("{")
    assert reopen_cache(tmp_path, "key", 10, 10**6) is None


def test_image_whose_checksum_is_zero_is_still_present(tmp_path, monkeypatch):
    monkeypatch.setattr(zlib, "crc32", lambda *_: 0)
    cache = opened(tmp_path)
    cache.put(0, image(0))
    assert (cache.get(0) == image(0)).all()


def test_unused_caches_leave_no_file_open(tmp_path):
    """A worker opens one per model and setting: hundreds in a run."""

    def next_descriptor():
        descriptor = os.open(tmp_path, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    before = next_descriptor()
    for _ in range(3):
        opened(tmp_path).put(0, image(0))
    assert next_descriptor() == before
    opened(tmp_path).close()
    assert next_descriptor() == before


@pytest.mark.parametrize("tear", ["cut", "half written", "checksum missing"])
def test_torn_write_is_prepared_again(tmp_path, tear):
    cache = opened(tmp_path)
    for index in range(3):
        cache.put(index, image(index))
    pixels = file_of(tmp_path, "pixels.u8")
    with pixels.open("r+b") as file:
        if tear == "cut":
            file.truncate(2 * BYTES + 17)
        elif tear == "half written":
            file.seek(2 * BYTES)
            file.write(bytes(17))
    if tear == "checksum missing":
        with file_of(tmp_path, "checksums.u32").open("r+b") as file:
            file.truncate(2 * 4)
    again = opened(tmp_path)
    assert again.get(2) is None
    assert (again.get(1) == image(1)).all()
    again.put(2, image(2))
    assert (again.get(2) == image(2)).all()


def test_image_of_another_shape_is_left_out(tmp_path):
    cache = opened(tmp_path)
    cache.put(0, np.zeros((5, 4, 3), dtype=np.uint8))
    assert cache.get(0) is None


def test_least_recently_opened_cache_goes_first(tmp_path):
    room_for_two = 2 * 10 * BYTES
    for age, key in ((300, "first"), (200, "second")):
        known = set(tmp_path.glob("*/info.json"))
        opened(tmp_path, key, budget=room_for_two).put(0, image(0))
        (info,) = set(tmp_path.glob("*/info.json")) - known
        os.utime(info, (info.stat().st_mtime - age,) * 2)
    opened(tmp_path, "first", budget=room_for_two)  # used again: now the second is the oldest
    opened(tmp_path, "third", budget=room_for_two)
    assert len(list(tmp_path.glob("*/info.json"))) == 2
    assert opened(tmp_path, "first", budget=room_for_two).get(0) is not None
    assert opened(tmp_path, "second", budget=room_for_two).get(0) is None


def test_what_is_too_large_for_the_budget_is_not_cached(tmp_path):
    opened(tmp_path, "small", n=1, budget=10 * BYTES).put(0, image(0))
    assert opened(tmp_path, n=10, budget=10 * BYTES - 1) is None
    assert opened(tmp_path, "small", n=1, budget=10 * BYTES).get(0) is not None  # nothing was thrown out for it
    assert opened(tmp_path, n=10, budget=10 * BYTES) is not None


def test_place_that_cannot_be_written_means_no_cache(tmp_path):
    (tmp_path / "file").write_text("")
    assert opened(tmp_path / "file" / "cache") is None


def test_full_disk_ends_writing_and_not_reading(tmp_path, monkeypatch):
    cache = opened(tmp_path)
    cache.put(0, image(0))
    attempts = []

    def full(*arguments):
        attempts.append(arguments)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    cache.put(1, image(1))
    cache.put(2, image(2))
    assert len(attempts) == 1
    assert (cache.get(0) == image(0)).all()
    assert cache.get(1) is None


def test_threads_read_whole_images_or_none(tmp_path):
    n = 40
    caches = [opened(tmp_path, n=n) for _ in range(2)]

    def work(turn):
        cache, index = caches[turn % 2], (turn * 7) % n
        found = cache.get(index)
        if found is None:
            cache.put(index, image(index))
            return True
        return bool((found == image(index)).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(8 * n)))
    assert all((caches[0].get(i) == image(i)).all() for i in range(n))
