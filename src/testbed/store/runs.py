"""The runs of a database: each enters itself, tells that it lives, and refuses what another living run is at."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from testbed.data.writing import this_machine
from testbed.errors import StoreError
from testbed.store import leases, schema
from testbed.store.masking import MASK, masked, masked_command
from testbed.store.transactions import Database, repeated

SERVER_PATIENCE_S = 300.0  # how long a run waits for a server that is away, or a file that others hold


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Busy(StoreError):
    """Another living run is at work on the same pair."""


class Runs(Database):
    """A database that runs are at work on, one of which may be this process."""

    def __init__(self, engine: sa.Engine, where: str, read_only: bool = False) -> None:
        super().__init__(engine, where, read_only)
        self.run_id: str | None = None
        self._progress: Callable[[], Mapping[str, Any]] = dict

    def begin_run(self) -> None:
        self.run_id = uuid.uuid4().hex
        self._enter_run(
            id=self.run_id,
            host=socket.gethostname(),
            machine=this_machine(),
            pid=os.getpid(),
            command=masked_command(sys.argv),
            started_at=now(),
        )

    @repeated
    def _enter_run(self, **row: Any) -> None:
        with self.writing() as connection:
            connection.execute(schema.runs.delete().where(schema.runs.c.id == row["id"]))  # of a try before
            clock = leases.clock(connection)
            connection.execute(schema.runs.insert().values(**row, heartbeat_at=clock, begun_at=clock))

    def mask_commands(self) -> None:
        """Take passwords out of the commands of earlier runs, which older programs stored as they were typed."""
        r = schema.runs
        typed = sa.and_(r.c.command.like("%://%:%@%"), ~r.c.command.like(f"%:{MASK}@%"))
        with self.reading() as connection:
            stored = connection.execute(sa.select(r.c.id, r.c.command).where(typed)).all()
        changed = [(id_, masked(command)) for id_, command in stored if masked(command) != command]
        if changed:
            with self.writing() as connection:
                for id_, command in changed:
                    connection.execute(r.update().where(r.c.id == id_).values(command=command))

    @contextmanager
    def at_work(self, progress: Callable[[], Mapping[str, Any]] = dict) -> Iterator[None]:
        """Tell other runs, as long as it lasts, that this one lives; and wait for a server that is away.

        `progress` is asked with each heartbeat, from its thread, for what people who watch are told.
        """
        assert self.run_id is not None
        self._progress = progress
        self.patience_s = SERVER_PATIENCE_S
        try:
            with leases.telling(self.heartbeat):
                yield
        finally:
            self.patience_s = 0.0

    def heartbeat(self) -> None:
        """Tell other runs that this one lives."""
        told = self._progress() or None
        with self.writing() as connection:
            leases.renew(connection, str(self.run_id), progress=told)

    def end_run(self) -> None:
        # What its devices were at is of no use any more, and runs are kept for ever.
        told = {name: value for name, value in self._progress().items() if name != "devices"}
        # Away, held or full: a run that no longer tells that it lives has ended all the same.
        with suppress(StoreError), self.writing() as connection:
            leases.renew(connection, str(self.run_id), ended_at=now(), progress=told or None)

    @repeated
    def living_runs(self) -> set[str]:
        """Ids of the runs that are at work."""
        with self.reading() as connection:
            return leases.living(connection)

    def has_other_living_runs(self) -> bool:
        return bool(self.living_runs() - {self.run_id})

    def refuse_if_alive(self, connection: sa.Connection, run_id: str | None) -> None:
        """Raises Busy where a run that is not this one holds the evaluation and lives."""
        if run_id is None or run_id == self.run_id:
            return
        run = leases.holder(connection, run_id)
        if run is not None:
            raise Busy(f"under way in another run ({run['host']}, process {run['pid']})")
