"""What is PostgreSQL's own. All other tests of the store run on a server too: see conftest.py."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from stored_results import address, again
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.opening import open_store
from testbed.store.transactions import ServerAway

pytestmark = pytest.mark.backend("postgresql", "what is its own")


def test_logits_lie_in_the_results_folder(store, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path))
    assert open_store(address(store)).folder == tmp_path
    assert store.engine.dialect.name == "postgresql"


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


def told(store, **settings):
    """The same database on a server that an administrator has set so."""
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return open_store(f"{address(store)}&options={quote(options)}")


def test_a_writer_sees_what_was_written_before_its_turn_whatever_the_server_is_set_to(store):
    """Under `repeatable read` it saw the database as it was when it began to wait, and wrote about a lost pair."""
    strict = told(store, default_transaction_isolation=r"repeatable\ read")
    with strict.writing() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"
    strict.engine.dispose()


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_a_write_that_waits_longer_than_the_server_allows_is_tried_again(store, limit):
    hasty = told(store, **{limit: "30ms"})
    with store.writing(), pytest.raises(ServerAway, match="timeout"):
        hasty.ensure_model("m")
    hasty.patience_s, waited = 60.0, threading.Event()
    hasty.tell = lambda text: waited.set()
    with ThreadPoolExecutor(1) as threads:
        with store.writing():
            writing = threads.submit(hasty.ensure_model, "m")
            assert waited.wait(60)
        assert writing.result(60) == store.ensure_model("m")
    hasty.engine.dispose()


def test_server_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(StoreError) as error:
        open_store(f"postgresql+psycopg://me:secret@/results?host={tmp_path}")
    assert str(error.value).startswith("database postgresql+psycopg://me:***@/results?host=")
    assert "cannot be opened: " in str(error.value)
    assert "\n" not in str(error.value) and "secret" not in str(error.value)
