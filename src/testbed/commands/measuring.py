"""Flags of db.py that measure stored logits further: accuracy by class, and calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import LOOK, Action, Context
from testbed.commands.options import say
from testbed.commands.tables import text_table, with_interval
from testbed.errors import StoreError

if TYPE_CHECKING:
    from testbed.store.evaluation import Evaluation
    from testbed.store.outputs import Outputs


def per_class(context: Context, pair: tuple[str, str]) -> None:
    """top1 of every class that has images, the worst first."""
    from testbed.metrics.accuracy import per_class_accuracy

    evaluation = _with_logits(context, *pair, context.variant, context.version)
    outputs = _outputs(context, evaluation)
    by_class = per_class_accuracy(outputs.logits, outputs.targets)
    names = _class_names(outputs)
    # With a class_sublist, place i of the logits is class class_sublist[i] of the model.
    numbers = context.registry.runnable(pair[1]).class_sublist or range(outputs.logits.shape[1])
    rows = [
        {"class": numbers[place], "folder": names.get(place, ""), **vars(estimate)}
        for place, estimate in sorted(by_class.items(), key=lambda item: item[1].value)
    ]
    _show(context, f"top1 (%) of {pair[0]} on {pair[1]}{evaluation.apart} by class", rows, ["class", "folder"])


def calibration(context: Context, pair: tuple[str, str], *, clean: str | None) -> None:
    """Calibration of a setting's logits as they are, and divided by the temperature fitted on the clean setting."""
    from testbed.metrics.calibration import calibration_at, fit_temperature
    from testbed.store.measuring import refuse_answers

    model, name = pair
    clean = clean or _clean_of(context, name)
    evaluation = _with_logits(context, model, name, context.variant, context.version)
    outputs = _outputs(context, evaluation)
    # The same variant, so that a limited run is compared with an equally limited clean one.
    clean_evaluation = _with_logits(context, model, clean, evaluation.variant)
    clean_outputs = _outputs(context, clean_evaluation)
    refuse_answers(outputs, evaluation.label)
    refuse_answers(clean_outputs, clean_evaluation.label)
    if outputs.logits.shape[1] != clean_outputs.logits.shape[1]:
        raise StoreError(
            f"--clean: expected a setting of {outputs.logits.shape[1]} classes as '{name}' has, "
            f"'{clean}' has {clean_outputs.logits.shape[1]}"
        )
    temperature = fit_temperature(clean_outputs.logits, clean_outputs.targets)
    rows: list[dict[str, Any]] = [
        {"temperature": t, "metric": metric, **vars(estimate)}
        for t in (1.0, round(temperature, 4))  # rounded before use, so that the printed number is the one used
        for metric, estimate in calibration_at(outputs.logits, outputs.targets, t).items()
    ]
    _show(
        context,
        f"{model} on {name}{evaluation.apart}; the temperature was fitted on {clean}",
        rows,
        ["temperature", "metric"],
    )
    if clean == name and context.style == "table":
        click.echo("fitted on the same images: name another setting with --clean for an honest number")


def _with_logits(
    context: Context, model: str, setting: str, variant: str | None = None, version: int | None = None
) -> Evaluation:
    """The own evaluation that is meant: published results have no logits to measure."""
    from testbed.store.evaluation import OWN
    from testbed.store.find import find_one

    return find_one(context.store, model, setting, variant, version, OWN)


def _outputs(context: Context, evaluation: Evaluation) -> Outputs:
    """The stored outputs of an evaluation. Targets must be columns of the logits, as these metrics compare them."""
    from testbed.metrics.labels import COLUMNS
    from testbed.store.measuring import outputs_of

    outputs, setting = outputs_of(context.store, context.registry, evaluation), evaluation.eval_setting
    if not outputs.rows.has_labels:
        raise StoreError(f"{setting} has no labels")
    if context.registry.runnable(setting).targets_are != COLUMNS:
        raise StoreError(f"the targets of {setting} are not columns of the logits, so that only its own metrics apply")
    return outputs


def _clean_of(context: Context, name: str) -> str:
    """The root of a setting's parents: imagenet-c.fog.3_in-memory_10percent -> imagenet-c.fog.3_in-memory -> val."""
    parent = context.registry.eval_setting(name).parent
    return name if parent is None else _clean_of(context, parent)


def _class_names(outputs: Outputs) -> dict[int, str]:
    """Class -> the folder of its images; empty for images that are not in folders."""
    pairs = zip(outputs.targets.tolist(), map(str, outputs.ids), strict=True)
    return {target: path.split("/", 1)[0] for target, path in pairs if "/" in path}


def _show(context: Context, title: str, rows: list[dict[str, Any]], first: list[str]) -> None:
    """Rows of estimates in the style of --format; `first` are the columns before the value."""
    if context.style != "table":
        context.print(rows, [*first, "value", "ci_low", "ci_high", "n"])
        return
    lines = [
        [*(str(r[c]) for c in first), with_interval(r["value"], r["ci_low"], r["ci_high"]), str(r["n"])] for r in rows
    ]
    say(f"{title}\n\n{text_table(lines, [*first, 'value [95 % interval]', 'n'])}")


ACTIONS = (
    Action(
        "per-class",
        per_class,
        "Accuracy of every class, from stored logits, the worst first.",
        ("MODEL", "SETTING"),
        purpose=LOOK,
        reads=("variant", "version", "style"),
    ),
    Action(
        "calibration",
        calibration,
        "ECE, NLL, Brier score and selective risk, also at the temperature of the clean setting.",
        ("MODEL", "SETTING"),
        (("clean", "SETTING", "Where the temperature is fitted.  [default: the setting's parent]"),),
        purpose=LOOK,
        reads=("variant", "version", "style"),
    ),
)
