"""Writes docs/reference.md: every argument and flag of every command. Run it after changing a flag or its text.

PYTHONPATH=plotting python tools/make_reference.py

The scripts in plotting/ import each other by bare names, which Python finds when it is told so.
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

from testbed.commands.database import ACTIONS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"
PLOTTING = ROOT / "plotting"
CALL = "PYTHONPATH=plotting python tools/make_reference.py"

# How a command is called -> the module whose `main` answers. The scripts in plotting/ are found by looking.
COMMANDS = {
    "eval.py": "testbed.commands.evaluate",
    "db.py": "testbed.commands.database",
    "autoeval.py": "testbed.commands.autoeval",
    "python -m testbed.explain.clusters": "testbed.explain.clusters",
}

# How click and the help texts end: [default: 4; x>=1], [required], [0<=x<=100].
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
    found = dict(commands())
    links = [f"[`{name}`](#{_anchor(name)})" for name in found]
    parts = [_HEAD, "Commands: " + ", ".join(links) + ".\n"]
    for name, command in found.items():
        parts.append(f"## {name}\n\n{_prose(command)}\n\n{_table(rows(command))}")
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each command under the name it is called by."""
    for name, module in COMMANDS.items():
        yield name, import_module(module).main
    for path in sorted(PLOTTING.glob("[!_]*.py")):
        command = getattr(import_module(path.stem), "main", None)
        if isinstance(command, click.Command):
            yield f"plotting/{path.name}", command


def rows(command: click.Command) -> list[Row]:
    """Arguments first, then flags in the order of --help."""
    context = click.Context(command, show_default=True)
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
    owners = read_by() if command is import_module(COMMANDS["db.py"]).main else {}
    found = [Row(a.human_readable_name, "required" if a.required else "", _naming(command, a)) for a in arguments]
    for option in options:
        flag, text = option.get_help_record(context) or ("", "")
        meaning, default, accepted = _taken_apart(text)
        readers = [f"--{owner}" for owner in owners.get(option.name or "", ())]
        if any(reader not in meaning for reader in readers):
            meaning += f" Read by {', '.join(readers)}."
        found.append(Row(flag, default, f"{meaning} `{accepted}`".strip() if accepted else meaning))
    return found


def without_help(command: click.Command) -> list[str]:
    """Flags whose help does not say what they do: none, or one that tells no more than the default."""
    options = [p for p in command.params if isinstance(p, click.Option)]
    return [option.opts[0] for option in options if not _taken_apart(option.help or "")[0]]


def read_by() -> dict[str, tuple[str, ...]]:
    """Option of db.py that belongs to flags -> those flags. The action that declares it need not be its only reader."""
    names = [name.replace("-", "_") for action in ACTIONS for name, _, _ in action.options]
    return {name: tuple(a.flag for a in ACTIONS if name in _options_read(a.function, set())) for name in names}


def _options_read(function: Callable[..., Any], seen: set[Any]) -> set[str]:
    """Names that a function, or one of the commands' functions that it calls, takes from `context.extra`."""
    seen.add(function)
    source = inspect.getsource(function)
    found = set(re.findall(r'\.extra\["(\w+)"\]', source))
    for name in re.findall(r"(?<![\w.])(\w+)\(", source):
        called = getattr(function, "__globals__", {}).get(name)
        if inspect.isfunction(called) and called.__module__.startswith("testbed.commands") and called not in seen:
            found |= _options_read(called, seen)
    return found


def _taken_apart(text: str) -> tuple[str, str, str]:
    """What a help text says, the default, and which values are accepted."""
    facts = [fact for inner in _BRACKETS.findall(text) for fact in inner.split("; ")]
    defaults = [fact.removeprefix("default: ") for fact in facts if fact.startswith("default: ")]
    default = "required" if "required" in facts else defaults[0].strip('"') if defaults else ""
    accepted = [fact for fact in facts if not fact.startswith("default: ") and fact != "required"]
    return _BRACKETS.sub("", text).strip(), default, ", ".join(accepted)


def _naming(command: click.Command, argument: click.Argument) -> str:
    """click's arguments have no text of their own: the sentence of the command's that names it."""
    sentences = re.split(r"(?<=\.)\s", " ".join(inspect.cleandoc(command.help or "").split()))
    return next((s for s in sentences if re.search(rf"\b{argument.human_readable_name}\b", s)), "")


def _prose(command: click.Command) -> str:
    """The command's help; what click is told not to wrap is an example."""
    blocks = []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if block.startswith("\b"):
            example = inspect.cleandoc(block.removeprefix("\b").strip("\n"))
            blocks.append(f"```\n{example}\n```")
        else:
            blocks.append(_escaped(" ".join(block.split())))
    return "\n\n".join(blocks)


def _table(found: list[Row]) -> str:
    lines = ["| flag | default | what it does |", "|---|---|---|"]
    for row in found:
        flag = row.flag.replace("|", "\\|")
        lines.append(f"| `{flag}` | {_escaped(row.default)} | {_escaped(row.meaning)} |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Nothing but backticks means anything to Markdown."""
    pieces = _CODE.split(text.replace("|", "\\|"))
    return "".join(p if p.startswith("`") else re.sub(r"([*<])", r"\\\1", p) for p in pieces)


def _anchor(title: str) -> str:
    """As GitHub makes it from a title."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    main()
