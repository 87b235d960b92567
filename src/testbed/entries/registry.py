"""The registry: entries from plug-in folders, looked up by name, glob, group or tag.

A registry folder holds models/*.py and eval_settings/*.py. Each file is loaded by path and calls
`registry.add_model(...)`, `registry.add_eval_setting(...)` or `registry.add_group(...)`. A file that fails is listed
in `Registry.broken` with its error; all other files are still loaded. Files that are written for the ImageNet Testbed
are loaded after the others of their folder (testbed.foreign); a name of theirs that is taken is left out and told.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from testbed.data.regular import regular
from testbed.entries import other_input
from testbed.entries.checks import check_name
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.mistaken import path_as_setting, weights_as_model
from testbed.entries.model import Model
from testbed.entries.plugin_files import (
    PARTS,
    default_folder,
    meant_folder,
    mentions,
    misplaced_files,
    one_line,
    own_folder,
    plug_in_files,
    why_unavailable,
)
from testbed.entries.shelf import Entry, Shelf
from testbed.errors import EntryError, UnknownName, near_names

if TYPE_CHECKING:
    from testbed.metrics.aggregates import Aggregate

REGISTRY_VARIABLE = "TESTBED_REGISTRY"
ENTRY_POINT_GROUP = "testbed.registry"


class Registry:
    """The entries of one or more registry folders."""

    def __init__(self) -> None:
        self.models: Shelf[Model] = Shelf("model", "--list-models-registry")
        self.eval_settings: Shelf[EvalSetting] = Shelf("eval setting", "--list-eval-settings-registry")
        self.broken: dict[Path, str] = {}
        self.left_out: dict[Path, list[str]] = {}  # folder -> names of foreign entries that were taken already
        self._foreign_names: set[str] = set()
        self._foreign_folder: Path | None = None  # of the foreign file that is being loaded

    def copy(self) -> Registry:
        """A registry of its own with the same entries."""
        copy = Registry()
        for mine, theirs in ((copy.models, self.models), (copy.eval_settings, self.eval_settings)):
            for label in ("entries", "origins", "groups", "aggregates"):
                getattr(mine, label).update(getattr(theirs, label))
        copy.broken = dict(self.broken)
        copy.left_out = {folder: list(names) for folder, names in self.left_out.items()}
        copy._foreign_names = set(self._foreign_names)
        return copy

    def load_folder(self, folder: Path, parts: Sequence[str] = PARTS) -> None:
        if not folder.is_dir():
            what = "is a file, expected a folder" if folder.exists() else "does not exist"
            raise UnknownName(f"registry folder {folder} {what}")
        if (meant := meant_folder(folder)) is not None:
            raise UnknownName(
                f"registry folder {folder}: expected a folder with models/ or eval_settings/; take {meant}"
            )
        self.broken |= misplaced_files(folder)
        foreign: list[Path] = []
        for part in parts:
            own, others = plug_in_files(folder / part)
            foreign += others
            for path in own:
                self.load_file(path)
        if foreign:
            self._load_foreign(folder, foreign)

    def _load_foreign(self, folder: Path, paths: Sequence[Path]) -> None:
        from testbed.foreign.imports import ForeignFolder

        self._foreign_folder = folder
        modules = ForeignFolder(folder)
        for path in paths:
            self.load_file(path, modules.run)
        self._foreign_folder = None

    def load_file(self, path: Path, run: Callable[[Path], object] | None = None) -> None:
        """Run one plug-in file. If it fails, the entries that it had added before are removed again."""
        shelves: tuple[Shelf[Any], ...] = (self.models, self.eval_settings)
        before = [(dict(s.entries), dict(s.origins), dict(s.groups), dict(s.aggregates)) for s in shelves]
        try:
            with _loading_into(self):
                (run or load_module)(path)
        except (Exception, SystemExit) as error:  # anybody's code: whatever it raises must not stop the other files
            for shelf, kept in zip(shelves, before, strict=True):
                shelf.entries, shelf.origins, shelf.groups, shelf.aggregates = kept
            self.broken[path] = one_line(error, path)

    def add(self, shelf: Shelf[Entry], entry: Entry, origin: str) -> None:
        """Add what a plug-in file declares. A foreign file does not take a registered name: it is left out."""
        if self._foreign_folder is not None:
            if entry.name in shelf.entries and entry.name not in self._foreign_names:
                self.left_out.setdefault(self._foreign_folder, []).append(entry.name)
                return
            self._foreign_names.add(entry.name)
        shelf.add(entry, origin)

    def problems(self) -> list[str]:
        """What was not loaded and why, a line each."""
        told = [f"{path} was not loaded: {error}" for path, error in self.broken.items()]
        for folder, names in self.left_out.items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            told.append(
                f"{folder}: '{names[0]}'{more} left out, since the name is registered: that entry is used; "
                "give yours another name to add it"
            )
        return told

    def model(self, name: str) -> Model:
        """The entry of that name, or one built from a string such as `timm:resnet50.tv_in1k` or `resnet50@crop=192`."""
        from testbed.models import strings as model_strings

        base, words = other_input.split(name) if name not in self.models.entries else (name, "")
        if words:
            return other_input.prepared(self.model(base), words)
        if name not in self.models.entries and model_strings.is_model_string(name):
            return model_strings.resolve(name, self)
        return self._get(self.models, name)

    def eval_setting(self, name: str) -> EvalSetting:
        """The entry of that name, or one built from a string such as `folder:PATH`."""
        from testbed.entries import setting_strings

        if name not in self.eval_settings.entries and setting_strings.is_setting_string(name):
            return setting_strings.resolve(name, self)
        return self._get(self.eval_settings, name)

    def runnable(self, name: str) -> EvalSetting:
        """The setting with all that it inherits from the settings it is taken from: it has a dataset and can be run."""
        setting = self.eval_setting(name)
        if setting.taken_from is None:
            return setting
        return setting.over(self.runnable(setting.taken_from))

    def expand_models(self, tokens: Iterable[str]) -> list[str]:
        from testbed.models import strings as model_strings

        names: list[str] = []
        for token in tokens:
            base, words = other_input.split(token) if token not in self.models.entries else (token, "")
            if words:
                names += [other_input.named(name, words) for name in self.expand_models([base])]
            elif token not in self.models.entries and model_strings.is_model_string(token):
                names += model_strings.expand(token, self)
            else:
                names += self._expand(self.models, token)
        return list(dict.fromkeys(names))

    def expand_eval_settings(self, tokens: Iterable[str]) -> list[str]:
        from testbed.entries import setting_strings

        names: list[str] = []
        for token in tokens:
            if token not in self.eval_settings.entries and setting_strings.is_setting_string(token):
                names += setting_strings.expand(token, self)
            else:
                names += self._expand(self.eval_settings, token)
        return list(dict.fromkeys(names))

    def group(self, name: str) -> tuple[list[str], Aggregate | None]:
        """The settings that a group, or a string for several settings, stands for, and what is computed of them all."""
        from testbed.entries import setting_strings

        shelf = self.eval_settings
        if name in shelf.groups:
            return shelf.expand(name), shelf.aggregates.get(name)
        if name not in shelf.entries and setting_strings.is_setting_string(name):
            return setting_strings.expand(name, self), setting_strings.aggregate(name, self)
        raise UnknownName(f"no group '{name}'{near_names(name, shelf.groups)}")

    def _get(self, shelf: Shelf[Entry], name: str) -> Entry:
        if name not in shelf.entries:
            raise self._unknown(shelf, name)
        return shelf.entries[name]

    def _expand(self, shelf: Shelf[Entry], token: str) -> list[str]:
        names = shelf.expand(token)
        if not names:
            raise self._unknown(shelf, token)
        return names

    def _is_string(self, shelf: Shelf[Any], name: str) -> bool:
        """Whether the name is a string that stands for an entry of the shelf, such as `timm:resnet50`."""
        from testbed.entries import setting_strings
        from testbed.models import strings as model_strings

        return (model_strings.is_model_string if shelf is self.models else setting_strings.is_setting_string)(name)

    def _unknown(self, shelf: Shelf[Any], name: str) -> UnknownName:
        """The error for a name without an entry, with the likeliest reason: a broken file, a group, a misspelling."""
        for path, error in self.broken.items():
            if mentions(path, name):
                return UnknownName(f"{shelf.kind} '{name}' is in {path}, which could not be loaded: {error}")
        others = self.eval_settings if shelf is self.models else self.models
        # A tag of the other kind may be a word of both: only what names entries there is taken for a mistake.
        if name in others.entries or name in others.groups or self._is_string(others, name):
            return UnknownName(f"'{name}' is {others.a_kind}, expected {shelf.a_kind}: are the two swapped?")
        reason = (why_unavailable(name) or weights_as_model(name)) if shelf is self.models else path_as_setting(name)
        if reason:
            return UnknownName(reason)
        if members := shelf.expand(name):
            return UnknownName(
                f"'{name}' stands for {len(members)} of them, expected one {shelf.kind}: {members[0]}, ..."
            )
        near = near_names(name, shelf.all_words()) or f"; `python db.py {shelf.list_command}` lists them"
        broken = f" ({len(self.broken)} registry file(s) could not be loaded)" if self.broken else ""
        return UnknownName(f"no {shelf.kind}, group or tag '{name}'{near}{broken}")


# ---- what plug-in files call -----------------------------------------------------------------------------

# Plug-in files call plain functions, so the registry that is being loaded is kept here.
_current: ContextVar[Registry | None] = ContextVar("registry being loaded", default=None)


@contextmanager
def _loading_into(registry: Registry) -> Iterator[None]:
    token = _current.set(registry)
    try:
        yield
    finally:
        _current.reset(token)


def being_loaded() -> Registry:
    """The registry that the running plug-in file adds to."""
    registry = _current.get()
    if registry is None:
        raise EntryError(
            "entries are added by files in a registry folder; from Python, pass the Model or EvalSetting "
            "to testbed.evaluate(...)"
        )
    return registry


def _caller() -> str:
    """File and line of the plug-in file: two frames up, above this function and `add_model` or its like."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def add_model(model: Model) -> None:
    registry = being_loaded()
    registry.add(registry.models, model, _caller())


def add_eval_setting(setting: EvalSetting) -> None:
    registry = being_loaded()
    registry.add(registry.eval_settings, setting, _caller())


def add_group(
    name: str,
    members: Sequence[str],
    kind: str = "eval_settings",
    aggregate: Aggregate | None = None,
) -> None:
    """Give several entries one name. `members` are names, globs, tags or other groups.

    `aggregate` computes numbers for the whole group from the stored results of a model (testbed.metrics.aggregates);
    `db.py --print-group` prints them.
    """
    if kind not in PARTS:
        raise EntryError(f"group '{name}': kind must be models or eval_settings, got {kind!r}")
    check_name("group", name)
    registry = being_loaded()
    shelf: Shelf[Any] = registry.models if kind == "models" else registry.eval_settings
    if name in shelf.groups or name in shelf.entries:
        raise EntryError(f"group '{name}': the name is taken")
    if aggregate is not None and (kind != "eval_settings" or not callable(aggregate)):
        raise EntryError(f"group '{name}': aggregate must be a function, and the group one of eval settings")
    shelf.groups[name] = tuple(members)
    if aggregate is not None:
        shelf.aggregates[name] = aggregate


def load_module(path: str | os.PathLike[str]) -> ModuleType:
    """Load a Python file as a module, by its path. Plug-in files load their `_helper.py` with it."""
    path = regular(path)
    # The checksum keeps files of the same name in two registry folders apart.
    name = f"testbed_plugin_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


def metadata(origin: str, name: str) -> Any:
    """The JSON file `metadata/<name>` of the registry folder that holds the plug-in file `origin`."""
    path = Path(origin).resolve().parents[1] / "metadata" / name
    return json.loads(regular(path).read_text(encoding="utf-8"))


# ---- which folders ---------------------------------------------------------------------------------------


def registry_folders(extra: Sequence[str] = ()) -> list[Path]:
    """The program's, the user's own, those of TESTBED_REGISTRY (separated like PATH), those of --registry."""
    named = os.environ.get(REGISTRY_VARIABLE, "").split(os.pathsep)
    paths = [default_folder(), own_folder(), *(Path(p) for p in (*named, *extra) if p)]
    return list(dict.fromkeys(p.resolve() for p in paths if p is not None))


_kept: dict[Path, tuple[object, Registry]] = {}  # folder -> what its files were like, and their entries


def keep_default_entries() -> None:
    """Load the program's own folder now, for all processes that are forked from this one."""
    folder = default_folder().resolve()
    stamp, registry = _stamp_of(folder), Registry()
    registry.load_folder(folder)
    _kept[folder] = stamp, registry


def _stamp_of(folder: Path) -> object:
    """Names, sizes and times of all files: whoever edits one between two runs in a notebook sees the change."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.parent.name != "__pycache__")
    return sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files)


def load_registry(extra: Sequence[str] = (), parts: Sequence[str] = PARTS) -> Registry:
    """The entries of all registry folders, or of some `parts`, then those of installed packages.

    A package offers entries by an entry point of the group `testbed.registry`.
    """
    from importlib.metadata import entry_points

    registry, (first, *others) = Registry(), registry_folders(extra)
    if parts == PARTS and first in _kept and _kept[first][0] == _stamp_of(first):
        registry = _kept[first][1].copy()
    else:
        registry.load_folder(first, parts)
    for folder in others:
        registry.load_folder(folder, parts)
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            with _loading_into(registry):
                offered = point.load()
                if callable(offered):
                    offered()
        except (Exception, SystemExit) as error:
            registry.broken[Path(point.value)] = " ".join(f"{type(error).__name__}: {error}".split())
    return registry
