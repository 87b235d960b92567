"""Flags of db.py that print a result, the declaration of a setting, and (testbed.commands.status) all states."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import LOOK, Action, Context
from testbed.commands.options import say
from testbed.commands.status import status
from testbed.commands.tables import cell, in_plain_words, labelled_lines, text_table, with_interval
from testbed.data.samples import Dataset
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.store.evaluation import Evaluation, Number


_PUBLISHED = "imagenet-testbed"  # the tag of settings that the published results have


def print_eval(context: Context, pair: tuple[str, str]) -> None:
    """Print the metrics of an evaluation with intervals and n, then its provenance."""
    from testbed.store.find import find_one, numbers_of

    try:
        evaluation = find_one(context.store, *pair, context.variant, context.version, context.source)
    except TestbedError as error:
        raise type(error)(f"{error}{_published_hint(context, pair[1])}") from error
    metrics = numbers_of(context.store, evaluation)
    if context.style != "table":
        rows = [n._asdict() for n in metrics]
        context.print(rows, ["metric", "value", "ci_low", "ci_high", "n", "unit", "better", "source"])
        return
    click.echo(f"{evaluation.label}\n")
    directed = any(n.better for n in metrics)
    header = ["metric", "value [95 % interval]", "n", *(["better"] if directed else [])]
    lines = [[_named(n), with_interval(n.value, n.ci_low, n.ci_high), cell(n.n), n.better or ""] for n in metrics]
    if metrics or _has_labels(context, evaluation):
        # The column `better` is left out where no metric has a direction.
        click.echo(text_table([line[: len(header)] for line in lines], header))
    else:
        click.echo("no labels: the logits are stored, and there is nothing to measure an accuracy by")
    if evaluation.warning:
        say(f"\nwarning: {evaluation.warning}")
    for line in _mixed_with(context, evaluation):
        say(f"\n{line}")
    click.echo()
    facts = [*_provenance(evaluation), *(("also stored", line) for line in _others(context, evaluation))]
    click.echo(labelled_lines(shutil.get_terminal_size((160, 24)).columns, facts))


def _published_hint(context: Context, setting: str) -> str:
    """The command for published results, to end an error about a model and a setting that they may have."""
    settings = context.registry_part("eval_settings").eval_settings
    if setting not in settings.tagged(_PUBLISHED):
        return ""
    return f"; `python db.py --download {_PUBLISHED}-results` fetches the published ones"


def _mixed_with(context: Context, evaluation: Evaluation) -> list[str]:
    """Which other models were run on other data of the same setting."""
    from testbed.store.mixed import lines, mixed_data

    mixed = mixed_data(context.store)
    return lines([m for m in mixed if evaluation.id in {id_ for id_, _, _ in (*m.older, *m.newest)}])


def _named(number: Number) -> str:
    return f"{number.metric} ({number.unit})" if number.unit else number.metric


def _has_labels(context: Context, evaluation: Evaluation) -> bool:
    """Whether any image of the evaluation has a label; yes for published results, which have no list of images."""
    path = evaluation.samples_path
    return not path or context.store.place(path).rows().has_labels


def _provenance(evaluation: Evaluation) -> list[tuple[str, str]]:
    """(label, text) of everything that is recorded about how a result was made; empty values are left out."""
    facts = evaluation.provenance
    listed: dict[str, Any] = {
        "source": evaluation.source if evaluation.published else None,
        "setting version": evaluation.version or None,
        "images": evaluation.n_images,
        "finished": evaluation.finished_at,
        "seconds": evaluation.seconds,
        "images per second": evaluation.images_per_second,
        "device": evaluation.device,
        "dtype": evaluation.dtype,
        "seed": evaluation.seed,
        "weights sha256": evaluation.weights_sha256,
        "data fingerprint": evaluation.dataset_fingerprint,
        "logits": evaluation.logits_path,
        "logits sha256": evaluation.logits_sha256,
        "checkpoint": facts.checkpoint,
        "weights files": dict(facts.weights_files),
        "model transform": facts.model_transform,
        "normalization": facts.normalization,
        "recorded": list(facts.recorded),
        "rotation head": dict(facts.rotation_head),
        "logits dtype": facts.logits_dtype,
        **{name.replace("_", " "): value for name, value in facts.other.items()},
        "versions": dict(facts.versions),
    }
    # "None" is how the store keeps that a model has no transform of its own.
    return [(k, in_plain_words(v)) for k, v in listed.items() if v not in (None, "", "None", [], {})]


def _others(context: Context, shown: Evaluation) -> list[str]:
    """The other evaluations of the same pair: partial runs, other versions, published numbers."""
    from testbed.store.find import EVERY, find

    every = find(context.store, [shown.model], [shown.eval_setting], EVERY, EVERY, EVERY)
    return [_how_to_show(e) for e in every if e.id != shown.id]


def _how_to_show(evaluation: Evaluation) -> str:
    """What an evaluation is, and the options that make --print-eval show it."""
    if evaluation.published:
        return f"published by {evaluation.source} (--source {evaluation.source})"
    options = f"--version {evaluation.version}" + (f" --variant {evaluation.variant}" if evaluation.variant else "")
    return f"{evaluation.variant or 'whole setting'}, version {evaluation.version} ({options})"


def print_setting(context: Context, name: str) -> None:
    """Print everything that an eval setting declares or inherits, as JSON."""
    setting = context.registry.runnable(name)
    declared = context.registry.eval_setting(name)
    facts = {k: v for k, v in vars(setting).items() if k != "arguments" and v not in (None, ())}
    for long in ("class_sublist", "idx_subsample_list"):
        if len(facts.get(long, ())) > 20:
            facts[long] = f"{len(facts[long])} indices, {facts[long][0]} to {facts[long][-1]}"
    # `runnable` has resolved these two into a dataset, so they are taken from the declaration.
    facts |= {"logits_from": declared.logits_from, "images_from": declared.images_from}
    facts["declared_at"] = context.registry.eval_settings.origins.get(name)
    click.echo(json.dumps({k: v for k, v in facts.items() if v is not None}, indent=1, default=_in_words))


def _in_words(value: Any) -> str:
    """A value that JSON does not know: a dataset, a function or an object of a registry file."""
    if isinstance(value, Dataset):
        return value.describe()
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if name else repr(value)


ACTIONS = (
    Action(
        "print-setting",
        print_setting,
        "Everything a setting declares.",
        ("SETTING",),
        purpose=LOOK,
        as_command="show-setting",
    ),
    Action(
        "print-eval",
        print_eval,
        "Metrics with intervals, and where they come from.",
        ("MODEL", "SETTING"),
        purpose=LOOK,
        reads=("variant", "version", "source", "style"),
        as_command="show",
    ),
    Action(
        "status",
        status,
        "Which pairs are done, damaged, failed, running, stopped or missing; counted where a matrix has no room.",
        options=(("full", "", "Every pair and every error."),),
        purpose=LOOK,
        reads=("pattern", "style"),
    ),
)
