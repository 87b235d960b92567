"""Flags of db.py that list names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from testbed.commands.action import LOOK, Action, Context

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
    context.print(rows, ["model", "arch", "tags"])
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
    context.print(rows, ["eval_setting", "images", "dataset", "tags"])


def list_parent_eval_settings_registry(context: Context) -> None:
    list_eval_settings_registry(context, parents_only=True)


def list_models_db(context: Context) -> None:
    from testbed.store.names import model_names

    context.print([{"model": n} for n in model_names(context.store, context.pattern)], ["model"])


def list_eval_settings_db(context: Context) -> None:
    from testbed.store.names import eval_setting_names

    names = eval_setting_names(context.store, context.pattern)
    context.print([{"eval_setting": n} for n in names], ["eval_setting"])


def _origin(setting: EvalSetting) -> str:
    """Where a setting without a dataset gets its logits or images from."""
    return f"logits of {setting.logits_from}" if setting.logits_from else f"images of {setting.images_from}"


def _filtered(context: Context, names: list[str]) -> list[str]:
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
