"""db.py: query and manage stored results, by flags or by sub-commands over the same functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

from testbed.commands import (
    auditing,
    checking,
    downloading,
    environment,
    exchanging,
    groups,
    listing,
    managing,
    measuring,
    reading,
    transferring,
    validating,
    watch,
)
from testbed.commands.action import PURPOSES, Action, Context, Option
from testbed.commands.causes import first_names
from testbed.commands.options import (
    CONTEXT_SETTINGS,
    ManyValues,
    ManyValuesCommand,
    ManyValuesGroup,
    WholeNumber,
    db_option,
    one_line_errors,
    registry_option,
)
from testbed.errors import TestbedError

# The functions behind the flags import what they need when they are called, so that --help is quick.
# What changes the database comes before what shows it, so that several flags can be given at once.
ACTIONS: tuple[Action, ...] = (
    *downloading.ACTIONS,
    *auditing.ACTIONS,
    *managing.ACTIONS,
    *exchanging.ACTIONS,
    *transferring.ACTIONS,
    *checking.ACTIONS,
    *validating.ACTIONS,
    *listing.ACTIONS,
    *reading.ACTIONS,
    *groups.ACTIONS,
    *measuring.ACTIONS,
    *environment.ACTIONS,
    *watch.ACTIONS,  # the last: it goes on until it is stopped
)
_MOST_READERS = len(ACTIONS) // 3  # where more flags read an option, nearly all do


@dataclass(frozen=True)
class SharedOption:
    """An option that several flags read: a field of Context, under the field's name unless `flag` gives another."""

    name: str
    help: str
    kind: dict[str, Any]  # how click takes it
    flag: str = ""
    default: str = ""  # in words, where click knows none

    def readers(self) -> list[str]:
        return [f"--{action.flag}" for action in ACTIONS if self.name in action.reads]

    def parameter(self, names_readers: bool) -> click.Option:
        """As an option of click; of db.py itself with the flags that read it."""
        readers = self.readers()
        told = f" For {', '.join(readers)}." if names_readers and len(readers) <= _MOST_READERS else ""
        default = f"  [default: {self.default}]" if self.default else ""
        option = ManyValues if self.kind.get("metavar", "").endswith("...") else click.Option
        flag = f"--{self.flag or self.name.replace('_', '-')}"
        return option([flag, self.name], help=f"{self.help}{told}{default}", **self.kind)


SHARED_OPTIONS: tuple[SharedOption, ...] = (
    SharedOption("pattern", "Only names that match.", {"metavar": "GLOB"}, "filter"),
    SharedOption(
        "style",
        "How rows are printed.",
        {"type": click.Choice(["table", "json", "csv"]), "default": "table", "show_default": True},
        "format",
    ),
    SharedOption(
        "variant", "Partial results, such as limit=500.", {"metavar": "NAME"}, default="whole settings, if any"
    ),
    SharedOption("version", "Of a setting.", {"type": WholeNumber(min=0), "metavar": "N"}, default="the newest"),
    SharedOption(
        "source",
        "Where numbers were published, who answered, or the suffix of the names of networks that made decisions.",
        {"metavar": "NAME"},
    ),
    SharedOption("models", "Only these models.", {"metavar": "GLOB..."}),
    SharedOption("setting", "Eval setting of the decisions or answers.", {"metavar": "NAME"}),
    SharedOption(
        "aggregation",
        "From 1000 classes to 16 categories: mean, sum or max.",
        {"metavar": "NAME"},
        default="mean",
    ),
    SharedOption(
        "checkpoint_dir",
        "Folder of weights files: searched first, and written to.",
        {"metavar": "DIR"},
        default="$TESTBED_WEIGHTS or results/weights",
    ),
    SharedOption("data_root", "Folders with datasets.", {"metavar": "DIR..."}, default="$TESTBED_DATA or ./data"),
    SharedOption("override", "Do what destroys or replaces.", {"is_flag": True}),
)
_FIELDS = tuple(option.name for option in SHARED_OPTIONS)


# ---- as flags ------------------------------------------------------------------------------------------------


class DatabaseCommand(ManyValuesGroup):
    """db.py: every action is a flag, and a sub-command that shows its own options only."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [action.command for action in _by_purpose()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return next((_sub_command(action) for action in ACTIONS if action.command == cmd_name), None)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The flags by what people want, each with its own options below it, then the options of several flags."""
        records = {p.name: record for p in self.get_params(ctx) if (record := p.get_help_record(ctx)) is not None}
        for purpose in PURPOSES:
            with formatter.section(purpose):
                formatter.write_dl([row for a in ACTIONS if a.purpose == purpose for row in _taken(a, records)])
        with formatter.section("Options of several flags"):
            formatter.write_dl(list(records.values()))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("The same as sub-commands, each with --help"):
            formatter.write_text(", ".join(self.list_commands(ctx)))


def _taken(action: Action, records: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The help of a flag and of its own options, taken out of the records; what is left belongs to several flags."""
    yield records.pop(_parameter(action.flag))
    for name, _, _ in action.options:
        flag, text = records.pop(_parameter(name))
        yield f"  {flag}", text


def _by_purpose() -> list[Action]:
    return sorted(ACTIONS, key=lambda action: PURPOSES.index(action.purpose))


def _own_option(option: Option) -> click.Option:
    name, metavar, text = option
    if not metavar:
        return click.Option([f"--{name}"], is_flag=True, help=text)
    kind = ManyValues if metavar.endswith("...") else click.Option
    return kind([f"--{name}"], metavar=metavar, help=text)


def _flag(action: Action) -> click.Option:
    if not action.values:
        return click.Option([f"--{action.flag}"], is_flag=True, help=action.help)
    if action.values[0].endswith("..."):
        return ManyValues([f"--{action.flag}"], metavar=action.values[0], help=action.help)
    n = len(action.values)
    kind: Any = str if n == 1 else (str,) * n
    return click.Option([f"--{action.flag}"], nargs=n, metavar=" ".join(action.values), type=kind, help=action.help)


_ALL_FLAGS: list[click.Parameter] = [
    *(parameter for a in _by_purpose() for parameter in (_flag(a), *map(_own_option, a.options))),
    *(option.parameter(names_readers=True) for option in SHARED_OPTIONS),
]


@click.command(cls=DatabaseCommand, context_settings=CONTEXT_SETTINGS, invoke_without_command=True, params=_ALL_FLAGS)
@db_option
@registry_option
@click.pass_context
@one_line_errors
def main(ctx: click.Context, **given: Any) -> None:
    """Query and manage the results database.

    Several flags may be given at once: what changes the database is done before what shows it.

    \b
        python db.py --status --print-eval resnet50 val
        python db.py show resnet50 val
    """
    # What click passes for a flag that is not given depends on its kind.
    chosen = [action for action in ACTIONS if given[_parameter(action.flag)] not in (None, False, ())]
    if ctx.invoked_subcommand is not None:
        if chosen:
            ctx.fail(f"expected flags or a sub-command, got --{chosen[0].flag} and '{ctx.invoked_subcommand}'")
        _refuse_unread(ctx, [action for action in ACTIONS if action.command == ctx.invoked_subcommand])
        return
    _refuse_unread(ctx, chosen)
    context = _context(given)
    for action in chosen:
        values = [given[_parameter(action.flag)]] if action.values else []
        own_options = {_parameter(name): given[_parameter(name)] for name, _, _ in action.options}
        action.function(context, *values, **own_options)
    if not chosen:
        click.echo(ctx.get_help())


def _refuse_unread(ctx: click.Context, chosen: Sequence[Action]) -> None:
    """Options that no chosen flag reads are refused, rather than passed over in silence."""
    not_options = {"db", "registry", *(_parameter(action.flag) for action in ACTIONS)}
    idle: dict[str, str] = {}
    for parameter in ctx.command.params:
        name, option = parameter.name or "", parameter.opts[0]
        if name in not_options or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if refusing := next((action for action in chosen if name in action.refuses), None):
            raise TestbedError(f"--{refusing.flag} takes no {option}: {refusing.refuses[name]}")
        if not any(name in _read_by(action) for action in chosen):
            idle[option] = name
    if idle:
        got = " ".join(f"--{action.flag}" for action in chosen)
        option, name = next(iter(idle.items()))
        told = f"; {option} is for {first_names([f'--{a.flag}' for a in _by_purpose() if name in _read_by(a)])}"
        ctx.fail(f"{', '.join(idle)}: expected beside a flag that reads it{f', got {got}' if got else ''}{told}")


def _read_by(action: Action) -> set[str]:
    return {*action.reads, *(_parameter(name) for name, _, _ in action.options)}


def _context(given: dict[str, Any]) -> Context:
    shared = {name: given[name] for name in _FIELDS}
    return Context(db=given["db"], registry_folders=given["registry"], **shared)


def _parameter(name: str) -> str:
    """The keyword under which click passes an option: --data-root comes as data_root."""
    return name.replace("-", "_")


# ---- as sub-commands -----------------------------------------------------------------------------------------


def _sub_command(action: Action) -> click.Command:
    """`db.py show MODEL SETTING`: the values are arguments; of the options it has those that its function reads."""

    @click.pass_context
    @one_line_errors
    def run(ctx: click.Context, **given: Any) -> None:
        # Options may also stand before the sub-command: db.py --db FILE show MODEL SETTING.
        before = ctx.parent.params if ctx.parent is not None else {}
        told = {n: v for n, v in given.items() if ctx.get_parameter_source(n) is not ParameterSource.DEFAULT}
        words = [given[_argument(value)] for value in action.values]
        values = [tuple(words) if len(words) > 1 else words[0]] if words else []
        own_options = {_parameter(name): given[_parameter(name)] for name, _, _ in action.options}
        action.function(_context({**given, **before, **told}), *values, **own_options)

    arguments = [
        click.Argument([_argument(value)], metavar=value, nargs=-1 if value.endswith("...") else 1, required=True)
        for value in action.values
    ]
    options = [_own_option(option) for option in action.options]
    shared = [option.parameter(names_readers=False) for option in SHARED_OPTIONS if option.name in action.reads]
    command = ManyValuesCommand(
        action.command,
        callback=run,
        params=[*arguments, *options, *shared],
        help=action.help,
        context_settings=CONTEXT_SETTINGS,
    )
    return db_option(registry_option(command))


def _argument(value: str) -> str:
    """The keyword of an argument. It is not that of an option: --setting of a shared one is not SETTING."""
    return f"value_{value.removesuffix('...').lower()}"
