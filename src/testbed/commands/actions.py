"""What each flag of db.py does: one small function per flag, given the command's context and the flag's value."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.tables import cell, formatted, text_table, with_interval
from testbed.errors import TestbedError
from testbed.registry import Registry, load_registry

if TYPE_CHECKING:
    from testbed.store.database import Store


@dataclass
class Context:
    """What the flags share; database and registry are opened only by those that need them."""

    db: str | None
    registry_folders: tuple[str, ...]
    pattern: str | None
    style: str
    override: bool
    types: str | None = None
    source: str | None = None

    @cached_property
    def store(self) -> Store:
        from testbed.store.database import open_store

        return open_store(self.db)

    @cached_property
    def new_store(self) -> Store:
        from testbed.store.database import open_store

        return open_store(self.db, create=True)

    @cached_property
    def registry(self) -> Registry:
        entries = load_registry(self.registry_folders)
        for path, error in entries.broken.items():
            click.echo(f"registry: {path} was not loaded: {error}", err=True)
        return entries

    def print(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        click.echo(formatted(rows, columns, self.style))


# ---- lists -----------------------------------------------------------------------------------------------


def list_models_registry(context: Context) -> None:
    entries = context.registry.models.entries
    names = _filtered(context, list(entries))
    rows = [{"model": n, "arch": entries[n].arch or "", "tags": " ".join(entries[n].tags)} for n in names]
    context.print(rows, ["model", "arch", "tags"])


def list_eval_settings_registry(context: Context, parents_only: bool = False) -> None:
    rows = []
    for name in _filtered(context, list(context.registry.eval_settings.entries)):
        setting = context.registry.eval_setting(name)
        parent = setting.parent_eval_setting or setting.derived_from
        if parents_only and parent:
            continue
        dataset = setting.dataset.describe() if setting.dataset else f"derived from {setting.derived_from}"
        rows.append({"eval_setting": name, "images": setting.size, "dataset": dataset, "tags": " ".join(setting.tags)})
    context.print(rows, ["eval_setting", "images", "dataset", "tags"])


def list_parent_eval_settings_registry(context: Context) -> None:
    list_eval_settings_registry(context, parents_only=True)


def list_models_db(context: Context) -> None:
    from testbed.store import queries

    context.print([{"model": n} for n in queries.model_names(context.store, context.pattern)], ["model"])


def list_eval_settings_db(context: Context) -> None:
    from testbed.store import queries

    names = queries.eval_setting_names(context.store, context.pattern)
    context.print([{"eval_setting": n} for n in names], ["eval_setting"])


def _filtered(context: Context, names: list[str]) -> list[str]:
    from fnmatch import fnmatchcase

    return [n for n in names if context.pattern is None or fnmatchcase(n, context.pattern)]


# ---- one evaluation, all evaluations ---------------------------------------------------------------------


def print_eval(context: Context, pair: tuple[str, str]) -> None:
    """Metrics with intervals and n, then where the numbers come from."""
    from testbed.store import queries

    evaluation = _any_variant(context, *pair)
    metrics = queries.metrics_of(context.store, evaluation.id)
    if context.style != "table":
        columns = ["metric", "value", "ci_low", "ci_high", "n"]
        context.print([{**m, "metric": m["name"]} for m in metrics], columns)
        return
    row = evaluation.row
    variant = f" ({row['variant']})" if row["variant"] else ""
    click.echo(f"{evaluation.model} on {evaluation.eval_setting}{variant}\n")
    lines = [[m["name"], with_interval(m["value"], m["ci_low"], m["ci_high"]), cell(m["n"])] for m in metrics]
    click.echo(text_table(lines, ["metric", "value [95 % interval]", "n"]))
    if row["warning"]:
        click.echo(f"\nwarning: {row['warning']}")
    click.echo()
    for label, value in _provenance(evaluation.version, row):
        click.echo(f"{label:<20} {value}")


def _any_variant(context: Context, model: str, setting: str) -> Any:
    """The whole setting's evaluation, or the newest limited one where there is no other."""
    from testbed.store import queries

    found = [e for e in queries.evaluations(context.store, model, setting) if e.status == "completed"]
    whole = [e for e in found if e.row["variant"] == ""]
    return (whole or found or [queries.completed(context.store, model, setting)])[-1]


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


def status(context: Context) -> None:
    """Matrix of done, failed, running and missing; --filter chooses settings."""
    from testbed.store import queries

    models = queries.model_names(context.store)
    settings = queries.eval_setting_names(context.store, context.pattern)
    states: dict[tuple[str, str], str] = {}
    errors = []
    for e in queries.evaluations(context.store):
        word = "done" if e.status == "completed" else e.status
        if states.get((e.model, e.eval_setting)) != "done":
            states[e.model, e.eval_setting] = word
        if e.status == "failed" and e.eval_setting in settings:
            errors.append(f"{e.model} on {e.eval_setting}: {e.row['error']}")
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


# ---- adding, removing, renaming --------------------------------------------------------------------------


def add_model(context: Context, name: str) -> None:
    if not context.override:
        entry = context.registry.model(name)
        context.new_store.ensure_model(name, entry.arch, entry.tags)
    else:
        context.new_store.ensure_model(name)
    click.echo(f"model {name} is in the database")


def add_eval_setting(context: Context, name: str) -> None:
    from testbed.run.record import add_eval_setting as add

    if context.override and name not in context.registry.eval_settings.entries:
        context.new_store.ensure_eval_setting(name)
    else:
        add(context.new_store, context.registry, name)
    click.echo(f"eval setting {name} is in the database")


def remove_model(context: Context, name: str) -> None:
    from testbed.store import manage

    click.echo(f"removed {name} and {manage.remove_model(context.store, name, context.override)} evaluation(s)")


def remove_eval_setting(context: Context, name: str) -> None:
    from testbed.store import manage

    click.echo(f"removed {name} and {manage.remove_eval_setting(context.store, name, context.override)} evaluation(s)")


def remove_evaluation(context: Context, pair: tuple[str, str]) -> None:
    from testbed.store import manage

    click.echo(f"removed {manage.remove_evaluation(context.store, *pair, context.override)} evaluation(s)")


def rename_model(context: Context, names: tuple[str, str]) -> None:
    from testbed.store import manage

    manage.rename_model(context.store, *names)
    click.echo(f"model {names[0]} is now {names[1]}")


def rename_eval_setting(context: Context, names: tuple[str, str]) -> None:
    from testbed.store import manage

    manage.rename_eval_setting(context.store, *names)
    click.echo(f"eval setting {names[0]} is now {names[1]}")


# ---- logits and tables -----------------------------------------------------------------------------------


def save_logits(context: Context, target: tuple[str, str]) -> None:
    from testbed.exchange import save_logits as save

    setting, folder = target
    written = save(context.store, context.registry, setting, Path(folder))
    click.echo(f"wrote {len(written)} file(s) and manifest.json to {folder}")


def import_logits(context: Context, folder: str) -> None:
    from testbed.exchange import import_logits as take_in

    taken = take_in(context.new_store, context.registry, Path(folder), context.override)
    click.echo(f"took in {len(taken)} evaluation(s) from {folder}")


def import_csv(context: Context, file: str) -> None:
    """Published accuracies, kept under --source beside own results; --types gives the models' types."""
    from testbed.store import published

    if not context.source:
        raise TestbedError("--import-csv needs --source NAME, where the numbers were published")
    table = published.read_csv(Path(file))
    types = published.read_types(Path(context.types)) if context.types else {}
    sizes = {name: entry.size for name, entry in context.registry.eval_settings.entries.items() if entry.size}
    done = published.import_published(context.new_store, table, types, context.source, sizes)
    untyped = f", {done.without_type} of them without a type" if done.without_type else ""
    click.echo(
        f"{context.source}: {done.results:,} results of {done.models} models{untyped} on {done.settings} eval settings"
    )


def recompute_metrics(context: Context) -> None:
    from testbed.exchange import recompute_metrics as recompute

    done, problems = recompute(context.store, context.registry, context.pattern)
    for problem in problems:
        click.echo(f"not measured: {problem}", err=True)
    click.echo(f"measured {done} evaluation(s) again from stored logits")


def verify(context: Context) -> None:
    from testbed.store import manage

    checked = [(evaluation, problem) for evaluation, problem in manage.verify(context.store)]
    bad = [(e, p) for e, p in checked if p]
    for evaluation, problem in bad:
        click.echo(f"{evaluation.model} on {evaluation.eval_setting}: {problem}", err=True)
    if bad:
        raise TestbedError(
            f"{len(bad)} of {len(checked)} evaluations are not whole: eval.py --overwrite runs them again"
        )
    click.echo(f"all {len(checked)} logits files are as they were written")


def export(context: Context, file: str) -> None:
    from testbed.exchange import export_results

    click.echo(f"wrote {export_results(context.store, Path(file))} results to {file}")


def print_setting(context: Context, name: str) -> None:
    """Everything an eval setting declares, as JSON."""
    setting = context.registry.runnable(name)
    facts = {k: v for k, v in vars(setting).items() if k not in ("arguments", "noise_key") and v not in (None, ())}
    for long in ("class_sublist", "idx_subsample_list"):
        if long in facts and len(facts[long]) > 20:
            facts[long] = f"{len(facts[long])} indices, {facts[long][0]} to {facts[long][-1]}"
    click.echo(
        json.dumps({**facts, "declared_at": context.registry.eval_settings.origins[name]}, indent=1, default=repr)
    )
