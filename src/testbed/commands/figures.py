"""The scripts of plotting/ as sub-commands: `testbed plot scatter`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import click

from testbed.commands.options import CONTEXT_SETTINGS, NamedCommands
from testbed.data.locate import home


class BesideEachOther:
    """Lets scripts of plotting/ import each other by bare names, as they can when Python runs one of them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(home("plotting"))]) if path is None else None


@cache
def _findable() -> None:
    # In front, as the folder of a script is: a package that is called `table` must not take the place of ours.
    sys.meta_path.insert(0, BesideEachOther())


def figure(name: str) -> click.Command | None:
    """The command of a script, by its name without .py; None where there is no such script."""
    if name not in scripts():
        return None
    _findable()
    return import_module(name).main


def scripts() -> list[str]:
    return [path.stem for path in sorted(home("plotting").glob("[!_]*.py"))]


def opening(name: str) -> str:
    """The first line of a script, read without running it: matplotlib is slow to import."""
    text = (home("plotting") / f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]


class Figures(NamedCommands):
    """Loads a script when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return scripts()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return figure(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Figures, each with --help"):
            formatter.write_dl([(name, opening(name)) for name in scripts()])


@click.command(cls=Figures, context_settings=CONTEXT_SETTINGS, subcommand_metavar="FIGURE ...")
def main() -> None:
    """Draw figures and tables of stored results. No model is run.

    \b
        testbed plot scatter --x digits --y 'digits.*' --names
    """
