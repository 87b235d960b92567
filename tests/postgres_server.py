"""A throw-away PostgreSQL server for tests, which root may not run itself."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from faults.running import LIMIT_S

# In names that people sort: what SQLite and Python put last, English puts in between.
ENGLISH = ["--locale-provider=icu", "--icu-locale=en-US"]
FAST, IMMEDIATE = signal.SIGINT, signal.SIGQUIT  # the ways to shut it down that do not wait for its clients


class Server:
    """A server that listens on a socket in a folder of its own, and nowhere else."""

    def __init__(self, folder: Path, who: dict[str, Any]) -> None:
        self._folder, self._who = folder, who
        self.url = f"postgresql+psycopg://testbed@/postgres?host={folder}"
        self._process: subprocess.Popen[bytes] | None = None

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
            except sa.exc.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    told = (self._folder / "log").read_text()[-300:]
                    pytest.skip(f"the PostgreSQL server does not start: {told}")
                time.sleep(0.05)

    def stop(self, how: signal.Signals = IMMEDIATE) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(LIMIT_S)
            self._process = None


@contextmanager
def serving() -> Iterator[Server]:
    """An empty server; it is stopped and removed at the end. The test skips where there is no PostgreSQL."""
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
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
            pytest.skip(f"initdb failed: {(made.stdout + made.stderr).strip().splitlines()[-1]}")
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def program(name: str) -> str:
    found = shutil.which(name) or max(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), default=None)
    if found is None:
        pytest.skip(f"no PostgreSQL here: {name} is not found")
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
    pytest.skip("PostgreSQL refuses root, and there is neither a user postgres nor nobody")
