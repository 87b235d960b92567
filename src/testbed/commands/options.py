"""Click parts that the scripts share: options with several values, errors as one line, --db and --registry."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from testbed.errors import TestbedError, masked, near_names, printable, printable_lines
from testbed.options import AUTO

_MOST_FILES = 4  # named in one message
CONSOLE = "testbed.console"  # in the meta dictionary of click's context: `testbed` was called, not a script
WORDS = "testbed.words"  # in the same: the words of the command, as they were typed
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


def say(text: str, err: bool = False) -> None:
    """Print lines that may name a script, as_called. Names in them move no cursor, addresses tell no password."""
    click.echo(masked(printable_lines(as_called(text))), err=err)


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
        try:
            return self._parsed(ctx, args)
        except click.ClickException as error:  # which repeats what was typed
            vars(error)["message"] = masked(printable(error.message))  # final, says click
            raise

    def _parsed(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta.setdefault(WORDS, list(args))
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
        self._refuse_bare_words(ctx, spread)
        try:
            return super().parse_args(ctx, spread)
        except click.BadOptionUsage as error:
            option = next((p for p in self.params if error.option_name in p.opts), None)
            if option is None or not isinstance(option.metavar, str) or error.message.startswith("No such"):
                raise
            raise click.UsageError(f"expected {error.option_name} {option.metavar}: a value is missing", ctx) from None

    def _refuse_bare_words(self, ctx: click.Context, words: list[str]) -> None:
        """`eval.py resnet50 val` is answered with the options that it needs."""
        if isinstance(self, click.Group) or any(isinstance(p, click.Argument) for p in self.params):
            return
        try:
            _, bare, _ = self.make_parser(ctx).parse_args(list(words))
        except click.UsageError:
            return  # click is about to say the same
        if bare:
            flags = [name for p in self.params for name in p.opts]
            needed = [f"{p.opts[0]} {p.metavar}" for p in self.params if isinstance(p, click.Option) and p.required]
            flag = f"--{bare[0]}"
            hint = near_names(flag, [flag] if flag in flags else flags) or (
                f"; needed: {' '.join(needed)}" if needed else ""
            )
            raise click.UsageError(f"expected an option, which begins with --, got '{bare[0]}'{hint}", ctx)


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
            flag = [f"--{name}"] if any(f"--{name}" in p.opts for p in self.params) else []
            near = near_names(f"--{name}", flag) or near_names(name, self.list_commands(ctx))
            near = near or f"; {ctx.command_path} --help lists them"
            ctx.fail(f"no sub-command '{name}'{near}")
        return super().resolve_command(ctx, args)


class ManyValuesGroup(_TakesManyValues, NamedCommands):
    """A command with ManyValues options, and with sub-commands. The values of these are spread twice, to no effect."""


class WholeNumber(click.IntRange):
    """A whole number from `min` on, or to `max`, refused in these words."""

    name = "number"
    _or = ""

    def __init__(self, min: int, max: int | None = None) -> None:
        super().__init__(min=min, max=max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            last = "on" if self.max is None else f"to {self.max}"
            self.fail(f"expected a whole number from {self.min} {last}{self._or}, got '{value}'", param, ctx)


class NumberOrAuto(WholeNumber):
    """A whole number from 1 on, or the word `auto`."""

    _or = f", or {AUTO}"

    def __init__(self) -> None:
        super().__init__(min=1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == AUTO else super().convert(value, param, ctx)


class AnyNumber(click.FloatRange):
    """A number from `min` on or above it, or between `min` and `max`, refused in these words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            if self.max is not None:
                to = "between {:g} and {:g}" if self.max_open else "from {:g} to {:g}"
                to = "above {:g} and up to {:g}" if self.min_open and not self.max_open else to
                bound = to.format(self.min, self.max)
            else:
                bound = f"above {self.min:g}" if self.min_open else f"from {self.min:g} on"
            self.fail(f"expected a number {bound}, got '{value}'", param, ctx)


class ExistingFile(click.Path):
    """A file that is there. The error of one that is not names those that are."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(value)
        if not path.exists():
            self.fail(f"file '{value}' does not exist{self._what_there_is(path)}", param, ctx)
        return super().convert(value, param, ctx)

    def _what_there_is(self, path: Path) -> str:
        if not path.parent.is_dir():
            return f", nor does the folder {path.parent}"
        files = sorted(file.name for file in path.parent.iterdir() if file.is_file())
        alike = [name for name in files if Path(name).suffix == path.suffix] or files
        return near_names(path.name, files) or (f"; there is {', '.join(alike[:_MOST_FILES])}" if alike else "")


def one_line_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a command: a TestbedError, which the user can fix, is printed as one line without a traceback."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TestbedError as error:
            # What a library says of a file may have several lines.
            raise click.ClickException(as_called(" ".join(str(error).splitlines()))) from error
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            # A value that no testbed writes: SQLite keeps whatever it is given.
            if told := _what_is_odd():
                raise click.ClickException(told) from error
            raise

    return wrapped


def _what_is_odd() -> str:
    opening = sys.modules.get("testbed.store.opening")  # not loaded: no database was opened
    return opening.what_is_odd() if opening is not None else ""


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
