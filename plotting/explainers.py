"""Explainers side by side: means with intervals per explainer and model, as a table and as a figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import QUIET, color_of, dot, head, legend_below, new_panels, save, save_text
from _options import (
    db_option,
    figure_command,
    many,
    models_option,
    out_option,
    settings_option,
    title_option,
    variant_option,
)
from _results import tell_mixed
from _tables import as_csv, markdown

from testbed.errors import StoreError
from testbed.explain.explainers import CONTROLS
from testbed.metrics.contrastive import clustered_mean
from testbed.metrics.estimate import UNDECLARED, Estimate
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import EVERY, find, meant_variant, nothing_found, numbers
from testbed.store.measuring import read_outputs
from testbed.store.names import matches
from testbed.store.opening import open_store

_SHOWN = ("cauc", "cauc_per_area", "cdrop", "deletion_auc", "insertion_auc")
# From a 95 % interval back to the standard error of a mean.
_Z = 1.959963984540054


@dataclass(frozen=True)
class Measured:
    """An explainer on one model: its means, its counts, and its rows."""

    model: str
    label: str
    metrics: dict[str, Estimate]
    rows: Mapping[str, np.ndarray]
    variant: str

    @property
    def is_control(self) -> bool:
        return explainer_in(self.label) in CONTROLS

    def count(self, name: str) -> int:
        return int(self.metrics[name].value)


@figure_command()
@db_option
@models_option
@settings_option
@many("--metrics", metavar="NAME...", text=f"Numbers to show.  [default: {' '.join(_SHOWN)}]")
@click.option("--against", default="random", show_default=True, metavar="NAME", help="Explainer that others must beat.")
@variant_option
@click.option("--table", type=click.Path(path_type=Path), metavar="FILE", help="FILE.md or .csv.  [default: print]")
@title_option
@out_option("figures/explainers")
def main(
    *,
    db: str | None,
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    metrics: tuple[str, ...],
    against: str,
    variant: str | None,
    table: Path | None,
    title: str | None,
    out: Path,
) -> None:
    """Compare explainers by their faithfulness to the model; controls are always shown.

    \b
        python plotting/explainers.py --eval-settings 'contrastive-*'
    """
    measured = read(open_store(db), models, eval_settings, variant)
    shown = [name for name in metrics or _SHOWN if any(name in m.metrics for m in measured)]
    if not shown:
        raise StoreError(f"no explanations have {' or '.join(metrics)}; there is {', '.join(measured[0].metrics)}")
    header, cells = as_table(measured, shown, against)
    if table is None:
        click.echo(markdown(header, cells))
    else:
        save_text(table, as_csv(header, cells) if table.suffix == ".csv" else markdown(header, cells))
    save(figure_of(measured, shown, title), out)


def read(store: Store, models: Sequence[str], settings: Sequence[str], variant: str | None) -> list[Measured]:
    """Everything asked for that has a CAUC, with the controls of the same rows; controls stand last."""
    if variant is None:
        # Of the explanations alone: whole results on other settings say nothing about them.
        every = numbers(store, models or None, settings or None, "n_invalid", EVERY, source=OWN)
        variant = meant_variant(store, models or None, sorted({n.eval_setting for n in every}) or None, OWN)
    # What counts invalid maps is an explanation. Asked first, so that no other number of the database is read.
    explained = {n.eval_setting for n in numbers(store, models or None, None, "n_invalid", variant, source=OWN)}
    words = (models or None, sorted(explained), variant)
    metrics: dict[int, dict[str, Estimate]] = {}
    for number in numbers(store, *words[:2], variant=variant, source=OWN) if explained else ():
        if number.value is not None:
            metrics.setdefault(number.evaluation_id, {})[number.metric] = number.estimate
    asked, controls = [], []
    for evaluation in find(store, *words, source=OWN) if explained else ():
        if not evaluation.logits_path or "n_invalid" not in metrics.get(evaluation.id, {}):
            continue
        rows = read_outputs(store, evaluation).extras
        measured = Measured(
            evaluation.model, label_of(evaluation.eval_setting), metrics[evaluation.id], rows, evaluation.variant
        )
        if matches(evaluation.eval_setting, settings or None):
            asked.append(measured)
        elif measured.is_control:
            controls.append(measured)
    if not asked:
        raise _no_explanations(store, models, settings, variant)
    # Only those of the same images and contrasts, so that differences are paired.
    asked += [c for c in controls if any(same_rows(c, other) for other in asked)]
    tell_mixed(store, set(metrics))
    return sorted(asked, key=lambda m: (m.is_control, m.label, m.model))


def _no_explanations(store: Store, models: Sequence[str], settings: Sequence[str], variant: str) -> Exception:
    """Where the words do name explanations of another variant, what there is; else how to make some."""
    if numbers(store, models or None, settings or None, "n_invalid", EVERY, source=OWN):
        return nothing_found(store, models or None, settings or None, variant, source=OWN)
    return StoreError(f"the {store.where} holds no such explanations: run eval.py --eval-settings contrastive first")


def same_rows(one: Measured, other: Measured) -> bool:
    """Whether both explain the same classes of the same images against the same contrasts."""
    if one.model != other.model:
        return False
    return all(np.array_equal(one.rows[name], other.rows[name]) for name in ("positive", "contrast"))


def label_of(setting: str) -> str:
    """contrastive-rise -> rise; explanations:rise,masks=99@val -> rise,masks=99@val."""
    return setting.removeprefix("contrastive-").removeprefix("explanations:").removesuffix("@imagenet-samples")


def explainer_in(label: str) -> str:
    """rise,masks=99@val -> rise; rise.val -> rise."""
    return re.split("[,.@]", label)[0]


def difference(of: Measured, among: Sequence[Measured], metric: str, against: str) -> Estimate | None:
    """Mean of (this - that) over the rows that both could measure: the same images, classes and contrasts."""
    for other in among:
        if other is of or explainer_in(other.label) != against or not same_rows(of, other):
            continue
        apart = np.asarray(of.rows[metric]) - np.asarray(other.rows[metric])
        image, row = np.nonzero(np.isfinite(apart))
        return clustered_mean(apart[image, row], image, UNDECLARED) if len(image) else None
    return None


def better(measured: Sequence[Measured], metric: str) -> str:
    """Which way the metric is better, as its numbers declare: "lower is better", or nothing."""
    direction = next((m.metrics[metric].kind.better for m in measured if metric in m.metrics), None)
    return f"{direction} is better" if direction else ""


def as_table(measured: Sequence[Measured], shown: Sequence[str], against: str) -> tuple[list[str], list[list[str]]]:
    """Mean ± standard error of each number, CDROP and CAUC less those of the control, and how many maps counted."""
    compared = [name for name in ("cauc", "cdrop") if name in shown]
    directions = {name: better(measured, name) for name in shown}
    header = ["model", "explainer", *(f"{name} ({words})" if words else name for name, words in directions.items())]
    header += [f"{name} - {against}" for name in compared] + ["salient %", "n valid", "n invalid"]
    cells = []
    for m in measured:
        means = [with_error(m.metrics.get(name)) for name in shown]
        apart = [with_error(difference(m, measured, name, against)) for name in compared]
        area = m.metrics.get("salient_percent")
        counts = [str(m.count("n_valid")), str(m.count("n_invalid"))]
        cells.append([m.model, m.label, *means, *apart, f"{area.value:.1f}" if area else "", *counts])
    return header, cells


def with_error(estimate: Estimate | None) -> str:
    """Mean ± standard error, to two digits of the error."""
    if estimate is None:
        return ""
    if estimate.ci_low is None or estimate.ci_high is None:
        return f"{estimate.value:.4g}"
    error = (estimate.ci_high - estimate.ci_low) / (2 * _Z)
    digits = min(max(1 - int(np.floor(np.log10(error))), 0), 8) if error > 0 else 4
    return f"{estimate.value:.{digits}f} ± {error:.{digits}f}"


def figure_of(measured: Sequence[Measured], shown: Sequence[str], title: str | None) -> Any:
    """A panel per number, explainers down, a point with its interval for each model."""
    labels = list(dict.fromkeys(m.label for m in measured))
    models = list(dict.fromkeys(m.model for m in measured))
    controls = {m.label for m in measured if m.is_control}
    panels = new_panels(len(shown), 3, size=(3.7, 0.9 + 0.3 * len(labels)), room=(4.5, 1.3))
    for ax, metric in zip(panels.each, shown, strict=True):
        _draw_panel(ax, measured, metric, labels, models)
        ax.set_yticks(range(len(labels)), labels if ax in panels.left else [""] * len(labels))
        for tick, label in zip(ax.get_yticklabels(), labels, strict=True):
            tick.set_color(QUIET if label in controls else "black")
        ax.set_ylim(len(labels) - 0.5, -0.5)
    legend_below(panels.figure, [dot(color_of(i), model, line=True) for i, model in enumerate(models)])
    valid, invalid = (sum(m.count(name) for m in measured) for name in ("n_valid", "n_invalid"))
    note = f"Means over (image, class) rows, bars: 95 % intervals; {valid} valid maps, {invalid} invalid ones left out."
    missing = [c for c in CONTROLS if c not in {explainer_in(label) for label in controls}]
    notes = [note, f"No results of the control {' and '.join(missing)}."] if missing else [note]
    head(panels.figure, title or "Faithfulness of explanations", notes, measured[0].variant)
    return panels.figure


def _draw_panel(ax: Any, measured: Sequence[Measured], metric: str, labels: list[str], models: list[str]) -> None:
    for m in measured:
        estimate = m.metrics.get(metric)
        if estimate is None:
            continue
        number = models.index(m.model)
        place = labels.index(m.label) + 0.6 * ((number + 0.5) / len(models) - 0.5)
        color = color_of(number)
        if estimate.ci_low is not None and estimate.ci_high is not None:
            ax.plot([estimate.ci_low, estimate.ci_high], [place, place], color=color, linewidth=1.2, alpha=0.6)
        # Controls are hollow: they are there to be beaten, not to be compared.
        style = dict(markerfacecolor="white") if m.is_control else {}
        ax.plot(estimate.value, place, "o", color=color, markersize=5, **style)
    words = better(measured, metric)
    arrow = {"lower is better": f"← {words}", "higher is better": f"{words} →"}.get(words, "")
    ax.set(title=metric, xlabel=arrow)
    ax.locator_params(axis="x", nbins=5)


if __name__ == "__main__":
    main()
