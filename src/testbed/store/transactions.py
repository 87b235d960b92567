"""Short transactions on a results database, and waiting for a server that is away or a file that is held."""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from testbed.errors import StoreError
from testbed.store.masking import masked

_PAUSE_S = 0.5
# What PostgreSQL calls errors that another try of the whole transaction mends: shutting down, crashed, starting up,
# idle for too long, serialization failure, deadlock, and a time limit for locks or statements that the server was set
# to, under which a write may run out of time while others have their turn. Errors of connections begin with 08.
_PASSING = frozenset(("57P01", "57P02", "57P03", "25P03", "40001", "40P01", "55P03", "57014"))


class ServerAway(StoreError):
    """The database was lost or held by others in the middle of a transaction, which may be tried again."""


class Database:
    """Transactions on one database."""

    def __init__(self, engine: sa.Engine, where: str, read_only: bool = False) -> None:
        self.engine = engine
        self.where = where
        self.read_only = read_only
        self.patience_s = 0.0  # how long to wait for a database that is away or held
        self.tell: Callable[[str], None] = lambda text: None  # told when it waits

    @property
    def on_server(self) -> bool:
        """Whether many machines may write to it at once; a database in a file is for those of one machine."""
        return self.engine.dialect.name != "sqlite"

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        try:
            with self.engine.connect() as connection:
                yield connection
        except sa.exc.DatabaseError as error:  # a damaged file, a server that is gone
            raise self._as_store_error(error, "cannot be read") from error

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        if self.read_only:
            raise StoreError(
                f"{self.where} is read-only: expected a file and a folder that you may write; copy the folder, or name "
                "another database with --db"
            )
        try:
            with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
                yield connection
        except (sa.exc.OperationalError, sa.exc.InternalError, sa.exc.ProgrammingError, sa.exc.DataError) as error:
            # Locked, full, without the right to write, a text that it does not take.
            raise self._as_store_error(error, "cannot be written") from error

    def _as_store_error(self, error: sa.exc.DatabaseError, what: str) -> StoreError:
        kind = ServerAway if is_passing(error, self.engine.dialect.name) else StoreError
        return kind(f"{self.where} {what}: {reason(error)}")


def is_passing(error: sa.exc.DBAPIError, dialect: str) -> bool:
    """Whether the database is held by others or lost, and another try of the same transaction may get through."""
    if dialect == "sqlite":  # somebody has held the file for longer than it waits by itself
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # no answer: refused, or closed in the middle
        return error.connection_invalidated or isinstance(error, sa.exc.OperationalError)
    return error.connection_invalidated or state in _PASSING or state.startswith("08")


_D = TypeVar("_D", bound=Database)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def repeated(transaction: Callable[Concatenate[_D, _P], _T]) -> Callable[Concatenate[_D, _P], _T]:
    """A transaction that is tried again while the database is away or held, as long as there is patience.

    It must do the same when it is repeated: whether a commit got through before its server went is not known.
    """

    @functools.wraps(transaction)
    def patient(database: _D, *args: _P.args, **named: _P.kwargs) -> _T:
        began: float | None = None
        while True:
            try:
                return transaction(database, *args, **named)
            except ServerAway as away:
                if began is None:
                    began = time.monotonic()
                    if database.patience_s:
                        what = "database" if database.engine.dialect.name == "sqlite" else "server"
                        database.tell(f"{away}; waiting for the {what}, at most {database.patience_s:.0f} s")
                if time.monotonic() - began >= database.patience_s:
                    raise
            time.sleep(_PAUSE_S)

    return patient


def reason(error: Exception) -> str:
    """What the driver says, in one line, without SQLAlchemy's own additions and without a password."""
    return masked(" ".join(str(getattr(error, "orig", None) or error).split()))
