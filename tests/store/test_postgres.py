"""Claims, results, removal and concurrency again on a throw-away PostgreSQL server, which root may not run itself."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from faults.running import LIMIT_S
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
from store.test_two_processes import *  # noqa: F403
from stored_results import again
from testbed.errors import StoreError
from testbed.store import schema
from testbed.store.database import Store
from testbed.store.opening import open_store

psycopg = pytest.importorskip("psycopg", reason="the driver psycopg is not installed")

# In names that people sort: what SQLite and Python put last, English puts in between.
ENGLISH = ["--locale-provider=icu", "--icu-locale=en-US"]


def program(name: str) -> str:
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    if found is None:
        pytest.skip(f"no PostgreSQL here: {name} is not found")
    return found


def somebody_else() -> dict[str, object]:
    """How to start a process as a user without rights; nothing where we are not root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL refuses root, and there is neither a user postgres nor nobody")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of an empty server that listens on a socket in a folder of its own."""
    initdb, postgres = program("initdb"), program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="testbed-pg-"))  # short, as a socket must be, and open to its user
    who = somebody_else()
    how: dict[str, object] = {**who, "cwd": folder, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = None
    try:
        if who:
            os.chown(folder, int(str(who["user"])), int(str(who["group"])))
        base = [initdb, "-D", str(folder / "data"), "-U", "testbed", "-A", "trust", "-E", "UTF8", "--no-sync"]
        for locale in (ENGLISH, ["--locale=C"]):
            made = subprocess.run([*base, *locale], text=True, **how)  # type: ignore[call-overload]
            if made.returncode == 0:
                break
        else:
            pytest.skip(f"initdb failed: {made.stdout.strip().splitlines()[-1]}")
        command = [
            postgres,
            "-D",
            str(folder / "data"),
            "-k",
            str(folder),
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, **{**how, "stdout": log, "stderr": log})  # type: ignore[call-overload]
        url = f"postgresql+psycopg://testbed@/postgres?host={folder}"
        wait_for(url, process, folder / "log")
        yield url
    finally:
        if process is not None:
            process.send_signal(signal.SIGQUIT)  # at once: nothing is to be kept
            process.wait(LIMIT_S)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    engine = sa.create_engine(url)
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            with engine.connect():
                return
        except sa.exc.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"the PostgreSQL server does not start: {log.read_text()[-300:]}")
            time.sleep(0.05)


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
