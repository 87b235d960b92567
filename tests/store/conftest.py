"""Every test of the store runs twice: on SQLite, and on a PostgreSQL server where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from postgres_server import Copies, serving_or_skip
from testbed.store.database import Store
from testbed.store.opening import open_store

BACKENDS = ("sqlite", "postgresql")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Both kinds of database for whoever opens one. The mark `backend` names the one that a test is about, and why."""
    if "backend" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("backend")
        metafunc.parametrize("backend", BACKENDS if mark is None else mark.args[:1])


@pytest.fixture(scope="session")
def copies() -> Iterator[Copies]:
    """The databases of one server, for all tests of this process."""
    with serving_or_skip() as server:
        yield Copies(server, lambda place: open_store(place, create=True).engine.dispose())


class Databases:
    """Databases of one test, each with a results folder of its own."""

    def __init__(self, backend: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self._backend, self._folder, self._request = backend, folder, request
        self._stores: list[Store] = []
        self._taken: list[str] = []

    def empty(self, name: str) -> str:
        """The file or URL of a database in which nobody has made anything."""
        return self._file(name) if self._backend == "sqlite" else self._on_server(Copies.of_nothing)

    def open(self, name: str) -> Store:
        """An opened database with all its tables; its results folder has this name."""
        place = self._file(name) if self._backend == "sqlite" else self._on_server(Copies.with_tables)
        store = open_store(place, create=True)
        store.folder = self._folder / name
        self._stores.append(store)
        return store

    def _file(self, name: str) -> str:
        return str(self._folder / name / "results.db")

    def _on_server(self, make: Callable[[Copies], str]) -> str:
        copies = self._request.getfixturevalue("copies")
        self._taken.append(make(copies))
        return copies.url_of(self._taken[-1])

    def close(self) -> None:
        for store in self._stores:
            store.engine.dispose()
        for name in self._taken:
            self._request.getfixturevalue("copies").give_back(name)


@pytest.fixture
def databases(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Databases]:
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path / "results"))  # where commands find files of a server's results
    made = Databases(backend, tmp_path, request)
    yield made
    made.close()


@pytest.fixture
def store(databases: Databases) -> Store:
    """An empty results database."""
    return databases.open("results")


@pytest.fixture
def elsewhere(databases: Databases) -> Store:
    """Another one, of the same kind."""
    return databases.open("elsewhere")


@pytest.fixture
def empty_place(databases: Databases) -> str:
    """Where nobody has made a database yet."""
    return databases.empty("results")
