"""Explainers side by side: means with intervals per explainer and model, as a table and as a figure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import QUIET, head, legend_below, new_figure, save
from _options import db_option, figure_command, many, models_option, out_option, settings_option, title_option

from testbed.errors import StoreError
from testbed.explain.explainers import CONTROLS
from testbed.metrics.contrastive import BETTER, clustered_mean
from testbed.metrics.estimate import Estimate
from testbed.store import queries
from testbed.store.database import Store
from testbed.store.files import write_aside
from testbed.store.opening import open_store

_COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:pink", "tab:cyan", "tab:olive")
_SHOWN = ("cauc", "cauc_per_area", "cdrop", "deletion_auc", "insertion_auc")
_Z = 1.959963984540054


@dataclass(frozen=True)
class Measured:
    """An explainer on one model: its means, its counts, and its rows."""

    model: str
    label: str
    metrics: dict[str, Estimate]
    rows: dict[str, np.ndarray]

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
@click.option("--variant", default="", metavar="NAME", help="Results of partial runs, such as limit=50.")
@click.option("--table", type=click.Path(path_type=Path), metavar="FILE", help="FILE.md or .csv.  [default: print]")
@title_option
@out_option("results/figures/explainers")
def main(
    db: str | None,
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    metrics: tuple[str, ...],
    against: str,
    variant: str,
    table: Path | None,
    title: str | None,
    out: Path,
) -> None:
    """Compare explainers by their faithfulness to the model; controls are always shown.

    \b
        python plotting/explainers.py --variant limit=50
    """
    found = read(open_store(db), models, eval_settings, variant)
    shown = [m for m in metrics or _SHOWN if any(m in f.metrics for f in found)]
    if not shown:
        raise StoreError(f"no explanations have {' or '.join(metrics)}; there is {', '.join(found[0].metrics)}")
    header, cells = as_table(found, shown, against)
    if table is None:
        click.echo(markdown(header, cells))
    else:
        text = as_csv(header, cells) if table.suffix == ".csv" else markdown(header, cells)
        write_aside(table, lambda aside: aside.write_text(text + "\n", encoding="utf-8") and None)
        click.echo(f"wrote {table}")
    save(figure_of(found, shown, title), out)


def read(store: Store, models: Sequence[str], settings: Sequence[str], variant: str) -> list[Measured]:
    """Everything asked for that has a CAUC, with the controls of the same rows; controls stand last."""
    found, controls = [], []
    for e in queries.evaluations(store, variant=variant):
        if e.status != "completed" or not e.row["logits_path"] or not queries.matches(e.model, models or None):
            continue
        metrics = {
            m["name"]: Estimate(m["value"], m["ci_low"], m["ci_high"], m["n"])
            for m in queries.metrics_of(store, e.id)
            if m["value"] is not None
        }
        if "n_invalid" not in metrics:
            continue
        measured = Measured(e.model, label_of(e.eval_setting), metrics, queries.stored_logits(store, e).extras)
        if queries.matches(e.eval_setting, settings or None):
            found.append(measured)
        elif measured.is_control:
            controls.append(measured)
    if not found:
        raise StoreError(f"the {store.where} holds no such explanations: run eval.py --eval-settings contrastive first")
    found += [c for c in controls if any(same_rows(c, f) for f in found)]
    return sorted(found, key=lambda f: (f.is_control, f.label, f.model))


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


def difference(of: Measured, found: Sequence[Measured], metric: str, against: str) -> Estimate | None:
    """Mean of (this - that) over the rows that both could measure: the same images, classes and contrasts."""
    for other in found:
        if other is of or explainer_in(other.label) != against or not same_rows(of, other):
            continue
        apart = np.asarray(of.rows[metric]) - np.asarray(other.rows[metric])
        image, row = np.nonzero(np.isfinite(apart))
        return clustered_mean(apart[image, row], image) if len(image) else None
    return None


def as_table(found: Sequence[Measured], shown: Sequence[str], against: str) -> tuple[list[str], list[list[str]]]:
    """Mean ± standard error of each number, CDROP and CAUC less those of the control, and how many maps counted."""
    compared = [name for name in ("cauc", "cdrop") if name in shown]
    header = ["model", "explainer", *(f"{name} ({BETTER.get(name, 'no')} is better)" for name in shown)]
    header += [f"{name} - {against}" for name in compared] + ["salient %", "n valid", "n invalid"]
    cells = []
    for f in found:
        numbers = [with_error(f.metrics.get(name)) for name in shown]
        apart = [with_error(difference(f, found, name, against)) for name in compared]
        area = f.metrics.get("salient_percent")
        counts = [str(f.count("n_valid")), str(f.count("n_invalid"))]
        cells.append([f.model, f.label, *numbers, *apart, f"{area.value:.1f}" if area else "", *counts])
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


def markdown(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def as_csv(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *cells])
    return buffer.getvalue().rstrip("\n")


def figure_of(found: Sequence[Measured], shown: Sequence[str], title: str | None) -> Any:
    """A panel per number, explainers down, a point with its interval for each model."""
    labels = list(dict.fromkeys(f.label for f in found))
    models = list(dict.fromkeys(f.model for f in found))
    controls = {f.label for f in found if f.is_control}
    columns = min(len(shown), 3)
    lines = -(-len(shown) // columns)
    height = 1.3 + lines * (0.9 + 0.3 * len(labels))
    figure, axes = new_figure(3.3 * columns + 1.2, height, lines, columns, squeeze=False)
    for number, (ax, metric) in enumerate(zip(axes.flat, shown, strict=False)):
        _draw_panel(ax, found, metric, labels, models)
        ax.set_yticks(range(len(labels)), labels if number % columns == 0 else [""] * len(labels))
        for tick, label in zip(ax.get_yticklabels(), labels, strict=True):
            tick.set_color(QUIET if label in controls else "black")
        ax.set_ylim(len(labels) - 0.5, -0.5)
    for ax in axes.flat[len(shown) :]:
        ax.remove()
    handles = [_handle(model, _COLORS[i % len(_COLORS)]) for i, model in enumerate(models)]
    legend_below(figure, handles)
    valid, invalid = sum(f.count("n_valid") for f in found), sum(f.count("n_invalid") for f in found)
    note = f"Means over (image, class) rows, bars: 95 % intervals; {valid} valid maps, {invalid} invalid ones left out."
    missing = [c for c in CONTROLS if c not in {explainer_in(label) for label in controls}]
    notes = [note, f"No results of the control {' and '.join(missing)}."] if missing else [note]
    head(figure, title or "Faithfulness of explanations", notes)
    return figure


def _draw_panel(ax: Any, found: Sequence[Measured], metric: str, labels: list[str], models: list[str]) -> None:
    for f in found:
        estimate = f.metrics.get(metric)
        if estimate is None:
            continue
        number = models.index(f.model)
        place = labels.index(f.label) + 0.6 * ((number + 0.5) / len(models) - 0.5)
        color = _COLORS[number % len(_COLORS)]
        if estimate.ci_low is not None and estimate.ci_high is not None:
            ax.plot([estimate.ci_low, estimate.ci_high], [place, place], color=color, linewidth=1.2, alpha=0.6)
        style = dict(markerfacecolor="white") if f.is_control else {}
        ax.plot(estimate.value, place, "o", color=color, markersize=5, **style)
    arrow = {"lower": "← lower is better", "higher": "higher is better →"}.get(BETTER.get(metric, ""), "")
    ax.set(title=metric, xlabel=arrow)
    ax.locator_params(axis="x", nbins=5)


def _handle(label: str, color: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=color, marker="o", linewidth=1.2, label=label)


if __name__ == "__main__":
    main()
