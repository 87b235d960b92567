"""Click parts that the scripts share: options with several values, errors as one line, --db and --registry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import click

from testbed.errors import TestbedError, near_names
from testbed.options import AUTO

CONSOLE = "testbed.console"  # in the meta dictionary of click's context: `testbed` was called, not a script
CONTEXT_SETTINGS: dict[str, Any] = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
_SCRIPT = re.compile(r"(?:python )?(?<![\w/.-])(?:plotting/(\w+)|(eval|db|autoeval))\.py\b")


class ManyValues(click.Option):
    """An option that takes every following word up to the next option: --models A B C."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs["multiple"] = True
        super().__init__(*args, **kwargs)


def as_called(text: str) -> str:
    """Text that names the scripts of a clone, with `testbed db` for `python db.py` where that is what was typed."""
    context = click.get_current_context(silent=True)
    if context is None or not context.meta.get(CONSOLE):
        return text
    return _SCRIPT.sub(lambda script: f"testbed plot {script[1]}" if script[1] else f"testbed {script[2]}", text)


class _Formatter(click.HelpFormatter):
    """Writes help texts as_called, before lines are broken."""

    def write_text(self, text: str) -> None:
        super().write_text(as_called(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], *args: Any, **kwargs: Any) -> None:
        super().write_dl([(term, as_called(text)) for term, text in rows], *args, **kwargs)


class _Context(click.Context):
    formatter_class = _Formatter


class _TakesManyValues(click.Command):
    """Parses ManyValues options: `--models A B` becomes `--models A --models B`, which click understands."""

    context_class = _Context

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        many = {name for p in self.params if isinstance(p, ManyValues) for name in p.opts}
        spread: list[str] = []
        current: str | None = None
        for word, following in zip(args, [*args[1:], "--"], strict=False):
            if word in many:
                current = word
                # Only values are passed on to click, so an option without any would vanish silently.
                if following.startswith("--"):
                    raise click.UsageError(f"{word} needs at least one value", ctx)
                continue
            if word.startswith("--"):
                current = None
            elif current is not None:
                spread.append(current)
            spread.append(word)
        return super().parse_args(ctx, spread)


class ManyValuesCommand(_TakesManyValues):
    """A command with ManyValues options."""


class NamedCommands(click.Group):
    """A command with sub-commands, which answers a wrong name with near ones."""

    context_class = _Context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = near_names(name, self.list_commands(ctx)) or f"; {ctx.command_path} --help lists them"
            ctx.fail(f"no sub-command '{name}'{near}")
        return super().resolve_command(ctx, args)


class ManyValuesGroup(_TakesManyValues, NamedCommands):
    """A command with ManyValues options, and with sub-commands. The values of these are spread twice, to no effect."""


class NumberOrAuto(click.IntRange):
    """A whole number from 1 on, or the word `auto`."""

    name = "number"

    def __init__(self) -> None:
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == AUTO:
            return value
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"expected a whole number from 1 on, or {AUTO}, got '{value}'", param, ctx)


def one_line_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a command: a TestbedError, which the user can fix, is printed as one line without a traceback."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TestbedError as error:
            # What a library says of a file may have several lines.
            raise click.ClickException(as_called(" ".join(str(error).splitlines()))) from error

    return wrapped


db_option = click.option(
    "--db",
    metavar="[URL]",
    # `--db` may stand alone, as in the ImageNet Testbed, where it has no value: it then means the default.
    is_flag=False,
    flag_value="",
    help="Results database: a file or an SQLAlchemy URL.  [default: $TESTBED_DB or results/results.db]",
)
registry_option = click.option(
    "--registry",
    cls=ManyValues,
    metavar="DIR...",
    help="Further registry folders, beside those of $TESTBED_REGISTRY.",
)
