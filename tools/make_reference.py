"""Writes docs/reference.md: every argument and flag of every command. Run it after changing a flag or its text.

PYTHONPATH=plotting python tools/make_reference.py

The scripts in plotting/ import each other by bare names, so plotting/ must be on the import path.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from testbed.commands.database import ACTIONS, SHARED_OPTIONS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"
PLOTTING = ROOT / "plotting"
CALL = "PYTHONPATH=plotting python tools/make_reference.py"

# Command -> the module with its `main`. The scripts in plotting/ are not listed: they are found by their file names.
COMMANDS = {
    "eval.py": "testbed.commands.evaluate",
    "db.py": "testbed.commands.database",
    "autoeval.py": "testbed.commands.autoeval",
    "python -m testbed.explain.clusters": "testbed.explain.clusters",
    "python -m testbed.explain.convert_heatmaps": "testbed.explain.convert_heatmaps",
}

# What click or a help text puts at its end: [default: 4; x>=1], [required], [0<=x<=100].
_BRACKETS = re.compile(r"\s*\[((?:default: |required|[^\][]*<|x>)[^\]]*)\]")
_CODE = re.compile(r"(`[^`]*`)")

_HEAD = """# Reference

Made by `PYTHONPATH=plotting python tools/make_reference.py` from the commands; a test keeps it up to date. Every
command has `--help`, which shows the same texts.

A value that ends in `...` is one or more words: everything up to the next flag. `[a|b]` is one of these words, and
`[URL]` may be left out. A flag without a value is off unless it is given. `x>=1` and the like are the numbers that are
accepted. Environment variables such as `$TESTBED_DB` are in [environment.md](environment.md).
"""


@dataclass(frozen=True)
class Row:
    """A line of a table: an argument or a flag."""

    flag: str
    default: str
    meaning: str


def main() -> None:
    if find_spec("_options") is None:
        raise SystemExit(f"the scripts in plotting/ cannot be imported: run {CALL}")
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


def page() -> str:
    """The whole page."""
    by_name = dict(commands())
    links = [f"[`{name}`](#{_anchor(name)})" for name in by_name]
    parts = [_HEAD, "Commands: " + ", ".join(links) + ".\n"]
    for name, command in by_name.items():
        parts.append(f"## {name}\n\n{_prose(command)}\n\n{_table(rows(command))}")
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each command under the name it is called by."""
    for name, module in COMMANDS.items():
        yield name, import_module(module).main
    for path in sorted(PLOTTING.glob("[!_]*.py")):
        command = getattr(import_module(path.stem), "main", None)
        if isinstance(command, click.Command):  # some scripts are modules without a command
            yield f"plotting/{path.name}", command


def rows(command: click.Command) -> list[Row]:
    """The table of a command: arguments first, then flags in the order of --help."""
    # show_default makes click write the default of every flag into its help record.
    context = click.Context(command, show_default=True)
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    readers_of = read_by() if command is import_module(COMMANDS["db.py"]).main else {}
    table = [Row(a.human_readable_name, "required" if a.required else "", _naming(command, a)) for a in arguments]
    for option in options:
        flag, text = option.get_help_record(context) or ("", "")
        meaning, default, accepted = _taken_apart(text)
        readers = [f"--{reader}" for reader in readers_of.get(option.name or "", ())]
        # A help text that names all its flags needs no list of them.
        if any(reader not in meaning for reader in readers):
            meaning += f" Read by {', '.join(readers)}."
        table.append(Row(flag, default, f"{meaning} `{accepted}`".strip() if accepted else meaning))
    return table


def without_help(command: click.Command) -> list[str]:
    """Flags whose help text is empty or has nothing but the default."""
    options = [p for p in command.params if isinstance(p, click.Option)]
    return [option.opts[0] for option in options if not _taken_apart(option.help or "")[0]]


def read_by() -> dict[str, tuple[str, ...]]:
    """Option of db.py -> the flags that read it: the one that declares it, or for a shared option several."""
    own = {_parameter(name): (action.flag,) for action in ACTIONS for name, _, _ in action.options}
    shared = [_parameter(name) for name, _, _ in SHARED_OPTIONS]
    return own | {n: tuple(a.flag for a in ACTIONS if n in _context_fields(a.function, set())) for n in shared}


def _parameter(name: str) -> str:
    """The keyword of an option in Python: data_root for --data-root."""
    return name.replace("-", "_")


def _context_fields(function: Callable[..., Any], seen: set[Any]) -> set[str]:
    """The fields of `context` that a function reads, itself or in another function of testbed.commands it calls.

    Read from the source text, so it depends on every function calling its Context `context`.
    """
    seen.add(function)
    source = inspect.getsource(function)
    fields = set(re.findall(r"\bcontext\.(\w+)", source))
    for name in re.findall(r"(?<![\w.])(\w+)\(", source):
        called = getattr(function, "__globals__", {}).get(name)
        if inspect.isfunction(called) and called.__module__.startswith("testbed.commands") and called not in seen:
            fields |= _context_fields(called, seen)
    return fields


def _taken_apart(text: str) -> tuple[str, str, str]:
    """A help text in three parts: the meaning, the default, the range of accepted values."""
    facts = [fact for inner in _BRACKETS.findall(text) for fact in inner.split("; ")]
    defaults = [fact.removeprefix("default: ") for fact in facts if fact.startswith("default: ")]
    default = "required" if "required" in facts else defaults[0].strip('"') if defaults else ""
    accepted = [fact for fact in facts if not fact.startswith("default: ") and fact != "required"]
    return _BRACKETS.sub("", text).strip(), default, ", ".join(accepted)


def _naming(command: click.Command, argument: click.Argument) -> str:
    """The sentence of the command's help that names the argument: click's arguments have no help of their own."""
    sentences = re.split(r"(?<=\.)\s", " ".join(inspect.cleandoc(command.help or "").split()))
    return next((s for s in sentences if re.search(rf"\b{argument.human_readable_name}\b", s)), "")


def _prose(command: click.Command) -> str:
    """The command's help as Markdown. A block after \\b, which click does not wrap, is an example."""
    blocks = []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if block.startswith("\b"):
            example = inspect.cleandoc(block.removeprefix("\b").strip("\n"))
            blocks.append(f"```\n{example}\n```")
        else:
            blocks.append(_escaped(" ".join(block.split())))
    return "\n\n".join(blocks)


def _table(rows_of_command: list[Row]) -> str:
    lines = ["| flag | default | what it does |", "|---|---|---|"]
    for row in rows_of_command:
        flag = row.flag.replace("|", "\\|")
        lines.append(f"| `{flag}` | {_escaped(row.default)} | {_escaped(row.meaning)} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Text for a Markdown table: only what stands in backticks keeps a special meaning."""
    pieces = _CODE.split(text.replace("|", "\\|"))
    return "".join(p if p.startswith("`") else re.sub(r"([*<])", r"\\\1", p) for p in pieces)


def _anchor(title: str) -> str:
    """The link target that GitHub makes from a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    main()
