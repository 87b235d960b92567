"""Command-line options the figures share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from _lines import NOT_ON_THE_LINE, Choice
from _results import STORED_CONFIDENCE, Results, Words, load
from click.core import ParameterSource

from testbed.commands.options import (
    CONTEXT_SETTINGS,
    AnyNumber,
    ManyValues,
    ManyValuesCommand,
    db_option,
    one_line_errors,
)
from testbed.data.locate import home
from testbed.stats.axes import AXES
from testbed.stats.estimators import METHODS
from testbed.store.opening import open_store

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def figure_command(**more: Any) -> Decorator:
    """A command whose options may take several words, and whose errors are one line."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        command: Any = click.command(cls=ManyValuesCommand, context_settings=CONTEXT_SETTINGS, **more)
        return command(one_line_errors(function))

    return decorate


def _stacked(*options: Decorator) -> Decorator:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        # Decorators work from the inside out; reversed, --help lists the options as they are written.
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def many(*names: str, metavar: str, text: str) -> Decorator:
    """An option that takes every following word."""
    return click.option(*names, cls=ManyValues, metavar=metavar, help=text)


models_option = many("--models", metavar="GLOB...", text="Show only these models; the line stays.")
settings_option = many(
    "--eval-settings", "--settings", "eval_settings", metavar="GLOB...", text="Only these eval settings."
)
types_option = many("--types", metavar="TYPE...", text="Show only models of these types; the line stays.")
highlight_option = many("--highlight", metavar="GLOB...", text="Models to ring and name.")
names_option = click.option("--names/--no-names", default=None, help="Name all points.  [default: up to 12 models]")
title_option = click.option("--title", help="Instead of the title made from the names.")


def _in_results(ctx: click.Context, option: click.Parameter, path: Path) -> Path:
    """The default path is in the folder `results`, which need not be in the working directory."""
    if ctx.get_parameter_source(str(option.name)) is not ParameterSource.DEFAULT:
        return path
    return home("results") / path.relative_to("results")


def out_option(
    default: str, metavar: str = "PATH", text: str = "Written as PATH.pdf and PATH.png, or as the one the ending says."
) -> Decorator:
    """--out, by default a path in the folder `results`."""
    return click.option(
        "--out",
        type=click.Path(path_type=Path),
        default=Path("results", default),
        show_default=True,
        callback=_in_results,
        metavar=metavar,
        help=text,
    )


def confidence_option(default: float = STORED_CONFIDENCE, text: str = "Of intervals and bands.") -> Decorator:
    return click.option(
        "--confidence",
        type=AnyNumber(0, 1, min_open=True, max_open=True),
        default=default,
        show_default=True,
        help=text,
    )


metric_option = click.option(
    "--metric", default="top1", show_default=True, metavar="NAME", help="Which number of each result."
)
variant_option = click.option(
    "--variant",
    metavar="NAME",
    help="Partial results, such as limit=500.  [default: whole settings, else the most frequent]",
)


def point_options(out: str) -> Decorator:
    """Which models are drawn as points, which of them are ringed or named, the title, and where the figure goes."""
    return _stacked(types_option, highlight_option, names_option, title_option, out_option(out))


def table_options(out: str) -> Decorator:
    """The settings and types of a figure that shows whole settings, the title, and where the figure goes."""
    return _stacked(settings_option, types_option, title_option, out_option(out))


# Which results a figure is made from.
source_options = _stacked(
    db_option,
    models_option,
    metric_option,
    many("--sources", metavar="NAME...", text="Only results from these: own, or names of imports.  [default: all]"),
    variant_option,
    confidence_option(),
)

# How the line is fitted.
line_options = _stacked(
    click.option(
        "--axis",
        type=click.Choice(AXES),
        help="Scale of both axes and space of the fit.  [default: logit for accuracies]",
    ),
    click.option("--method", type=click.Choice(list(METHODS)), default="ols", show_default=True, help="Kind of fit."),
    click.option(
        "--min-x",
        type=AnyNumber(0, 100),
        help="Leave out models below this on x.  [default: as published, or 0]",
    ),
    many("--fit-models", metavar="GLOB...", text="Models the line goes through.  [default: by type]"),
    click.option("--fit-type", default="standard", show_default=True, help="Type of the models the line goes through."),
    many(
        "--fit-without",
        metavar="GLOB...",
        text=f"Models of that type it does not.  [default: {' '.join(NOT_ON_THE_LINE)}]",
    ),
    many("--fit-sources", metavar="NAME...", text="Sources of those models.  [default: published where there are any]"),
)


def read_results(options: dict[str, Any], models: Sequence[str] = (), eval_settings: Sequence[str] = ()) -> Results:
    """The results that the source options ask for; takes these options out of the dictionary.

    The models and settings that are shown say which variant is meant; the table has all others of it too.
    """
    # Popped, so that what is left in the dictionary belongs to the script.
    store = open_store(options.pop("db"))
    chosen = {name: options.pop(name) for name in ("metric", "sources", "variant", "confidence")}
    return load(store, **chosen, words=Words(models, eval_settings))


def read_choice(results: Results, options: dict[str, Any]) -> Choice:
    """How to fit, from the line options; takes these options out of the dictionary."""
    # Logit axes need numbers between 0 and 100, which only accuracies are bound to be.
    return Choice(
        axis=options.pop("axis") or ("logit" if results.is_accuracy else "linear"),
        method=options.pop("method"),
        min_x=options.pop("min_x"),
        models=options.pop("fit_models"),
        type=options.pop("fit_type"),
        without=options.pop("fit_without") or NOT_ON_THE_LINE,
        sources=options.pop("fit_sources"),
        confidence=results.confidence,
    )
