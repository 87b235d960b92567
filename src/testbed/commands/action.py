"""A flag of db.py, and the context that every flag's function receives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.options import say
from testbed.commands.tables import formatted
from testbed.entries.registry import PARTS, Registry, load_registry

if TYPE_CHECKING:
    from testbed.store.database import Store

# Name without dashes; metavar, ending in ... where it takes several words, empty where it takes none; help.
Option = tuple[str, str, str]
# What people want of db.py, in the order of its help.
LOOK, COMPARE, BRING_IN, TAKE_OUT, LOOK_AFTER = "Look", "Compare", "Bring in", "Take out", "Look after"
PURPOSES = (LOOK, COMPARE, BRING_IN, TAKE_OUT, LOOK_AFTER)


@dataclass(frozen=True)
class Action:
    """A flag of db.py, which is also a sub-command, and the function behind it.

    The function is called with the context, with the flag's values if it takes any, and with the flag's own options as
    keyword arguments. Options that several flags read are fields of Context, declared in testbed.commands.database;
    `reads` names those fields, beside the database and the registry, which every flag may open; `refuses` has those
    that it cannot follow for a reason of its own, and the reason.
    """

    flag: str
    function: Callable[..., None]
    help: str
    values: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    purpose: str = field(kw_only=True)
    reads: tuple[str, ...] = field(default=(), kw_only=True)
    refuses: dict[str, str] = field(default_factory=dict, kw_only=True)
    as_command: str = field(default="", kw_only=True)  # the sub-command, where it is not called like the flag

    @property
    def command(self) -> str:
        return self.as_command or self.flag


@dataclass(kw_only=True)
class Context:
    """The options that several flags read, and the database and registry, which are opened at first use."""

    db: str | None = None
    registry_folders: tuple[str, ...] = ()
    pattern: str | None = None
    style: str = "table"
    override: bool = False
    # Which stored results are meant; None leaves the choice to testbed.store.find.
    variant: str | None = None
    version: int | None = None
    source: str | None = None
    data_root: tuple[str, ...] = ()
    setting: str | None = None
    aggregation: str | None = None
    models: tuple[str, ...] = ()
    checkpoint_dir: str | None = None

    @cached_property
    def store(self) -> Store:
        return self._opened(create=False)

    @cached_property
    def new_store(self) -> Store:
        """The database, created where there is none: only for flags that write."""
        return self._opened(create=True)

    def _opened(self, create: bool) -> Store:
        from testbed.store.opening import open_store

        store = open_store(self.db, create)
        store.tell = partial(say, err=True)  # when it waits for a server or for object storage
        return store

    @cached_property
    def registry(self) -> Registry:
        return self.registry_part(*PARTS)

    def registry_part(self, *parts: str) -> Registry:
        """The registry with only its models or only its eval settings: a list of names need not load both."""
        # The instance dictionary is asked, since `self.registry` would load the whole registry.
        if "registry" in self.__dict__:
            return self.registry
        entries = load_registry(self.registry_folders, parts)
        for line in entries.problems():
            say(f"registry: {line}", err=True)
        return entries

    def print(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        """Rows in the style of --format."""
        click.echo(formatted(rows, columns, self.style))
