"""The flag of db.py that checks the calculation of shape bias on networks with published values, and on DeiT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from testbed.commands.action import COMPARE, Action, Context
from testbed.commands.downloading import download, fetch_weights_of, use_weights_folder, weights_models, weights_place
from testbed.commands.options import as_called, say
from testbed.commands.tables import text_table
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.studies.references.validation import Entry, Measured, Route

_WIDTH = 78
_BOTH = "always 0: shape and texture differ, one is named"


def validate_shape_bias(context: Context, *, test: str | None, checkpoint: tuple[str, ...]) -> None:
    """Download, evaluate, compare. The exit code is 1 where a network does not agree, or none could be measured."""
    from testbed.entries.registry import registry_folders
    from testbed.store.evaluation import OWN
    from testbed.store.find import numbers
    from testbed.studies.references import table, validation

    folders = registry_folders(context.registry_folders)
    use_weights_folder(context)
    entries = _chosen(context, validation.read_suite(folders), test or "both", checkpoint)
    _get_stimuli(context)
    _run(context, entries)
    stored = numbers(context.new_store, [e.model for e in entries], [validation.SETTING], variant="", source=OWN)
    found = validation.measured(entries, stored, table.read_references(folders))
    if not found:
        raise TestbedError("nothing to compare: none of the networks could be measured, as told above")
    ways = _ways(context, found)
    rows = [_row(m) for m in found]
    if context.style != "table":
        context.print(rows, list(rows[0]))
    else:
        _print_comparison(found)
        _print_breakdown(found)
        for network in ways.values():
            _print_ways(network)
        _print_end(found, ways, [e.title for e in entries if e not in [m.entry for m in found]])
    bad = [m for m in found if m.verdict in (validation.NEAR, validation.OFF)]
    if bad:
        raise TestbedError(f"{len(bad)} of {len(found)} networks do not have their published shape bias")


# ---- what is run -----------------------------------------------------------------------------------------


def _chosen(context: Context, suite: list[Entry], test: str, names: Sequence[str]) -> list[Entry]:
    """The models of --test, or those that --checkpoint names: a model, a group, or a weights file."""
    from testbed.entries.registry import registry_folders
    from testbed.models.weights import read_published
    from testbed.studies.references.validation import TESTS

    if test not in (*TESTS, "both"):
        raise TestbedError(f"--test: expected {', '.join(TESTS)} or both, got '{test}'")
    if not names:
        return [e for e in suite if e.usual and test in (e.test, "both")]
    published = read_published(registry_folders(context.registry_folders))
    models = {model for name in names for model in weights_models(context, name, published)}
    chosen = [e for e in suite if e.model in models and test in (e.test, "both")]
    others = models - {e.model for e in suite}
    if others or not chosen:
        known = ", ".join(e.model for e in suite)
        what = min(others) if others else " ".join(names)
        raise TestbedError(f"--checkpoint: '{what}' is not in this test; expected one of {known}, or its file or group")
    return chosen


def _get_stimuli(context: Context) -> None:
    from testbed.data.download import find_place
    from testbed.data.locate import data_roots
    from testbed.studies.references.validation import SETTING

    dataset = context.registry.runnable(SETTING).dataset
    if dataset is not None and find_place(dataset, data_roots(context.data_root)) is None:
        download(context, [SETTING])


def _run(context: Context, entries: Sequence[Entry]) -> None:
    """Evaluate what is not stored yet. A model that cannot be had or run is told in one line, and the rest goes on."""
    from testbed.data.locate import data_roots
    from testbed.engine.run import run_evaluations
    from testbed.options import RunOptions
    from testbed.store.evaluation import OWN
    from testbed.store.find import find
    from testbed.studies.references.validation import SETTING

    store = context.new_store
    done = {e.model for e in find(store, [e.model for e in entries], [SETTING], variant="", source=OWN)}
    absent = fetch_weights_of(context, [e.model for e in entries if e.model not in done])
    _tell_absent({e.title: absent[e.model] for e in entries if e.model in absent})
    models = [e.model for e in entries if e.model not in absent]
    if not models:
        return
    options = RunOptions(
        data_roots=tuple(str(root) for root in data_roots(context.data_root)),
        registry=context.registry_folders,
        cache_folder=str(store.folder / "cache"),
        results_folder=str(store.folder),
    )
    report = run_evaluations(context.registry, store, models, [SETTING], options)
    for pair in report.failed:
        say(f"{pair.label}: {pair.error}", err=True)
    if report.interrupted:
        raise TestbedError("stopped; what is finished is kept, and the same command goes on from there")


def _tell_absent(reasons: Mapping[str, str]) -> None:
    """One line for each file that could not be had, and where a file goes that comes by another way."""
    for reason in dict.fromkeys(reasons.values()):
        titles = "; ".join(title for title, why in reasons.items() if why == reason)
        say(f"{titles}: no weights: {reason}", err=True)
    if reasons:
        click.echo(f"Files that you get in another way go into {weights_place()}, or into --checkpoint-dir.", err=True)


# ---- what is printed -------------------------------------------------------------------------------------


def _row(measured: Measured) -> dict[str, object]:
    return {
        "model": measured.entry.model,
        "title": measured.entry.title,
        "shape_bias": measured.bias,
        "expected": measured.expected,
        "difference": measured.difference,
        "verdict": measured.verdict,
        "shape_correct": measured.counts.shape,
        "texture_correct": measured.counts.texture,
        "both_correct": 0,
        "neither_correct": measured.counts.neither,
        "total_evaluated": measured.counts.stimuli,
    }


def _headline(text: str) -> None:
    click.echo(f"\n{'=' * _WIDTH}\n{text}\n{'=' * _WIDTH}")


def _print_comparison(found: Sequence[Measured]) -> None:
    _headline("SHAPE BIAS COMPARISON")
    rows = []
    for m in found:
        published = "" if m.expected is None else f"{m.expected:.2f}%"
        difference = "" if m.difference is None else f"{round(m.difference, 2) + 0.0:+.2f}%"
        rows.append([m.entry.title, f"{m.bias:.2f}%", published, difference, m.verdict or "none published"])
    click.echo(text_table(rows, ["Model", "Shape Bias", "Expected", "Difference", ""]))


def _print_breakdown(found: Sequence[Measured]) -> None:
    click.echo(f"\nDETAILED BREAKDOWN:\n{'-' * _WIDTH}")
    for m in found:
        click.echo(f"\n{m.entry.title}:")
        click.echo(f"  Shape correct:   {m.counts.shape:6}")
        click.echo(f"  Texture correct: {m.counts.texture:6}")
        click.echo(f"  Both correct:    {0:6}  ({_BOTH})")
        click.echo(f"  Neither correct: {m.counts.neither:6}")
        click.echo(f"  Total evaluated: {m.counts.stimuli:6}")
        click.echo(f"  Shape bias:      {m.bias:6.2f}%")


def _ways(context: Context, found: Sequence[Measured]) -> dict[str, list[Route]]:
    """The DeiT networks that were measured in at least two ways."""
    from testbed.studies.references.validation import routes

    networks: dict[str, list[Entry]] = {}
    for m in found:
        if m.entry.test == "deit":
            networks.setdefault(m.entry.title.partition(",")[0], []).append(m.entry)
    return {
        name: routes(context.new_store, context.registry, entries)
        for name, entries in networks.items()
        if len(entries) > 1
    }


def _print_ways(network: Sequence[Route]) -> None:
    from testbed.studies.references.validation import deit_verdict

    _headline(f"DEIT COMPARISON, each with {network[0].entry.title}")
    rows = [
        [r.entry.title, r.normalization, f"{r.bias:.2f}%", f"{r.others:,}", _points(r) if r.others else ""]
        for r in network
    ]
    click.echo(text_table(rows, ["Model", "mean, std", "Shape Bias", "changed", "difference in points"]))
    for line in deit_verdict(network):
        click.echo(click.wrap_text(as_called(line), _WIDTH))


def _points(route: Route) -> str:
    return f"{route.difference:+.2f} [{route.low:+.2f}, {route.high:+.2f}]"


def _print_end(found: Sequence[Measured], ways: dict[str, list[Route]], missing: Sequence[str]) -> None:
    """Whether the calculation is right, and the scenario of the diagnosis guide."""
    from testbed.studies.references.validation import AGREES, UNKNOWN, scenario

    _headline("VERDICT")
    known = [m for m in found if m.verdict != UNKNOWN]
    agreeing = [m for m in known if m.verdict == AGREES]
    if known and len(agreeing) == len(known):
        click.echo(f"The calculation is right: {len(known)} of {len(known)} networks have their published shape bias.")
    elif known:
        click.echo(f"{len(agreeing)} of {len(known)} networks have their published shape bias.")
    if missing:
        click.echo(click.wrap_text(f"Not measured, as told above: {', '.join(missing)}.", _WIDTH))
    for line in scenario(found, ways):
        click.echo(click.wrap_text(as_called(line), _WIDTH))


ACTIONS = (
    Action(
        "validate-shape-bias",
        validate_shape_bias,
        "Check the calculation of shape bias: download, evaluate and compare networks with published values, and "
        "DeiT by torch.hub, timm and Hugging Face.",
        (),
        (
            ("test", "NAME", "What is tested: resnet, deit or both.  [default: both]"),
            (
                "checkpoint",
                "NAME...",
                "Only these: resnet50_in, resnet50_sin, resnet50_sin_in, shape_resnet, "
                "deit_tiny, deit_small, deit_base, a model, or the name of a weights file.",
            ),
        ),
        purpose=COMPARE,
        reads=("checkpoint_dir", "data_root", "style"),
    ),
)
