"""Flags of db.py that show results, their state and what was declared."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import Action, Context
from testbed.commands.tables import cell, formatted, text_table, with_interval
from testbed.data.samples import Dataset
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.store.queries import Evaluation


def print_eval(context: Context, pair: tuple[str, str]) -> None:
    """Metrics with intervals and n, then where the numbers come from."""
    from testbed.store import queries

    evaluation = any_variant(context, *pair)
    metrics = queries.metrics_of(context.store, evaluation.id)
    if context.style != "table":
        columns = ["metric", "value", "ci_low", "ci_high", "n"]
        context.print([{**m, "metric": m["name"]} for m in metrics], columns)
        return
    row = evaluation.row
    click.echo(f"{evaluation.model} on {evaluation.eval_setting}{apart(evaluation)}\n")
    better = _directions(context, evaluation.eval_setting)
    header = ["metric", "value [95 % interval]", "n", *(["better"] if better else [])]
    lines = [
        [m["name"], with_interval(m["value"], m["ci_low"], m["ci_high"]), cell(m["n"]), better.get(m["name"], "")]
        for m in metrics
    ]
    if metrics or queries.has_labels(context.store, evaluation):
        click.echo(text_table([line[: len(header)] for line in lines], header))
    else:
        click.echo("no labels: the logits are stored, and there is nothing to measure an accuracy by")
    if row["warning"]:
        click.echo(f"\nwarning: {row['warning']}")
    click.echo()
    for label, value in _provenance(evaluation.version, row):
        click.echo(f"{label:<20} {value}")


def _directions(context: Context, setting: str) -> dict[str, str]:
    """Which way each metric is better, where the setting's metrics_fn tells it (its attribute `better`)."""
    try:
        return dict(getattr(context.registry.eval_setting(setting).metrics_fn, "better", {}))
    except TestbedError:  # a setting that is no longer declared
        return {}


def any_variant(context: Context, model: str, setting: str) -> Any:
    """The whole setting's evaluation, or the newest limited one where there is no other."""
    from testbed.store import queries

    found = [e for e in queries.evaluations(context.store, model, setting) if e.status == "completed"]
    whole = [e for e in found if e.row["variant"] == ""]
    return (whole or found or [queries.completed(context.store, model, setting)])[-1]


def apart(evaluation: Evaluation) -> str:
    """What a result is kept apart by, for a title."""
    return f" ({evaluation.row['variant']})" if evaluation.row["variant"] else ""


def _provenance(version: int, row: dict[str, Any]) -> list[tuple[str, str]]:
    """Label and text of everything recorded about how a result came to be."""
    facts = dict(row["provenance"] or {})
    versions = facts.pop("versions", {})
    for quiet in ("arrays_sha256", "bad_rows"):
        facts.pop(quiet, None)
    listed: dict[str, Any] = {
        "setting version": version,
        "images": row["n_images"],
        "finished": row["finished_at"],
        "seconds": row["seconds"],
        "images per second": row["images_per_second"],
        "device": row["device"],
        "dtype": row["dtype"],
        "seed": row["seed"],
        "weights sha256": row["weights_sha256"],
        "data fingerprint": row["dataset_fingerprint"],
        "logits": row["logits_path"],
        "logits sha256": row["logits_sha256"],
        **{k.replace("_", " "): v for k, v in facts.items()},
        "versions": ", ".join(f"{k} {v}" for k, v in versions.items()),
    }
    return [(k, v if isinstance(v, str) else cell(v)) for k, v in listed.items() if v not in (None, "", [])]


def _states(every: Sequence[Evaluation], living_runs: Collection[str]) -> dict[tuple[str, str], str]:
    """A word for each pair: of the whole setting, or else of what was run apart, such as limit=20."""
    states: dict[tuple[str, str], str] = {}
    for e in sorted(every, key=lambda e: (e.row["variant"] == "", e.status == "completed")):  # the last one stands
        stopped = e.status == "running" and e.row["run_id"] not in living_runs
        word = "stopped" if stopped else "done" if e.status == "completed" else e.status
        variant = e.row["variant"]
        states[e.model, e.eval_setting] = f"{variant} {word}".removesuffix(" done") if variant else word
    return states


def status(context: Context) -> None:
    """Matrix of done, failed, running, stopped and missing; --filter chooses settings."""
    from testbed.store import queries

    every = queries.evaluations(context.store)
    models = sorted({e.model for e in every})  # own ones: published results have no state
    settings = sorted({e.eval_setting for e in every if queries.matches(e.eval_setting, [context.pattern or "*"])})
    states = _states(every, context.store.living_runs())
    errors = [
        f"{e.model} on {e.eval_setting}: {e.row['error']}"
        for e in every
        if e.status == "failed" and e.eval_setting in settings
    ]
    rows = [{"eval_setting": s, **{m: states.get((m, s), "missing") for m in models}} for s in settings]
    table = formatted(rows, ["eval_setting", *models], context.style)
    if context.style == "table" and max(map(len, table.splitlines())) > shutil.get_terminal_size((160, 24)).columns:
        flat = [
            {"model": m, "eval_setting": s, "state": states.get((m, s), "missing")} for m in models for s in settings
        ]
        table = formatted(flat, ["model", "eval_setting", "state"], context.style)
    click.echo(table)
    if context.style == "table":
        for error in errors:
            click.echo(f"failed: {error}")


def print_setting(context: Context, name: str) -> None:
    """Everything an eval setting declares, with what it inherits, as JSON."""
    setting = context.registry.runnable(name)
    hidden = ("arguments", "noise_key")
    facts = {k: v for k, v in vars(setting).items() if k not in hidden and v not in (None, ())}
    for long in ("class_sublist", "idx_subsample_list"):
        if len(facts.get(long, ())) > 20:
            facts[long] = f"{len(facts[long])} indices, {facts[long][0]} to {facts[long][-1]}"
    facts["derived_from"] = context.registry.eval_setting(name).derived_from
    facts["declared_at"] = context.registry.eval_settings.origins.get(name)
    click.echo(json.dumps({k: v for k, v in facts.items() if v is not None}, indent=1, default=_in_words))


def _in_words(value: Any) -> str:
    if isinstance(value, Dataset):
        return value.describe()
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if name else repr(value)


ACTIONS = (
    Action("print-setting", print_setting, "Everything a setting declares.", ("SETTING",)),
    Action("print-eval", print_eval, "Metrics with intervals, and where they come from.", ("MODEL", "SETTING")),
    Action("status", status, "Matrix of done, failed, running, stopped and missing pairs."),
)
