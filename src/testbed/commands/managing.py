"""Flags of db.py that add, remove and rename stored models, settings and evaluations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from testbed.commands.action import BRING_IN, LOOK_AFTER, Action, Context
from testbed.entries.checks import check_name
from testbed.errors import UnknownName


@contextmanager
def _not_needed() -> Iterator[None]:
    """Whoever comes from the ImageNet Testbed adds names before a run, and stores runs with a flag."""
    try:
        yield
    except UnknownName as error:
        raise UnknownName(f"{error} (nothing need be added: eval.py stores what it runs)") from error


def add_model(context: Context, name: str) -> None:
    # Without --override the name must be registered, so that a misspelt one is refused.
    if not context.override:
        with _not_needed():
            entry = context.registry.model(name)
        context.new_store.ensure_model(name, entry.arch, entry.tags)
    else:
        check_name("model", name)
        context.new_store.ensure_model(name)
    click.echo(f"model {name} is in the database")


def add_eval_setting(context: Context, name: str) -> None:
    from testbed.store.write import add_eval_setting as add

    if context.override and name not in context.registry.eval_settings.entries:
        check_name("eval setting", name)
        context.new_store.ensure_eval_setting(name)
    else:
        with _not_needed():
            add(context.new_store, context.registry, name)
    click.echo(f"eval setting {name} is in the database")


def remove_model(context: Context, name: str) -> None:
    from testbed.store import manage

    click.echo(f"removed {name} and {manage.remove_model(context.store, name, context.override)}")


def remove_eval_setting(context: Context, name: str) -> None:
    from testbed.store import manage

    click.echo(f"removed {name} and {manage.remove_eval_setting(context.store, name, context.override)}")


def remove_evaluation(context: Context, pair: tuple[str, str]) -> None:
    from testbed.store import manage

    click.echo(f"removed {manage.remove_evaluation(context.store, *pair, context.override)}")


def rename_model(context: Context, names: tuple[str, str]) -> None:
    from testbed.store import manage

    # Only the new name is checked, so that a name from an older program can be replaced.
    check_name("model", names[1])
    manage.rename_model(context.store, *names)
    click.echo(f"model {names[0]} is now {names[1]}")


def rename_eval_setting(context: Context, names: tuple[str, str]) -> None:
    from testbed.store import manage

    check_name("eval setting", names[1])
    manage.rename_eval_setting(context.store, *names)
    click.echo(f"eval setting {names[0]} is now {names[1]}")


ACTIONS = (
    Action(
        "add-model",
        add_model,
        "Add a registry model to the database (any name with --override).",
        ("NAME",),
        purpose=BRING_IN,
        reads=("override",),
    ),
    Action(
        "add-eval-setting",
        add_eval_setting,
        "Add a registry setting to the database (any name with --override).",
        ("NAME",),
        purpose=BRING_IN,
        reads=("override",),
    ),
    Action(
        "remove-model",
        remove_model,
        "Remove a model with all its results; needs --override.",
        ("NAME",),
        purpose=LOOK_AFTER,
        reads=("override",),
    ),
    Action(
        "remove-eval-setting",
        remove_eval_setting,
        "Remove a setting with all its results; needs --override.",
        ("NAME",),
        purpose=LOOK_AFTER,
        reads=("override",),
    ),
    Action(
        "remove-evaluation",
        remove_evaluation,
        "Remove one pair; needs --override.",
        ("MODEL", "SETTING"),
        purpose=LOOK_AFTER,
        reads=("override",),
    ),
    Action("rename-model", rename_model, "Rename a stored model.", ("OLD", "NEW"), purpose=LOOK_AFTER),
    Action("rename-eval-setting", rename_eval_setting, "Rename a stored setting.", ("OLD", "NEW"), purpose=LOOK_AFTER),
)
