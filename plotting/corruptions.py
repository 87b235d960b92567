"""How accuracy falls with the severity of each corruption, and the mean corruption error of each model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import QUIET, beside, counts, head, legend_below, new_figure, new_panels, patch, reach, save
from _model_types import TYPES
from _options import figure_command, highlight_option, read_results, source_options, table_options
from _results import Column, Results
from _settings import SEVERITY

from testbed.commands.options import registry_option
from testbed.entries.registry import Registry, load_registry
from testbed.errors import TestbedError, counted
from testbed.metrics import corruption_error
from testbed.metrics.aggregates import Combinations, CorruptionSummary
from testbed.metrics.estimate import Estimate
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.opening import open_store
from testbed.studies.groups import stored_group

FEW = 8  # so many models get a curve each
MOST_BARS = 40
MEAN = "mean of all"  # the panel over corruptions
ENDS = ("value", "low", "high")
Family = dict[str, dict[int, str]]  # corruption to severity to setting


@figure_command()
@source_options
@registry_option
@click.option(
    "--clean", metavar="SETTING", help="Severity 0.  [default: the setting without corruption, if there is one]"
)
@click.option(
    "--reference-model",
    metavar="NAME",
    help="Whose errors are 100 %.  [default: the baseline of the registered group, as AlexNet on imagenet-c]",
)
@highlight_option
@table_options("figures/corruptions")
def main(
    *,
    registry: tuple[str, ...],
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    types: tuple[str, ...],
    clean: str | None,
    reference_model: str | None,
    highlight: tuple[str, ...],
    title: str | None,
    out: Path,
    **options: Any,
) -> None:
    """Draw severity curves (PATH-curves) and mean corruption errors (PATH-mce).

    \b
        python plotting/corruptions.py --models 'digits_*' --eval-settings 'digits.*'
        python plotting/corruptions.py --eval-settings 'imagenet-c.*_on-disk' --highlight resnet50
    """
    db = options["db"]
    results = read_results(options, models, eval_settings)
    results = results.keep(results.chosen(models, types))
    base, family = chosen_family(results, eval_settings)
    strong = results.highlighted(highlight)
    clean = clean or clean_of(base, results.settings)
    save(curves(results, base, family, clean, strong, title), beside(out, "curves"))
    entries = load_registry(registry)
    errors, words = reference_errors(results, entries, family, reference_model)
    stored = Stored(open_store(db), entries)
    save(bars(results, family, errors, words, strong, title, stored), beside(out, "mce"))


def chosen_family(results: Results, patterns: tuple[str, ...]) -> tuple[str, Family]:
    """The settings that differ in corruption and severity only; of several such families the largest."""
    names = dict.fromkeys(n for p in patterns or ("*",) for n in results.column(p).settings)
    families: dict[str, Family] = {}
    for name in names:
        parts = SEVERITY.fullmatch(name)
        if parts:
            base = f"{parts['base']}{parts['suffix'] or ''}".removeprefix("under@")
            family = families.setdefault(base, {})
            family.setdefault(parts["corruption"], {})[int(parts["severity"])] = name
    if not families:
        words = "no setting here is named BASE.CORRUPTION.SEVERITY, such as digits.contrast.3"
        raise TestbedError(f"{words}{results.instead}")
    chosen = max(families, key=lambda key: sum(map(len, families[key].values())))
    for other in families.keys() - {chosen}:
        click.echo(f"drawing {chosen}; {other} is there too (choose with --eval-settings)", err=True)
    return chosen, families[chosen]


def clean_of(base: str, known: list[str]) -> str | None:
    """The setting without corruption: the base name itself, or val for ImageNet-C."""
    name = base.split("_")[0]
    return next((n for n in (base, name, "val" if name.startswith("imagenet") else None) if n in known), None)


# ---- severity curves -------------------------------------------------------------------------------------


def curves(
    results: Results, base: str, family: Family, clean: str | None, strong: np.ndarray, title: str | None = None
) -> Any:
    """A panel per corruption: a curve per model where they are few, else the mean of each type and highlighted ones."""
    shown = [name for severities in family.values() for name in severities.values()]
    places = [results.settings.index(name) for name in shown]
    some = np.isfinite(results.value[:, places]).any(axis=1)
    # Others, such as published models that were never run on these settings, have no say in how it is drawn.
    results, strong = results.keep(some), strong[some]
    each = len(results.points) <= FEW
    by_panel = panel_columns(results, family, clean)
    panels = new_panels(len(by_panel), 5, size=(2.1, 1.75), room=(6.5, 1.4), sharey=True)
    handles: dict[str, Any] = {}
    for ax, (name, levels) in zip(panels.each, by_panel.items(), strict=True):
        value, low, high = (np.column_stack([getattr(c, end) for c in levels.values()]) for end in ENDS)
        if each:
            handles |= _curve_each(ax, results, list(levels), value, low, high)
        else:
            handles |= _curve_types(ax, results, list(levels), value)
            handles |= _curve_strong(ax, results, list(levels), value, strong)
        ax.set_title(name, fontsize=8.5, fontweight="bold" if name == MEAN else "normal")
        ax.set_xticks(list(levels))
        ax.tick_params(labelsize=7.5)
    for ax in panels.left:
        ax.set_ylabel(results.axis_label)
    for ax in panels.bottom:
        ax.set_xlabel("severity" + (f" (0: {clean})" if clean else ""), fontsize=8)
    legend_below(panels.figure, list(handles.values()), 4)
    bands = f"{100 * results.confidence:g} % intervals" if each else "the middle 80 % of its models, of 3 or more"
    summary = "a curve each" if each else "a curve for the mean of each type, of the models that have all severities"
    n = counts(results.n[:, places])
    note = f"{counted(len(results.points), 'model')}, {n} images each; {summary}; bands: {bands}."
    what = "Accuracy" if results.is_accuracy else results.metric
    head(panels.figure, title or f"{what} by severity: {base}", [note], results.variant)
    return panels.figure


def panel_columns(results: Results, family: Family, clean: str | None) -> dict[str, dict[int, Column]]:
    """Title of each panel to its severities: first the mean of all corruptions, at severities that all of them have."""
    start = {0: results.column(clean)} if clean else {}
    panels = {}
    shared = sorted(set.intersection(*(set(severities) for severities in family.values())))
    if len(family) > 1 and shared:
        means = {level: results.column(",".join(s[level] for s in family.values())) for level in shared}
        panels[MEAN] = start | means
    for corruption, severities in sorted(family.items()):
        columns = {level: results.column(name) for level, name in sorted(severities.items())}
        panels[corruption.replace("_", " ")] = start | columns
    return panels


def _curve_each(
    ax: Any, results: Results, levels: list[int], value: np.ndarray, low: np.ndarray, high: np.ndarray
) -> dict[str, Any]:
    handles = {}
    for i, point in enumerate(results.points):
        if np.isfinite(value[i]).any():
            (handles[point.label],) = ax.plot(
                levels, value[i], color=f"C{i}", marker="o", markersize=2.5, linewidth=1.3, label=point.label
            )
            ax.fill_between(levels, low[i], high[i], color=f"C{i}", alpha=0.15, linewidth=0)
    return handles


def _curve_types(ax: Any, results: Results, levels: list[int], value: np.ndarray) -> dict[str, Any]:
    handles = {}
    # A model that lacks a severity would bend the mean there.
    whole = np.isfinite(value).all(axis=1)
    for kind in TYPES.values():
        rows = whole & np.array([p.type == kind.tag for p in results.points])
        if not rows.any():
            continue
        label = f"{kind.label} ({rows.sum()})"
        (handles[kind.tag],) = ax.plot(levels, value[rows].mean(axis=0), color=kind.color, label=label)
        # The middle 80 % of two models says nothing.
        if rows.sum() >= 3:
            middle = np.percentile(value[rows], [10, 90], axis=0)
            ax.fill_between(levels, *middle, color=kind.color, alpha=0.1, linewidth=0)
    return handles


def _curve_strong(
    ax: Any, results: Results, levels: list[int], value: np.ndarray, strong: np.ndarray
) -> dict[str, Any]:
    handles = {}
    for i, style in zip(strong.nonzero()[0], ("-", "--", ":", "-.") * len(strong), strict=False):
        label = results.points[i].label
        (handles[label],) = ax.plot(levels, value[i], color="black", linestyle=style, linewidth=1.2, label=label)
    return handles


# ---- mean corruption error -------------------------------------------------------------------------------


def reference_errors(
    results: Results, registry: Registry, family: Family, model: str | None
) -> tuple[Mapping[str, float], str]:
    """Summed error in percent of the reference on each corruption that counts, and who it is.

    Without any reference a corruption counts as its number of severities, which makes the plain mean error.
    """
    if model is not None:
        rows = results.matching([model]).nonzero()[0]
        sums = {
            c: float((100 - results.column(",".join(s.values())).value[rows[0]]) * len(s)) for c, s in family.items()
        }
        # What the reference makes no error on cannot be relative to it.
        known = {corruption: error for corruption, error in sums.items() if error > 0}
        return known, f"relative to {results.points[rows[0]].label}"
    declared = _declared(registry, family)
    if declared is not None:
        # A corruption counts only with all severities that the baseline was summed over.
        errors = declared.baseline.items()
        whole = {c: 100 * sum(e) for c, e in errors if len(family.get(c, ())) == len(e)}
        return whole, f"relative to {declared.baseline_model}"
    return {c: 100.0 * len(s) for c, s in family.items()}, "not relative to any model"


def _declared(registry: Registry, family: Family) -> CorruptionSummary | None:
    """The aggregate of a registered group that has these settings and errors of a baseline."""
    shown = {name for severities in family.values() for name in severities.values()}
    for aggregate in registry.eval_settings.aggregates.values():
        for part in getattr(aggregate, "parts", (aggregate,)):
            if isinstance(part, CorruptionSummary) and shown & {
                part.pattern.format(corruption=corruption, severity=1) for corruption in part.baseline
            }:
                return part
    return None


@dataclass(frozen=True)
class Stored:
    """Where logits of own results lie."""

    store: Store
    registry: Registry


def mean_corruption_error(
    results: Results, family: Family, errors: Mapping[str, float], stored: Stored | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """mCE in percent of every point with its interval; NaN where one is missing.

    The interval of own results in `stored` is that of `db.py --print-group`, which knows what images settings share.
    """
    accuracies = {}
    for corruption in errors:
        columns = [results.column(setting) for setting in family[corruption].values()]
        ends = [np.stack([getattr(c, end) for c in columns], axis=-1) for end in ("value", "low", "high")]
        accuracies[corruption] = np.stack(ends)
    value, low, high = corruption_error.mean_corruption_error(accuracies, errors)
    own = [i for i, point in enumerate(results.points) if point.source == OWN and np.isfinite([low[i], high[i]]).all()]
    for i in own if stored is not None else ():
        low[i], high[i] = _shared_images(results, family, errors, stored, i)
    return value, low, high


def _shared_images(
    results: Results, family: Family, errors: Mapping[str, float], stored: Stored, i: int
) -> tuple[float, float]:
    """The ends of the mCE of one point, from the images that its settings share."""
    settings = {corruption: list(family[corruption].values()) for corruption in errors}
    estimates = {}
    for setting in (name for members in settings.values() for name in members):
        column = results.column(setting)
        estimates[setting] = Estimate(float(column.value[i]), float(column.low[i]), float(column.high[i]))
    group = stored_group(stored.store, stored.registry, results.points[i].model, list(estimates), results.variant)
    shares = {c: [error / 100 / len(settings[c])] * len(settings[c]) for c, error in errors.items()}
    mce = Combinations(group, results.metric, estimates)(*corruption_error.mce_weights(settings, shares))
    assert mce.ci_low is not None and mce.ci_high is not None  # since every member has them
    return mce.ci_low, mce.ci_high


def bars(
    results: Results,
    family: Family,
    errors: Mapping[str, float],
    words: str,
    strong: np.ndarray,
    title: str | None = None,
    stored: Stored | None = None,
) -> Any:
    """A bar per model, the best on top."""
    if not results.is_accuracy or not errors:
        raise TestbedError(f"the mean corruption error needs accuracies on whole corruptions, got {results.metric}")
    value, low, high = mean_corruption_error(results, family, errors, stored)
    order = np.argsort(value)[: np.isfinite(value).sum()]
    if not len(order):
        raise TestbedError(f"no model has results on all severities of all corruptions{results.instead}")
    chosen = order if len(order) <= MOST_BARS else _best_and_strong(order, strong)
    figure, ax = new_figure(7.2, 0.19 * len(chosen) + 1.5)
    places = np.arange(len(chosen))[::-1]
    colors = [TYPES[results.points[i].type].color for i in chosen]
    ends = reach(value[chosen], low[chosen], high[chosen])
    ax.barh(places, value[chosen], xerr=ends, color=colors, alpha=0.8, height=0.75, error_kw={"elinewidth": 0.8})
    for place, i, right in zip(places, chosen, ends[1], strict=True):
        ax.text(value[i] + right, place, f" {value[i]:.1f}", va="center", fontsize=7, color=QUIET)
    names = [results.points[i].label for i in chosen]
    ax.set_yticks(places, names, fontsize=7)
    ax.set_ylim(-0.7, len(chosen) - 0.3)
    ax.margins(x=0.08)  # room for the numbers
    ax.grid(visible=False, axis="y")
    ax.set_xlabel("mean corruption error, %: lower is better")
    kinds = dict.fromkeys(results.points[i].type for i in chosen)
    legend_below(figure, [patch(TYPES[kind].color, TYPES[kind].label, 0.8) for kind in kinds])
    some = "" if len(chosen) == len(order) else f"; the best {MOST_BARS} of {len(order)} models, and highlighted ones"
    places = [results.settings.index(name) for c in errors for name in family[c].values()]
    images = f"{counts(results.n[chosen][:, places])} images each"
    level = f"{100 * results.confidence:g} % intervals"
    note = f"Over {len(errors)} corruptions, {images}, {words}{some}. Thin lines: {level}."
    head(figure, title or "Mean corruption error", [note], results.variant)
    return figure


def _best_and_strong(order: np.ndarray, strong: np.ndarray) -> np.ndarray:
    return np.array([row for place, row in enumerate(order) if place < MOST_BARS or strong[row]])


if __name__ == "__main__":
    main()
