from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from stored_results import add, address, again, every_number, results
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.names import model_names
from testbed.store.opening import database_place, is_there, open_store


def refusal(*arguments, **how):
    with pytest.raises(StoreError) as error:
        open_store(*arguments, **how)
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- where -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "variable", "database", "folder"),
    [
        (None, None, "results/results.db", "results"),
        (None, "elsewhere/x.db", "elsewhere/x.db", "elsewhere"),
        ("here/y.db", "elsewhere/x.db", "here/y.db", "here"),
        ("sqlite:////abs/z.db", None, "/abs/z.db", "/abs"),
        ("sqlite:///z.db?timeout=3", None, "z.db", "."),
        ("odd?name#%20.db", None, "odd?name#%20.db", "."),
        ("postgresql+psycopg://user@host/name", None, "name", "results"),
    ],
)
def test_place_is_a_file_or_a_url(monkeypatch, given, variable, database, folder):
    if variable:
        monkeypatch.setenv("TESTBED_DB", variable)
    url, found = database_place(given)
    assert (url.database, str(found)) == (database, folder)


def test_results_folder_of_a_server_database_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TESTBED_RESULTS", str(tmp_path))
    assert database_place("postgresql://host/name")[1] == tmp_path
    assert database_place("here/y.db")[1].name == "here"


@pytest.mark.parametrize("url", ["postgresql://user@host:port/name", "://nothing"])
def test_url_that_cannot_be_read_is_refused_in_one_line(url):
    assert refusal(url).startswith("--db: expected a file or a URL like postgresql+psycopg://user@host/name: ")


def test_unknown_kind_of_database_is_refused_and_the_password_not_shown():
    message = refusal("oracel://me:secret@host/name")
    assert message.startswith("database oracel://me:***@host/name cannot be opened: ")


def test_only_a_run_makes_a_database(tmp_path):
    path = tmp_path / "sub" / "folder" / "results.db"
    expected = f"there is no results database {path} yet: run eval.py first, or name one with --db"
    assert refusal(str(path)) == expected
    assert not path.parent.parent.exists()
    open_store(str(path), create=True)
    assert model_names(open_store(str(path))) == []


@pytest.mark.backend("sqlite", "a file")
def test_only_a_file_can_be_known_to_be_missing(store, tmp_path):
    assert is_there(store.engine.url.database)
    assert not is_there(str(tmp_path / "other.db"))
    assert is_there("postgresql+psycopg://user@host/name")


def test_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "results.db"
    path.write_text("model,eval_setting\n" * 100)
    assert refusal(str(path), create=True) == f"database {path} cannot be opened: file is not a database"
    assert path.read_text().startswith("model,")


def test_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be opened" in refusal(str(tmp_path / "file" / "results.db"), create=True)


@pytest.mark.backend("sqlite", "told to be full by a PRAGMA")
def test_full_database_is_one_line(store, monkeypatch):
    with store.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    @sa.event.listens_for(store.engine, "begin")
    def limit(connection):
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    with pytest.raises(StoreError) as error:
        store.ensure_model("m", "x" * 100_000)
    assert str(error.value) == f"{store.where} cannot be written: database or disk is full"
    assert model_names(store) == []


# ---- schema ----------------------------------------------------------------------------------------------


def versions(store):
    with store.reading() as connection:
        return connection.execute(sa.select(schema.schema_version.c.version)).scalars().all()


def test_new_database_has_every_table_all_views_and_its_version(store):
    inspector = sa.inspect(store.engine)
    assert set(inspector.get_table_names()) >= {
        *("schema_version", "runs", "models", "eval_settings", "evaluations", "chunks", "metrics", "estimates"),
    }
    assert set(inspector.get_view_names()) == {"results", "all_results", "all_evaluations", "label_free"}
    assert versions(store) == [schema.SCHEMA_VERSION]
    assert versions(again(store)) == [schema.SCHEMA_VERSION]  # opened again, nothing is added


@pytest.mark.backend("sqlite", "its file is read without this program")
def test_results_are_read_with_nothing_but_sqlite(store):
    store.begin_run()
    add(store, "m", "s", 50.0)
    add(store, "m", "s", 60.0, variant="limit=3")
    with sqlite3.connect(store.engine.url.database) as plain:
        cursor = plain.execute("SELECT * FROM results")
        assert [c[0] for c in cursor.description] == [
            *("model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n"),
            *("unit", "better", "lowest", "highest"),
        ]
        assert cursor.fetchall() == [("m", "s", "top1", 50.0, 49.0, 51.0, 6, "%", "higher", 0.0, 100.0)]
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_newer_schema_is_refused_in_one_line_and_left_alone(store):
    newer = schema.SCHEMA_VERSION + 1
    with store.writing() as connection:
        connection.execute(schema.schema_version.update().values(version=newer))
    for create in (False, True):
        assert refusal(address(store), create=create) == (
            f"{store.where} has schema {newer}, this program knows up to {schema.SCHEMA_VERSION}: "
            "update the program, or use another database with --db"
        )
    assert versions(store) == [newer]


def test_missing_steps_run_once_in_their_order(store, monkeypatch):
    """As a later version of the program would: two steps, of which one changes a column the views show."""
    store.begin_run()
    add(store, "m", "s", 50.0)
    first = schema.SCHEMA_VERSION
    ran = []

    def add_column(connection):
        ran.append("column")
        connection.execute(sa.text("ALTER TABLE metrics ADD COLUMN more VARCHAR(8)"))

    def rename_column(connection):
        ran.append("rename")
        connection.execute(sa.text("ALTER TABLE metrics RENAME COLUMN ci_low TO lower_end"))

    monkeypatch.setattr(schema, "SCHEMA_VERSION", first + 2)
    monkeypatch.setattr(schema, "MIGRATIONS", {**schema.MIGRATIONS, first: add_column, first + 1: rename_column})
    monkeypatch.setattr(schema, "VIEWS", {n: q.replace("x.ci_low", "x.lower_end") for n, q in schema.VIEWS.items()})
    upgraded = again(store)
    again(store)
    assert ran == ["column", "rename"]
    assert versions(upgraded) == [first + 2]
    assert [(r.model, r.ci_low) for r in every_number(upgraded)] == [("m", 49.0)]


def test_step_that_fails_changes_nothing(store, monkeypatch):
    store.begin_run()
    add(store, "m", "s", 50.0)
    first = schema.SCHEMA_VERSION

    def half(connection):
        connection.execute(sa.text("ALTER TABLE metrics ADD COLUMN more VARCHAR(8)"))
        connection.execute(sa.text("ALTER TABLE no_such_table ADD COLUMN more VARCHAR(8)"))

    with monkeypatch.context() as later:
        later.setattr(schema, "SCHEMA_VERSION", first + 1)
        later.setattr(schema, "MIGRATIONS", {**schema.MIGRATIONS, first: half})
        with pytest.raises(StoreError, match="no_such_table"):
            again(store)
    assert versions(store) == [first]
    assert len(results(again(store))) == 1
    assert "more" not in {c["name"] for c in sa.inspect(store.engine).get_columns("metrics")}


def test_every_older_schema_has_a_step():
    assert sorted(schema.MIGRATIONS) == list(range(1, schema.SCHEMA_VERSION))


def test_store_needs_no_torch():
    code = "import sys, testbed.store.manage; print('torch' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, timeout=60)
    assert done.stdout.split() == ["False", "False"]


def test_database_that_another_process_is_just_making_is_waited_for(tmp_path):
    path = tmp_path / "results.db"
    maker = sqlite3.connect(path, isolation_level=None)
    maker.execute("CREATE TABLE first (x)")
    maker.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(open_store, str(path), create=True)
        with pytest.raises(TimeoutError):
            opening.result(0.2)
        maker.execute("COMMIT")
        assert versions(opening.result(30)) == [schema.SCHEMA_VERSION]
    maker.close()
