"""Writes docs/reference.md: every argument and flag of every command. Run it after changing a flag or its text.

PYTHONPATH=plotting python tools/make_reference.py

The scripts in plotting/ import each other by bare names, so plotting/ must be on the import path.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

from testbed.commands import console, figures
from testbed.commands.action import PURPOSES
from testbed.commands.database import ACTIONS, DatabaseCommand

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"
PLOTTING = ROOT / "plotting"
CALL = "PYTHONPATH=plotting python tools/make_reference.py"

# Command -> the module with its `main`. The scripts in plotting/ are not listed: they are found by their file names.
COMMANDS = {
    "testbed": "testbed.commands.console",
    "testbed demo": "testbed.commands.demo",
    "testbed plot": "testbed.commands.figures",
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
command has `--help`, which shows the same texts. `testbed eval`, `testbed db` and `testbed plot scatter` are `eval.py`,
`db.py` and `plotting/scatter.py` with the same flags.

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
        parts.append(f"## {name}\n\n{_prose(command)}\n")
        if isinstance(command, DatabaseCommand):
            parts += [f"### {title}\n\n{_table(part)}" for title, part in database_rows(command).items()]
            parts.append(_sub_commands())
        elif table := [*rows(command), *_named_commands(command)]:
            parts.append(_table(table))
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
    table = [Row(a.human_readable_name, "required" if a.required else "", _naming(command, a)) for a in arguments]
    return table + [_row(option, context) for option in options]


def _row(option: click.Option, context: click.Context) -> Row:
    flag, text = option.get_help_record(context) or ("", "")
    meaning, default, accepted = _taken_apart(text)
    return Row(flag, default, f"{meaning} `{accepted}`".strip() if accepted else meaning)


def database_rows(command: click.Command) -> dict[str, list[Row]]:
    """The tables of db.py: its flags by what people want, each with its own options, and the options of several."""
    context = click.Context(command, show_default=True)
    options = {p.opts[0].removeprefix("--"): p for p in command.params if isinstance(p, click.Option)}
    tables: dict[str, list[Row]] = {}
    for purpose in PURPOSES:
        tables[purpose] = []
        for action in (a for a in ACTIONS if a.purpose == purpose):
            tables[purpose].append(_row(options.pop(action.flag), context))
            for name, _, _ in action.options:
                own = _row(options.pop(name), context)
                tables[purpose].append(Row(own.flag, own.default, f"{own.meaning} For --{action.flag}."))
    # What no action has declared as its own is left.
    return tables | {"Options of several flags": [_row(option, context) for option in options.values()]}


def _sub_commands() -> str:
    other = [f"`--{a.flag}` is `{a.command}`" for a in ACTIONS if a.command != a.flag]
    return (
        "### As sub-commands\n\n"
        "`python db.py show MODEL SETTING`, or `testbed db show MODEL SETTING`: every flag of the first "
        "five tables is also a sub-command, whose `--help` has only the options that it reads. It is called like "
        f"the flag; only {', '.join(other)}.\n"
    )


def _named_commands(command: click.Command) -> list[Row]:
    """The sub-commands of `testbed` and `testbed plot`."""
    if command is console.main:
        return [Row(name, "", text) for name, (_, text) in console.COMMANDS.items()]
    return [Row(name, "", figures.opening(name)) for name in figures.scripts()] if command is figures.main else []


def without_help(command: click.Command) -> list[str]:
    """Flags whose help text is empty or has nothing but the default."""
    options = [p for p in command.params if isinstance(p, click.Option)]
    return [option.opts[0] for option in options if not _taken_apart(option.help or "")[0]]


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
