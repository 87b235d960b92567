"""A throw-away PostgreSQL server for tests, which root may not run itself."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from faults.running import LIMIT_S, descendants, state, wait_until
from testbed.store import schema

# In names that people sort: what SQLite and Python put last, English puts in between.
ENGLISH = ["--locale-provider=icu", "--icu-locale=en-US"]
FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT  # the ways to shut it down that do not wait for its clients


class NoServer(Exception):
    """None can be had here, and why."""


class Server:
    """A server that listens on a socket in a folder of its own, and nowhere else."""

    def __init__(self, folder: Path, who: dict[str, Any]) -> None:
        self._folder, self._who = folder, who
        self.url = self.url_of("postgres")
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)

    def url_of(self, database: str) -> str:
        return f"postgresql+psycopg://testbed@/{database}?host={self._folder}"

    @contextmanager
    def administration(self) -> Iterator[sa.Connection]:
        """A connection that may make and remove databases: not in a transaction."""
        engine = sa.create_engine(self.url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            yield connection

    def new_database(self) -> str:
        """The URL of one in which nobody has made anything."""
        name = f"of_a_test_{next(self._numbers)}"
        with self.administration() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name} TEMPLATE template0"))
        return self.url_of(name)

    def start(self) -> None:
        data, options = str(self._folder / "data"), ("listen_addresses=", "fsync=off")
        command = [program("postgres"), "-D", data, "-k", str(self._folder)]
        command += [word for option in options for word in ("-c", option)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._folder, stdout=log, stderr=log, **self._who)
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        engine = sa.create_engine(self.url)
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                with engine.connect():
                    return
            except sa.exc.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    told = (self._folder / "log").read_text()[-300:]
                    raise NoServer(f"the PostgreSQL server does not start: {told}") from error
                time.sleep(0.05)

    def stop(self, how: signal.Signals = IMMEDIATE) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT_S)
            self._process = None

    def kill(self) -> None:
        """SIGKILL of its first process; those below it end by themselves, and hold its memory until they have."""
        assert self._process is not None
        below = descendants(self._process.pid)
        self.stop(signal.SIGKILL)
        wait_until(lambda: all(state(pid) in ("", "Z") for pid in below))


@contextmanager
def serving() -> Iterator[Server]:
    """An empty server; it is stopped and removed at the end. Raises NoServer where there is no PostgreSQL."""
    if find_spec("psycopg") is None:
        raise NoServer("the driver psycopg is not installed")
    initdb, who = program("initdb"), somebody_else()
    folder = Path(tempfile.mkdtemp(prefix="testbed-pg-"))  # short, as a socket must be, and open to its user
    server = Server(folder, who)
    try:
        if who:
            os.chown(folder, who["user"], who["group"])
        base = [initdb, "-D", str(folder / "data"), "-U", "testbed", "-A", "trust", "-E", "UTF8", "--no-sync"]
        for locale in (ENGLISH, ["--locale=C"]):
            made = subprocess.run([*base, *locale], cwd=folder, capture_output=True, text=True, **who)
            if made.returncode == 0:
                break
        else:
            raise NoServer(f"initdb failed: {(made.stdout + made.stderr).strip().splitlines()[-1]}")
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serving_or_skip() -> Iterator[Server]:
    """The same for tests, which skip where there is none."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(serving())
        except NoServer as problem:
            pytest.skip(str(problem))
        yield server


# What a test may have changed but rows: columns, views, indexes, and the version that the program goes by.
_SHAPE = """
    SELECT md5(concat(
        (SELECT string_agg(concat_ws(' ', attrelid, attname, atttypid), ',' ORDER BY attrelid, attnum) FROM pg_attribute
         WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)),
        (SELECT string_agg(definition, ',' ORDER BY viewname) FROM pg_views WHERE schemaname = 'public'),
        (SELECT string_agg(indexdef, ',' ORDER BY indexname) FROM pg_indexes WHERE schemaname = 'public'),
        (SELECT string_agg(version::text, ',') FROM schema_version)))
"""


class Copies:
    """Databases with all tables, for one test at a time: copies of one, which are emptied and given out again.

    To empty one takes a few milliseconds, to make one a tenth of a second. One that a test has changed is made anew.
    """

    def __init__(self, server: Server, make_tables: Callable[[str], None]) -> None:
        self._server = server
        self._make_tables = make_tables
        self._names = (f"copy_{number}" for number in count(1))
        self._template: str | None = None
        self._free: list[str] = []
        self._shapes: dict[str, str] = {}
        self.url_of = server.url_of

    def of_nothing(self) -> str:
        """The name of a database in which nobody has made anything."""
        return self._make("template0")

    def with_tables(self) -> str:
        if self._free:
            return self._free.pop()
        if self._template is None:
            self._template = self.of_nothing()
            self._make_tables(self.url_of(self._template))
        name = self._make(self._template)
        with self._inside(name) as connection:
            self._shapes[name] = connection.execute(sa.text(_SHAPE)).scalar_one()
        return name

    def give_back(self, name: str) -> None:
        if name in self._shapes and self._emptied(name):
            self._free.append(name)
            return
        with self._server.administration() as connection:
            connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))

    def _make(self, template: str) -> str:
        name = next(self._names)
        with self._server.administration() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        return name

    def _emptied(self, name: str) -> bool:
        """Whether it is as it was made; its rows are gone then, and its numbers begin at 1 again."""
        try:
            with self._inside(name) as connection:
                connection.execute(sa.text("SET lock_timeout = '5s'"))  # a test may have left a transaction open
                if connection.execute(sa.text(_SHAPE)).scalar_one() != self._shapes[name]:
                    return False
                for table in reversed(schema.tables.sorted_tables):
                    if table is not schema.schema_version:
                        connection.execute(table.delete())
                for sequence in connection.execute(sa.text("SELECT sequencename FROM pg_sequences")).scalars().all():
                    connection.execute(sa.text(f"ALTER SEQUENCE {sequence} RESTART"))
        except sa.exc.DBAPIError:
            return False
        return True

    @contextmanager
    def _inside(self, name: str) -> Iterator[sa.Connection]:
        engine = sa.create_engine(self.url_of(name), poolclass=sa.NullPool)
        with engine.begin() as connection:
            yield connection


def program(name: str) -> str:
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    if found is None:
        raise NoServer(f"no PostgreSQL here: {name} is not found")
    return found


def somebody_else() -> dict[str, Any]:
    """How to start a process as a user without rights; nothing where we are not root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NoServer("PostgreSQL refuses root, and there is neither a user postgres nor nobody")
