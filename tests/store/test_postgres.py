"""Claims, results, removal and concurrency again on a throw-away PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from postgres_server import serving
from store.test_claims import *  # noqa: F403
from store.test_estimates import (  # noqa: F401
    test_a_database_of_the_first_schema_gets_the_table_and_keeps_its_results,
    test_an_older_database_tells_whose_logits_and_whose_images_and_what_accuracies_are,
)
from store.test_find import (  # noqa: F401
    limited,
    published,
    test_a_run_that_has_failed_or_goes_on_supersedes_nothing,
    test_a_source_chooses,
    test_globs_and_lists_of_names_mean_what_they_match,
    test_states_tell_every_own_evaluation,
    test_superseded_results_say_so,
    versions,
)
from store.test_manage import (  # noqa: F401
    filled,
    test_names_without_results_go_without_override,
    test_published_results_are_removed_only_with_override_too,
    test_removal_needs_override_and_takes_the_files_along,
    test_rename_onto_a_taken_name_is_refused,
    test_renamed_entries_keep_their_results_and_files,
    test_what_another_run_is_at_is_not_removed_under_it,
)
from store.test_results import *  # noqa: F403
from store.test_run_states import *  # noqa: F403
from store.test_two_processes import *  # noqa: F403
from stored_results import again
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.database import Store
from testbed.store.opening import open_store


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an empty server."""
    with serving() as running:
        yield running.url


@pytest.fixture
def empty_place(server: str) -> Iterator[str]:
    """Another database of the server, in which nobody has made anything."""
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text("CREATE DATABASE nothing"))
        yield server.replace("/postgres?", "/nothing?")
        connection.execute(sa.text("DROP DATABASE nothing WITH (FORCE)"))
    engine.dispose()


@pytest.fixture(scope="module")
def made(server: str) -> Iterator[Store]:
    store = open_store(server, create=True)
    yield store
    store.engine.dispose()


@pytest.fixture
def store(made: Store, tmp_path: Path) -> Store:
    """As the fixture of the other modules; tables are emptied instead of made, which is quicker."""
    with made.writing() as connection:
        names = ", ".join(t.name for t in schema.tables.sorted_tables if t is not schema.schema_version)
        connection.execute(sa.text(f"TRUNCATE {names} RESTART IDENTITY"))
    return Store(made.engine, tmp_path / "results", made.where)


def test_logits_lie_in_the_results_folder(made, server, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path))
    assert open_store(server).folder == tmp_path
    assert made.engine.dialect.name == "postgresql"


def test_steps_that_fail_change_nothing(store, monkeypatch):
    first = schema.SCHEMA_VERSION

    def rename_column(connection):
        connection.execute(sa.text("ALTER TABLE metrics RENAME COLUMN ci_low TO lower_end"))

    def fail(connection):
        connection.execute(sa.text("ALTER TABLE no_such_table ADD COLUMN unit VARCHAR(8)"))

    monkeypatch.setattr(schema, "SCHEMA_VERSION", first + 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {**schema.MIGRATIONS, first: rename_column, first + 1: fail})
    with pytest.raises(StoreError, match=r"cannot be written: .*no_such_table"):
        again(store)
    columns = {c["name"] for c in sa.inspect(store.engine).get_columns("metrics")}
    assert "ci_low" in columns and set(sa.inspect(store.engine).get_view_names()) == set(schema.VIEWS)


def test_server_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(StoreError) as error:
        open_store(f"postgresql+psycopg://me:secret@/results?host={tmp_path}")
    assert str(error.value).startswith("database postgresql+psycopg://me:***@/results?host=")
    assert "cannot be opened: " in str(error.value)
    assert "\n" not in str(error.value) and "secret" not in str(error.value)
