"""Fixtures for all tests: a clean environment, an empty store, small pictures on disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from object_storage import ObjectStorage
    from testbed.store.database import Store

# Each process of the tests computes with one thread, for several run at a time: threads that wait for work take a core
# from those that have some. Bytecode is kept, since a hundred processes that are started here read the same modules.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A shell that starts the tests with & makes them ignore Ctrl-C, and every process that a test starts would do so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("testbed", deadline=None, derandomize=True)
settings.load_profile("testbed")


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the data, weights, registries or database of whoever runs it."""
    for name in list(os.environ):
        if name.startswith("TESTBED_") and name != "TESTBED_SHARED_DATA":
            monkeypatch.delenv(name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty results database."""
    from testbed.store.opening import open_store

    store = open_store(str(tmp_path / "results" / "results.db"), create=True)
    yield store
    store.engine.dispose()


@pytest.fixture(scope="session")
def object_storage_server() -> Iterator[ObjectStorage]:
    from object_storage import ObjectStorage

    pytest.importorskip("s3fs")
    pytest.importorskip("moto.server")
    server = ObjectStorage()
    yield server
    server.close()


@pytest.fixture
def object_storage(object_storage_server: ObjectStorage, monkeypatch: pytest.MonkeyPatch) -> ObjectStorage:
    """An S3 on loopback with an empty bucket, which the environment names as a user's would."""
    for name, value in object_storage_server.environment.items():
        monkeypatch.setenv(name, value)
    object_storage_server.new_bucket()
    return object_storage_server


@pytest.fixture
def image_folder(tmp_path: Path) -> Callable[..., Path]:
    """A function that makes a folder with one small PNG at each of the given paths."""
    import numpy as np
    from PIL import Image

    def make(paths: Sequence[str], root: str = "pictures", size: int = 4) -> Path:
        folder = tmp_path / root
        rng = np.random.default_rng(0)
        for path in paths:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8)).save(folder / path)
        return folder

    return make
