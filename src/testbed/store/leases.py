"""Which runs are at work: each tells that it lives, by the clock of the database; a silent one has lost its pairs.

The database writes the time of a heartbeat and compares it, so that the clocks of machines need not agree.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sa

from testbed.data.writing import this_machine
from testbed.errors import StoreError
from testbed.store import schema

HEARTBEAT_S = 5.0
STALE_AFTER_S = 60.0  # a run that has been silent this long is taken for dead

# Seconds since 1970, by kind of database, at the moment of the statement and not of the transaction's beginning.
_CLOCKS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)",
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
}


def clock(connection: sa.Connection) -> sa.ColumnElement[float]:
    """The time now as the database tells it; this machine's for kinds of databases whose words are not known here."""
    words = _CLOCKS.get(connection.dialect.name)
    return sa.literal(time.time()) if words is None else sa.literal_column(words, sa.Double)


def renew(connection: sa.Connection, run_id: str, **told: Any) -> None:
    """The heartbeat of a run that has not ended, and what it tells with it."""
    r = schema.runs
    goes_on = sa.and_(r.c.id == run_id, r.c.ended_at.is_(None))
    connection.execute(r.update().where(goes_on).values(heartbeat_at=clock(connection), **told))


def holder(connection: sa.Connection, run_id: str) -> Mapping[Any, Any] | None:
    """The row of a run if it is at work, else None."""
    run = connection.execute(_not_ended(connection).where(schema.runs.c.id == run_id)).mappings().first()
    return run if run is not None and lives(run) else None


def living(connection: sa.Connection) -> set[str]:
    """Ids of the runs that are at work."""
    return {run["id"] for run in connection.execute(_not_ended(connection)).mappings() if lives(run)}


def _not_ended(connection: sa.Connection) -> sa.Select[Any]:
    r = schema.runs
    silent_s = (clock(connection) - r.c.heartbeat_at).label("silent_s")
    return sa.select(r.c.id, r.c.host, r.c.machine, r.c.pid, silent_s).where(r.c.ended_at.is_(None))


def lives(run: Mapping[Any, Any]) -> bool:
    """A process of this machine can be asked for, so that after a kill nobody has to wait."""
    if run["machine"] == this_machine() and not process_lives(run["pid"]):
        return False
    return bool(run["silent_s"] < STALE_AFTER_S)


def process_lives(pid: int) -> bool:
    """Whether a process of this machine is there."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def telling(heartbeat: Callable[[], None]) -> Iterator[None]:
    """A heartbeat now and every few seconds, from a thread: measuring a large result must not make a run look dead."""
    ended = threading.Event()

    def beat() -> None:
        while True:
            with suppress(StoreError):  # the database is away or locked: the next heartbeat may come through
                heartbeat()
            if ended.wait(HEARTBEAT_S):
                return

    thread = threading.Thread(target=beat, name="testbed heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(HEARTBEAT_S)
