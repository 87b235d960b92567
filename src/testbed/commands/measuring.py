"""Flags of db.py that measure stored logits in a way of their own: class by class, and how sure the model may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import Action, Context
from testbed.commands.reading import any_variant, apart
from testbed.commands.tables import text_table, with_interval
from testbed.errors import StoreError

if TYPE_CHECKING:
    from testbed.store.outputs import Outputs
    from testbed.store.queries import Evaluation


def per_class(context: Context, pair: tuple[str, str]) -> None:
    """top1 of every class that has images, the worst first."""
    from testbed.metrics.accuracy import per_class_accuracy

    evaluation = any_variant(context, *pair)
    outputs = _outputs(context, evaluation)
    found = per_class_accuracy(outputs.logits, outputs.samples.targets)
    names = _class_names(outputs)
    numbers = context.registry.runnable(pair[1]).class_sublist or range(outputs.logits.shape[1])
    rows = [
        {"class": numbers[place], "folder": names.get(place, ""), **vars(estimate)}
        for place, estimate in sorted(found.items(), key=lambda item: item[1].value)
    ]
    _show(context, f"top1 (%) of {pair[0]} on {pair[1]}{apart(evaluation)} by class", rows, ["class", "folder"])


def calibration(context: Context, pair: tuple[str, str]) -> None:
    """Calibration on a setting as it is, and at the temperature fitted on its clean setting."""
    from testbed.metrics.calibration import calibration_at, fit_temperature
    from testbed.store import queries

    model, name = pair
    clean = context.extra["clean"] or _clean_of(context, name)
    evaluation = any_variant(context, model, name)
    outputs = _outputs(context, evaluation)
    source = _outputs(context, queries.completed(context.store, model, clean, evaluation.row["variant"]))
    if outputs.logits.shape[1] != source.logits.shape[1]:
        raise StoreError(
            f"--clean: expected a setting of {outputs.logits.shape[1]} classes as '{name}' has, "
            f"'{clean}' has {source.logits.shape[1]}"
        )
    temperature = fit_temperature(source.logits, source.samples.targets)
    rows: list[dict[str, Any]] = [
        {"temperature": t, "metric": metric, **vars(estimate)}
        for t in (1.0, round(temperature, 4))
        for metric, estimate in calibration_at(outputs.logits, outputs.samples.targets, t).items()
    ]
    _show(
        context,
        f"{model} on {name}{apart(evaluation)}; the temperature was fitted on {clean}",
        rows,
        ["temperature", "metric"],
    )
    if clean == name and context.style == "table":
        click.echo("fitted on the same images: name another setting with --clean for an honest number")


def _outputs(context: Context, evaluation: Evaluation) -> Outputs:
    from testbed.store.outputs import outputs_of

    outputs, setting = outputs_of(context.store, context.registry, evaluation), evaluation.eval_setting
    if not (outputs.samples.targets >= 0).any():
        raise StoreError(f"{setting} has no labels")
    if not getattr(context.registry.runnable(setting).metrics_fn, "columns_are_classes", False):
        raise StoreError(f"the targets of {setting} are not columns of the logits, so that only its own metrics apply")
    return outputs


def _clean_of(context: Context, name: str) -> str:
    """The setting at the root: imagenet-c.fog.3_in-memory_10percent -> imagenet-c.fog.3_in-memory -> val."""
    setting = context.registry.eval_setting(name)
    parent = setting.parent_eval_setting or setting.derived_from
    return name if parent is None else _clean_of(context, parent)


def _class_names(outputs: Outputs) -> dict[int, str]:
    """The folder that the images of a class lie in, where they lie in folders."""
    pairs = zip(outputs.samples.targets.tolist(), map(str, outputs.samples.ids), strict=True)
    return {target: path.split("/", 1)[0] for target, path in pairs if "/" in path}


def _show(context: Context, title: str, rows: list[dict[str, Any]], first: list[str]) -> None:
    if context.style != "table":
        context.print(rows, [*first, "value", "ci_low", "ci_high", "n"])
        return
    lines = [
        [*(str(r[c]) for c in first), with_interval(r["value"], r["ci_low"], r["ci_high"]), str(r["n"])] for r in rows
    ]
    click.echo(f"{title}\n\n{text_table(lines, [*first, 'value [95 % interval]', 'n'])}")


ACTIONS = (
    Action(
        "per-class", per_class, "Accuracy of every class, from stored logits, the worst first.", ("MODEL", "SETTING")
    ),
    Action(
        "calibration",
        calibration,
        "ECE, NLL, Brier score and selective risk, also at the temperature of the clean setting.",
        ("MODEL", "SETTING"),
        (("clean", "SETTING", "Where --calibration fits the temperature.  [default: the setting's parent]"),),
    ),
)
