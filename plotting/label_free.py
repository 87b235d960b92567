"""Accuracy without labels: estimates against true accuracies, the error of each method, and the agreement line."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import LINE_COLOR, QUIET, draw_identity, head, legend_below, limits, new_figure, percent_axis, save
from _options import figure_command, many, models_option, out_option, title_option

from testbed.commands.options import db_option, registry_option
from testbed.entries.registry import load_registry
from testbed.errors import TestbedError
from testbed.stats.axes import to_axis
from testbed.store import queries
from testbed.store.database import Store
from testbed.store.estimates import estimates
from testbed.store.opening import open_store
from testbed.studies.labelfree import agreement
from testbed.studies.labelfree.answers import described_fit
from testbed.studies.labelfree.outputs import LabelFreeNote
from testbed.studies.labelfree.regression import errors
from testbed.studies.labelfree.scores import METHODS
from testbed.studies.labelfree.sets import StoredModel, predictions_of, stored_models

COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")
KIND_COLORS = {"score": "tab:blue", "direct": "tab:orange", "pairs": "tab:green"}
KIND_WORDS = {"score": "line fitted on labelled sets", "direct": "no fit sets", "pairs": "agreement of models"}
_COLUMNS = 5
Row = dict[str, Any]


@figure_command()
@db_option
@registry_option
@models_option
@many("--methods", metavar="NAME...", text="Only these methods.")
@many("--eval-settings", "--settings", "eval_settings", metavar="GLOB...", text="Only these eval settings.")
@click.option("--source", metavar="SETTING", help="Only estimates that start from this setting.")
@many("--fit", metavar="NAME...", text="Only lines fitted on these settings, in the words autoeval.py was told.")
@many("--assumes", metavar="TEXT...", text="Only estimates that assume these class shares or models, where any.")
@click.option("--agreement", nargs=2, metavar="SOURCE TEST", help="Draw the agreement line of all --models instead.")
@click.option("--variant", default="", metavar="TEXT", help="Results kept apart by eval.py, such as limit=1000.")
@title_option
@out_option("results/figures/label_free")
def main(
    db: str | None,
    registry: tuple[str, ...],
    agreement: tuple[str, str] | None,
    out: Path,
    title: str | None,
    models: tuple[str, ...],
    variant: str,
    **chosen: Any,
) -> None:
    """Draw estimates against true accuracies (PATH-estimates) and the error of each method (PATH-rmse).

    \b
        python plotting/label_free.py --models digits_cnn
        python plotting/label_free.py --models 'digits_*' --agreement digits digits.gaussian_noise.5
    """
    store = open_store(db)
    if agreement is not None:
        save(agreement_figure(store, registry, models or ("*",), *agreement, variant, title), out)
        return
    rows = chosen_rows(store, models, variant, **chosen)
    save(panels(rows, title), out.with_name(f"{out.name}-estimates"))
    save(bars(rows, title), out.with_name(f"{out.name}-rmse"))


def chosen_rows(
    store: Store,
    models: tuple[str, ...],
    variant: str,
    methods: tuple[str, ...],
    eval_settings: tuple[str, ...],
    source: str | None,
    fit: tuple[str, ...] = (),
    assumes: tuple[str, ...] = (),
) -> list[Row]:
    """Stored estimates with a true accuracy to hold them against, one line per model, set and method."""
    rows = [
        row
        for row in estimates(store)
        if row["variant"] == variant
        and queries.matches(row["model"], models or None)
        and queries.matches(row["eval_setting"], eval_settings or None)
        and (not methods or row["method"] in methods)
        and (source is None or row["source"] == source)
        and (not fit or not row["fit"] or _is_fit(row["fit"], fit))
        and (not assumes or not row["assumes"] or row["assumes"] in assumes)
    ]
    if not rows:
        raise TestbedError(f"the {store.where} holds no such estimates: `python autoeval.py` makes them")
    labelled = [row for row in rows if row["accuracy"] is not None]
    if not labelled:
        raise TestbedError("none of these sets has labels: there is no accuracy to draw the estimates against")
    for key, option in (("source", "--source"), ("fit", "--fit")):
        found = sorted({row[key] for row in labelled if row[key]})
        if len(found) > 1:
            raise TestbedError(f"there are estimates of several kinds here, choose with {option}: {', '.join(found)}")
    for method in dict.fromkeys(row["method"] for row in labelled):
        found = sorted({row["assumes"] for row in labelled if row["method"] == method})
        if len(found) > 1:
            raise TestbedError(f"there are several estimates by {method}, choose with --assumes: {', '.join(found)}")
    order = {name: place for place, name in enumerate(METHODS)}
    return sorted(labelled, key=lambda row: order.get(row["method"], len(order)))


def _is_fit(stored: str, words: tuple[str, ...]) -> bool:
    """Whether a line was fitted on just these words; "meta (30 sets)" tells it from the same words with fewer sets."""
    return " ".join(words) == stored or described_fit(words) == stored.rpartition(" (")[0]


# ---- estimates and errors ------------------------------------------------------------------------------------


def panels(rows: list[Row], title: str | None) -> Any:
    """A panel per method: each set a point, coloured by its group; on the diagonal the estimate is right."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    groups = {g: COLORS[i % len(COLORS)] for i, g in enumerate(dict.fromkeys(row["set_group"] for row in rows))}
    columns = min(len(methods), _COLUMNS)
    lines = -(-len(methods) // columns)
    width = max(2.1 * columns, 5.0)
    figure, axes = new_figure(width, 2.0 * lines + 1.1, lines, columns, squeeze=False, sharex=True, sharey=True)
    low = max(0.0, min(row["accuracy"] for row in rows) - 8)
    for ax, method in zip(axes.flat, methods, strict=False):
        own = [row for row in rows if row["method"] == method]
        ax.plot([low, 100], [low, 100], color=QUIET, linewidth=0.8, zorder=1)
        for group, color in groups.items():
            points = [(r["accuracy"], np.clip(r["estimate"], low, 100)) for r in own if r["set_group"] == group]
            if points:
                ax.scatter(*zip(*points, strict=True), s=9, color=color, alpha=0.7, linewidths=0, label=group)
        found = errors([r["estimate"] for r in own], [r["accuracy"] for r in own])
        ax.set_title(f"{method}  {found.rmse:.1f}", fontsize=8.5)
        ax.set_xlim(low, 100)
        ax.set_ylim(low, 100)
        ax.tick_params(labelsize=7.5)
    for ax in axes.flat[len(methods) :]:
        ax.set_visible(False)
    for ax in axes.flat[max(0, len(methods) - columns) : len(methods)]:
        ax.tick_params(labelbottom=True)  # also above a gap in the last row
    # A label of the whole figure would lie under the legend.
    axes.flat[len(methods) - 1 - (len(methods) - 1) % columns // 2].set_xlabel("true accuracy (%)")
    figure.supylabel("estimated accuracy (%)", fontsize=9)
    handles = [_dot(color, group) for group, color in groups.items()]
    legend_below(figure, handles if len(handles) > 1 else ())
    models = sorted({row["model"] for row in rows})
    about = models[0] if len(models) == 1 else f"{len(models)} models"
    sets = len({row["eval_setting"] for row in rows})
    notes = [
        f"{about} on {sets} sets, {_kind_of_fit(rows)}. Above each panel its RMSE in percentage points; on the line "
        "the estimate is right; estimates beyond the axes are drawn at their edge."
    ]
    head(figure, title or "Estimated against true accuracy", notes)
    return figure


def _kind_of_fit(rows: list[Row]) -> str:
    fits = sorted({row["fit"] for row in rows if row["fit"]})
    return f"lines fitted on {', '.join(fits)}" if fits else f"starting from {rows[0]['source']}"


def _dot(color: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], marker="o", linestyle="", color=color, label=label, markersize=5)


def bars(rows: list[Row], title: str | None) -> Any:
    """RMSE of each method over all sets, the smallest on top; the mean absolute error as a mark."""
    from matplotlib.patches import Patch

    found = {}
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        found[method] = errors([r["estimate"] for r in own], [r["accuracy"] for r in own])
    names = sorted(found, key=lambda name: -found[name].rmse)
    kinds = [METHODS[name].kind if name in METHODS else "score" for name in names]
    figure, ax = new_figure(6.4, 0.24 * len(names) + 1.7)
    ax.barh(names, [found[name].rmse for name in names], color=[KIND_COLORS[k] for k in kinds], height=0.68)
    ax.scatter([found[name].mae for name in names], names, marker="|", color="black", s=60, linewidths=1.3, zorder=3)
    for place, name in enumerate(names):
        ax.text(found[name].rmse, place, f" {found[name].rmse:.1f}", va="center", fontsize=7.5, color=QUIET)
    ax.set_xlabel("error in percentage points: RMSE (bar), mean absolute error (mark)")
    ax.grid(axis="y", visible=False)
    ax.margins(y=0.01)
    present = [kind for kind in KIND_COLORS if kind in kinds]
    legend_below(figure, [Patch(color=KIND_COLORS[kind], label=KIND_WORDS[kind]) for kind in present])
    sets = len({(row["model"], row["eval_setting"]) for row in rows})
    head(figure, title or "How far estimates without labels are off", [f"Over {sets} sets; {_kind_of_fit(rows)}."])
    return figure


# ---- the agreement line --------------------------------------------------------------------------------------


def agreement_figure(
    store: Store,
    registry: tuple[str, ...],
    words: tuple[str, ...],
    source: str,
    test: str,
    variant: str,
    title: str | None,
) -> Any:
    """Agreement of every pair of models on two sets, the line through it, and the accuracies where there are labels."""
    entries = load_registry(registry)
    models = [StoredModel(store, entries, name, variant) for name in stored_models(store, entries, words)]
    on_source, labels = agreement.labelled_only(*predictions_of(models, [m.one(source) for m in models]))
    on_test, truth = predictions_of(models, [m.one(test) for m in models])
    if not len(labels):
        raise TestbedError(f"'{source}' has no labels: the source set needs them")
    accuracies = (on_source == labels).mean(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LabelFreeNote)  # R2 stands below the title
        estimate = agreement.aline_s(on_source, on_test, accuracies)
    assert estimate.line is not None
    x, y = agreement.pair_agreements(on_source), agreement.pair_agreements(on_test)
    right = agreement.accuracies_of(on_test, truth)
    true = None if right is None else 100 * right
    shown = [x, y, 100 * accuracies, *([] if true is None else [true])]
    bounds = limits(*shown, axis="probit")
    figure, ax = new_figure(6.2, 5.9)
    ax.scatter(*_places(x, y), s=9, color="tab:blue", alpha=0.35, linewidths=0, label="agreement of two models")
    if true is not None:
        places = _places(100 * accuracies, true)
        ax.scatter(*places, s=26, color="tab:orange", label="accuracy of a model", zorder=3)
    grid = np.linspace(*to_axis(bounds, "probit"), 2)
    line = estimate.line
    ax.plot(grid, line.intercept + line.slope * grid, color=LINE_COLOR, linewidth=1.4, label="line of agreement")
    draw_identity(ax, (bounds, bounds), "probit")
    percent_axis(ax, "x", bounds, "probit", source)
    percent_axis(ax, "y", bounds, "probit", test)
    legend_below(figure, ax.get_legend_handles_labels()[0])
    said = f"slope {line.slope:.3f}, intercept {line.intercept:.3f}, R2 {line.r2:.3f}" if line.r2 is not None else ""
    notes = [f"{len(models)} models, {len(x)} pairs, probit axes: {said}."]
    if true is not None:
        off = np.abs(estimate.accuracies - true).mean()
        unchanged = np.abs(100 * accuracies - true).mean()
        notes.append(f"ALine-S is off by {off:.2f} points on average; assuming no change, {unchanged:.2f}.")
    head(figure, title or "Agreement on the line", notes)
    return figure


def _places(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return to_axis(x, "probit", clip=0.1), to_axis(y, "probit", clip=0.1)


if __name__ == "__main__":
    main()
