"""What a flag of db.py is, and what all flags share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.tables import formatted
from testbed.entries.registry import PARTS, Registry, load_registry

if TYPE_CHECKING:
    from testbed.store.database import Store


@dataclass(frozen=True)
class Action:
    """A flag, the values it takes, and the function it calls with the context and those values."""

    flag: str
    function: Callable[..., None]
    help: str
    values: tuple[str, ...] = ()
    options: tuple[tuple[str, str, str], ...] = ()  # further options that only this flag reads: name, metavar, help


@dataclass
class Context:
    """What the flags share; database and registry are opened only by those that need them."""

    db: str | None
    registry_folders: tuple[str, ...]
    pattern: str | None
    style: str
    override: bool
    extra: dict[str, Any] = field(default_factory=dict)  # values of options that belong to one flag

    @cached_property
    def store(self) -> Store:
        from testbed.store.opening import open_store

        return open_store(self.db)

    @cached_property
    def new_store(self) -> Store:
        from testbed.store.opening import open_store

        return open_store(self.db, create=True)

    @cached_property
    def registry(self) -> Registry:
        return self.registry_part(*PARTS)

    def registry_part(self, *parts: str) -> Registry:
        """Only the models or only the eval settings: a list of names should not wait for the other."""
        if "registry" in self.__dict__:
            return self.registry
        entries = load_registry(self.registry_folders, parts)
        for path, error in entries.broken.items():
            click.echo(f"registry: {path} was not loaded: {error}", err=True)
        return entries

    def print(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        click.echo(formatted(rows, columns, self.style))
