"""Flags of db.py that list names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import LOOK, Action, Context
from testbed.errors import UnknownName, near_names

if TYPE_CHECKING:
    from testbed.entries.eval_setting import EvalSetting


def list_models_registry(context: Context) -> None:
    from testbed.models import strings as model_strings

    if context.pattern is not None and model_strings.is_model_string(context.pattern):
        _list_model_strings(context, context.pattern)
        return
    entries = context.registry_part("models").models.entries
    names = _filtered(context, list(entries))
    rows = [{"model": n, "arch": entries[n].arch or "", "tags": " ".join(entries[n].tags)} for n in names]
    _print(context, "model", rows, ["model", "arch", "tags"], entries)
    if context.pattern is None:
        kinds = ", ".join(f"'{kind}:*'" for kind in model_strings.LISTED)
        # On standard error, so that --format json and csv stay readable by programs.
        click.echo(f"Models that need no entry are listed by --filter {kinds}.", err=True)


def _list_model_strings(context: Context, pattern: str) -> None:
    """The models of a package, as `timm:NAME.TAG`, `torchvision:NAME/WEIGHTS` or `open_clip:NAME/WEIGHTS`."""
    from testbed.models import strings as model_strings

    rows = []
    for name in model_strings.matching(pattern):
        # torchvision and open_clip have NAME/WEIGHTS, timm NAME.TAG.
        kind, rest = name.split(":", 1)
        rows.append({"model": name, "arch": rest.split("/")[0] if "/" in rest else rest.split(".")[0], "tags": kind})
    context.print(rows, ["model", "arch", "tags"])


def list_eval_settings_registry(context: Context, parents_only: bool = False) -> None:
    rows = []
    entries = context.registry_part("eval_settings").eval_settings.entries
    for name in _filtered(context, list(entries)):
        setting = entries[name]
        parent = setting.parent
        if parents_only and parent:
            continue
        dataset = setting.dataset.describe() if setting.dataset else _origin(setting)
        rows.append({"eval_setting": name, "images": setting.size, "dataset": dataset, "tags": " ".join(setting.tags)})
    _print(context, "eval setting", rows, ["eval_setting", "images", "dataset", "tags"], entries)


def list_parent_eval_settings_registry(context: Context) -> None:
    list_eval_settings_registry(context, parents_only=True)


def list_models_db(context: Context) -> None:
    from testbed.store.names import model_names

    known = model_names(context.store)
    _print(context, "model", [{"model": n} for n in _filtered(context, known)], ["model"], known)


def list_eval_settings_db(context: Context) -> None:
    from testbed.store.names import eval_setting_names

    known = eval_setting_names(context.store)
    _print(context, "eval setting", [{"eval_setting": n} for n in _filtered(context, known)], ["eval_setting"], known)


def _print(context: Context, kind: str, rows: list[dict[str, Any]], columns: list[str], known: Collection[str]) -> None:
    """The rows; a table without any is an error that says what there is. Programs get an empty list."""
    if rows or context.style != "table":
        context.print(rows, columns)
        return
    if not known:
        raise UnknownName("the database has no results yet: run eval.py, or take some in with db.py --import-csv")
    names = list(known)
    near = near_names((context.pattern or "").strip("*"), names)
    raise UnknownName(
        f"--filter: no {kind} matches '{context.pattern}'{near or f'; there are {len(names):,}, such as {names[0]}'}"
        + ("" if "*" in (context.pattern or "") else " (a part of a name is written '*part*')")
    )


def _origin(setting: EvalSetting) -> str:
    """Where a setting without a dataset gets its logits or images from."""
    return f"logits of {setting.logits_from}" if setting.logits_from else f"images of {setting.images_from}"


def _filtered(context: Context, names: Sequence[str]) -> list[str]:
    from fnmatch import fnmatchcase

    return [n for n in names if context.pattern is None or fnmatchcase(n, context.pattern)]


ACTIONS = (
    Action(
        "list-models-registry",
        list_models_registry,
        "Models that can be run.",
        purpose=LOOK,
        reads=("pattern", "style"),
    ),
    Action(
        "list-eval-settings-registry",
        list_eval_settings_registry,
        "Eval settings that can be run.",
        purpose=LOOK,
        reads=("pattern", "style"),
    ),
    Action(
        "list-parent-eval-settings-registry",
        list_parent_eval_settings_registry,
        "Eval settings that are nobody's child.",
        purpose=LOOK,
        reads=("pattern", "style"),
    ),
    Action(
        "list-models-db", list_models_db, "Models with a row in the database.", purpose=LOOK, reads=("pattern", "style")
    ),
    Action(
        "list-eval-settings-db",
        list_eval_settings_db,
        "Eval settings with a row in the database.",
        purpose=LOOK,
        reads=("pattern", "style"),
    ),
)
