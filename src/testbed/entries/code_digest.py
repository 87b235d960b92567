"""A digest of what a function computes: its code, and the values that its code uses.

Entries hold functions, and stored results were made with them as they were. The digest is the same in every process and
wherever the file lies; it changes with the code (not with comments, docstrings, annotations or layout), with default
and closed-over values, and with functions, classes and constants of the user's files that the code names. Code of
packages counts by its name and the package's version. That of the testbed counts by its name alone: its settings raise
their own `version` where their numbers change.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from testbed.data.samples import fingerprint_of

_PLAIN = (type(None), bool, int, float, complex, bytes, range, type(...))
_NOT_COMPUTED = ("ctx", "type_comment", "kind", "annotation", "returns", "type_params")
_DEEPEST = 40
_known: dict[int, tuple[Any, str]] = {}  # by identity; the value is kept, so that no other takes its place


def digest_of(value: Any) -> str:
    """16 hexadecimal digits. Computed once per object: what a function remembers of its calls is no part of it."""
    if id(value) not in _known:
        _known[id(value)] = value, fingerprint_of("\n".join(_Description().of(value)))[:16]
    return _known[id(value)][1]


class _Description:
    """Values as lines of text, in an order that no process changes."""

    def __init__(self) -> None:
        self._seen: dict[int | tuple[str, str], int] = {}  # functions, classes, objects and globals told already
        self._depth = 0

    def of(self, value: Any) -> Iterator[str]:
        self._depth += 1
        if self._depth > _DEEPEST:
            yield "deep"
        else:
            yield from self._of(value)
        self._depth -= 1

    def _of(self, value: Any) -> Iterator[str]:
        if isinstance(value, _PLAIN) and not isinstance(value, Enum):
            yield repr(value)
        elif isinstance(value, str):
            yield repr(os.path.basename(value) if os.path.isabs(value) else value)  # wherever the file lies
        elif isinstance(value, PurePath):
            yield f"path {value.name}"
        elif isinstance(value, Enum):
            yield f"{type(value).__qualname__}.{value.name}"
        elif isinstance(value, tuple | list):
            yield f"{type(value).__name__} {len(value)}"
            for item in value:
                yield from self.of(item)
        elif isinstance(value, set | frozenset):
            yield "set"
            yield from sorted(" ".join(self.of(item)) for item in value)
        elif isinstance(value, Mapping):
            yield "mapping"
            yield from sorted(f"{' '.join(self.of(k))}: {' '.join(self.of(v))}" for k, v in value.items())
        elif isinstance(value, ModuleType):
            yield "module" if _is_users(value.__name__) else f"module {value.__name__}"
        elif type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            yield f"array {value.dtype} {value.shape} {fingerprint_of(value.tobytes())}"
        else:
            yield from self._once(value)

    def _once(self, value: Any) -> Iterator[str]:
        """Functions, classes and objects: told at their first occurrence."""
        if id(value) in self._seen:
            yield f"as number {self._seen[id(value)]}"
            return
        self._seen[id(value)] = len(self._seen)
        if isinstance(value, functools.partial):
            yield "partial"
            for part in (value.func, value.args, value.keywords):
                yield from self.of(part)
        elif isinstance(value, MethodType):
            yield "method"
            yield from self.of(value.__func__)
            yield from self.of(value.__self__)
        elif not isinstance(value, type) and hasattr(value, "__wrapped__"):
            yield "wrapped"  # such as by functools.cache
            yield from self.of(value.__wrapped__)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, BuiltinFunctionType) or not hasattr(value, "__dict__"):
            yield _named(value)
        else:
            yield from self._object(value)

    def _object(self, value: Any) -> Iterator[str]:
        yield "object"
        yield from self.of(type(value))
        if any(base.__module__.startswith("torch") for base in type(value).__mro__):
            return  # weights have checksums of their own
        if is_dataclass(value):
            names = [f.name for f in fields(value)]
        else:
            # What a cached property has kept is no part of it.
            kept = {n for base in type(value).__mro__ for n, v in vars(base).items() if _is_cached(v)}
            names = sorted(set(vars(value)) - kept)
        for name in names:
            yield name
            yield from self.of(getattr(value, name, None))

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield f"function {function.__name__}"
        for values in (function.__defaults__, function.__kwdefaults__):
            if values:
                yield from self.of(values)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield f"closes over {name}"
            try:
                yield from self.of(cell.cell_contents)
            except ValueError:  # not assigned yet
                yield "nothing"
        if not _is_users(function.__module__):
            yield _named(function)
            return
        node = _node_of(function.__code__)
        if node is None:  # typed into a prompt: only the compiled form is left
            yield from _compiled(function.__code__)
            return
        yield from _written(node)
        yield from self._used(node, function.__globals__)

    def _class(self, kind: type) -> Iterator[str]:
        node = _class_node(kind) if _is_users(kind.__module__) else None
        if node is None:
            yield _named(kind)
            return
        yield f"class {kind.__name__}"
        yield from _written(node)
        for base in kind.__bases__:
            if base is not object:
                yield from self.of(base)
        yield from self._used(node, vars(sys.modules[kind.__module__]))

    def _used(self, node: ast.AST, names: Mapping[str, Any]) -> Iterator[str]:
        """What the code takes from its module, and from other files of the user by `module.name`."""
        for name in sorted({n.id for n in _computing(node) if isinstance(n, ast.Name)} & set(names)):
            if not name.startswith("__"):
                yield from self._global(name, names)
        for module, name in sorted(_attributes(node)):
            owner = names.get(module)
            if isinstance(owner, ModuleType) and _is_users(owner.__name__) and hasattr(owner, name):
                yield from self._global(name, vars(owner))

    def _global(self, name: str, names: Mapping[str, Any]) -> Iterator[str]:
        key = (str(names.get("__name__", "")), name)
        if key in self._seen:
            return
        self._seen[key] = len(self._seen)
        yield f"uses {name}"
        value = names[name]
        assigned = _assignments(str(names.get("__file__", ""))).get(name)
        if assigned is None or callable(value) or _is_number(value):
            yield from self.of(value)
        else:
            # As it is written: what a list or an object holds may change while the program runs.
            yield from _written(assigned)
            yield from self._used(assigned, names)


# ---- source ----------------------------------------------------------------------------------------------


def _written(node: Any) -> Iterator[str]:
    """A piece of code without what does not compute: docstrings, annotations, positions."""
    yield type(node).__name__
    for name, value in ast.iter_fields(node):
        if name in _NOT_COMPUTED:
            continue
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST):
                if not _is_text(item):
                    yield name
                    yield from _written(item)
            elif item is not None:
                yield f"{name} {item!r}"


def _computing(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below it, but for annotations."""
    yield node
    for name, value in ast.iter_fields(node):
        if name not in _NOT_COMPUTED:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.AST):
                    yield from _computing(item)


def _is_text(node: ast.AST) -> bool:
    """A docstring, or a string that stands as a comment."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@functools.cache
def _tree(path: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError):
        return None


def _node_of(code: CodeType) -> ast.AST | None:
    """The definition or lambda that a function was compiled from."""
    tree = _tree(code.co_filename)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == code.co_firstlineno:
                return node
        elif isinstance(node, ast.Lambda) and code.co_name == "<lambda>" and _covers(node, code):
            return node
    return None


def _covers(node: ast.Lambda, code: CodeType) -> bool:
    """Whether the code is that of this lambda: there may be several in one line, and one inside another."""
    places = [p for p in code.co_positions() if p[0] is not None and p[2] is not None and p[3] != p[2]]
    body, inside = node.body, [n for n in ast.walk(node.body) if isinstance(n, ast.Lambda)]
    if node.lineno != code.co_firstlineno or not places:
        return False
    if [a.arg for a in node.args.args] != list(code.co_varnames[: code.co_argcount]):
        return False

    def within(outer: ast.expr) -> bool:
        begin, end = (outer.lineno, outer.col_offset), (outer.end_lineno, outer.end_col_offset)
        return all(begin <= (p[0], p[2]) and (p[1], p[3]) <= end for p in places)

    return within(body) and not any(within(n.body) for n in inside)


def _class_node(kind: type) -> ast.AST | None:
    module = sys.modules.get(kind.__module__)
    tree = _tree(getattr(module, "__file__", None) or "")
    matching = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == kind.__name__] if tree else []
    return matching[0] if len(matching) == 1 else None


@functools.cache
def _assignments(path: str) -> dict[str, ast.AST]:
    """The expressions that a file assigns to names at its top level."""
    tree = _tree(path) if path else None
    assigned: dict[str, ast.AST] = {}
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                assigned.update({n.id: node.value for n in ast.walk(target) if isinstance(n, ast.Name)})
    return assigned


def _attributes(node: ast.AST) -> set[tuple[str, str]]:
    """(module, name) of every `module.name`."""
    return {
        (n.value.id, n.attr) for n in _computing(node) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
    }


def _compiled(code: CodeType) -> Iterator[str]:
    yield f"compiled {sys.version_info[:2]} {code.co_code.hex()} {code.co_names} {code.co_varnames}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        else:
            yield repr(sorted(constant) if isinstance(constant, frozenset) else constant)


# ---- whose code ------------------------------------------------------------------------------------------


@functools.cache
def _is_users(module: str | None) -> bool:
    """Whether a module is a file of the user: a registry file, a script, a notebook, a module on PYTHONPATH."""
    if module in (None, "__main__") or str(module).startswith("testbed_plugin_"):
        return True
    if str(module).split(".")[0] in ("testbed", *sys.stdlib_module_names, builtins.__name__):
        return False
    path = getattr(sys.modules.get(str(module)), "__file__", None)
    packages = {sysconfig.get_paths()[name] for name in ("purelib", "platlib", "stdlib")}
    return path is not None and not any(path.startswith(place) for place in packages)


def _named(value: Any) -> str:
    """Qualified name of something in a package, with the version of the package."""
    kind = value if hasattr(value, "__qualname__") else type(value)
    package = (kind.__module__ or builtins.__name__).split(".")[0]
    return f"{kind.__module__}.{kind.__qualname__} {_version(package)}"


@functools.cache
def _version(package: str) -> str:
    if package == "testbed" or package in sys.stdlib_module_names:
        return ""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _is_cached(value: Any) -> bool:
    return isinstance(value, functools.cached_property)


def _is_number(value: Any) -> bool:
    """Numbers, and arrays and tuples of them, which code cannot change in place or rarely does."""
    if isinstance(value, tuple):
        return all(map(_is_number, value))
    return isinstance(value, int | float | complex) or type(value).__module__ == "numpy"


def is_function(value: Any) -> bool:
    """Whether a field of an entry computes something."""
    return value is not None and (callable(value) or is_dataclass(value)) and not inspect.ismodule(value)
