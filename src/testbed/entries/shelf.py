"""One half of a registry: the models or the eval settings, by name, group and tag."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import EntryError

if TYPE_CHECKING:
    from testbed.metrics.aggregates import Aggregate

Entry = TypeVar("Entry", bound=Model | EvalSetting)


@dataclass
class Shelf(Generic[Entry]):
    """All entries of one kind (models or eval settings), with the file and line of each declaration, and the groups."""

    kind: str
    list_command: str
    entries: dict[str, Entry] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    aggregates: dict[str, Aggregate] = field(default_factory=dict)  # of groups, by name

    def add(self, entry: Entry, origin: str) -> None:
        if entry.name in self.groups:
            raise EntryError(f"{self.kind} '{entry.name}' has the name of a group")
        if entry.name in self.entries:
            raise EntryError(
                f"{self.kind} '{entry.name}' is declared twice: at {self.origins[entry.name]} and at {origin}"
            )
        self.entries[entry.name] = entry
        self.origins[entry.name] = origin

    @property
    def a_kind(self) -> str:
        return f"an {self.kind}" if self.kind[0] in "aeiou" else f"a {self.kind}"

    def tagged(self, tag: str) -> list[str]:
        return [name for name, entry in self.entries.items() if tag in entry.tags]

    def expand(self, token: str, inside: tuple[str, ...] = ()) -> list[str]:
        """The names that a word of the command line means; empty if it is unknown. `inside` are enclosing groups."""
        # The order decides what a word means: an entry's name goes before a group, a glob and a tag.
        if token in self.entries:
            return [token]
        if token in self.groups:
            if token in inside:
                raise EntryError(f"group '{token}' holds itself: {' > '.join((*inside, token))}")
            members = {m: self.expand(m, (*inside, token)) for m in self.groups[token]}
            empty = [m for m, names in members.items() if not names]
            if empty:
                raise EntryError(f"group '{token}' names '{empty[0]}', but there is no such {self.kind}")
            return list(dict.fromkeys(name for names in members.values() for name in names))
        if token == "all":
            return list(self.entries)
        if any(c in token for c in "*?["):
            return fnmatch.filter(self.entries, token)
        return self.tagged(token)

    def all_words(self) -> set[str]:
        tags = {tag for entry in self.entries.values() for tag in entry.tags}
        return {*self.entries, *self.groups, *tags}
