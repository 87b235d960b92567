"""Accuracy without labels: estimates against true accuracies, the error of each method, and the agreement line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import (
    LINE_COLOR,
    QUIET,
    beside,
    color_of,
    counts,
    dot,
    draw_identity,
    head,
    legend_below,
    limits,
    new_figure,
    new_panels,
    patch,
    percent_axis,
    save,
)
from _options import figure_command, many, models_option, out_option, settings_option, title_option, variant_option

from testbed.commands.options import db_option, registry_option, say
from testbed.entries.registry import load_registry
from testbed.errors import TestbedError
from testbed.stats.axes import to_axis
from testbed.store.database import Store
from testbed.store.estimates import estimates
from testbed.store.evaluation import OWN
from testbed.store.find import meant_variant, numbers
from testbed.store.names import matches
from testbed.store.opening import open_store
from testbed.studies.labelfree import agreement
from testbed.studies.labelfree.answers import FIT_MEAN, NO_CHANGE, described_fit
from testbed.studies.labelfree.outputs import LabelFreeNote
from testbed.studies.labelfree.regression import Errors, errors
from testbed.studies.labelfree.scores import METHODS
from testbed.studies.labelfree.sets import StoredModel, predictions_of, stored_models

KIND_COLORS = {"score": "tab:blue", "direct": "tab:orange", "pairs": "tab:green", "baseline": "0.6"}
KIND_WORDS = {
    "score": "line fitted on labelled sets",
    "direct": "no fit sets",
    "pairs": "agreement of models",
    "baseline": "baseline: no method at all",
}
BASELINES = (NO_CHANGE, FIT_MEAN)
_COLUMNS = 5
Row = dict[str, Any]


@figure_command()
@db_option
@registry_option
@models_option
@many("--methods", metavar="NAME...", text="Only these methods.")
@settings_option
@click.option("--source", metavar="SETTING", help="Only estimates that start from this setting.")
@many("--fit", metavar="NAME...", text="Only lines fitted on these settings, in the words autoeval.py was told.")
@many("--assumes", metavar="TEXT...", text="Only estimates that assume these class shares or models, where any.")
@click.option("--agreement", nargs=2, metavar="SOURCE TEST", help="Draw the agreement line of all --models instead.")
@variant_option
@title_option
@out_option("figures/label_free")
def main(
    *,
    db: str | None,
    registry: tuple[str, ...],
    agreement: tuple[str, str] | None,
    out: Path,
    title: str | None,
    models: tuple[str, ...],
    variant: str | None,
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
    rows = chosen_rows(store, models=models, variant=variant, **chosen)
    if not any(row["method"] in BASELINES for row in rows):
        say("no baselines are stored with these estimates: run autoeval.py again to have them drawn", err=True)
    save(panels(rows, title), beside(out, "estimates"))
    save(bars(rows, title), beside(out, "rmse"))


def chosen_rows(
    store: Store,
    *,
    models: tuple[str, ...] = (),
    variant: str | None = None,
    methods: tuple[str, ...] = (),
    eval_settings: tuple[str, ...] = (),
    source: str | None = None,
    fit: tuple[str, ...] = (),
    assumes: tuple[str, ...] = (),
) -> list[Row]:
    """Stored estimates with a true accuracy to hold them against, one line per model, set and method.

    The baselines of the same sets come along, whatever methods are chosen: an estimate must be better than they are.
    """
    if variant is None:
        variant = meant_variant(store, models or None, eval_settings or None, OWN)
    images = {(n.model, n.eval_setting): n.n for n in numbers(store, metric="top1", variant=variant, source=OWN)}
    stored = [
        row | {"n": images.get((row["model"], row["eval_setting"])) or 0}
        for row in estimates(store)
        if matches(row["model"], models or None) and matches(row["eval_setting"], eval_settings or None)
    ]
    meant = [
        row
        for row in stored
        if row["variant"] == variant
        and (source is None or row["source"] == source)
        and (not fit or not row["fit"] or _is_fit(row["fit"], fit))
        and (not assumes or not row["assumes"] or row["assumes"] in assumes)
    ]
    rows = [row for row in meant if row["method"] not in BASELINES and (not methods or row["method"] in methods)]
    if not rows:
        raise _nothing(store, stored, variant)
    labelled = [row for row in rows if row["accuracy"] is not None]
    if not labelled:
        raise TestbedError("none of these sets has labels: there is no accuracy to draw the estimates against")
    for key, option in (("source", "--source"), ("fit", "--fit")):
        kinds = sorted({row[key] for row in labelled if row[key]})
        if len(kinds) > 1:
            raise TestbedError(f"there are estimates of several kinds here, choose with {option}: {', '.join(kinds)}")
    for method in dict.fromkeys(row["method"] for row in labelled):
        assumed = sorted({row["assumes"] for row in labelled if row["method"] == method})
        if len(assumed) > 1:
            raise TestbedError(f"there are several estimates by {method}, choose with --assumes: {', '.join(assumed)}")
    order = {name: place for place, name in enumerate((*METHODS, *BASELINES))}
    rows = labelled + _baselines_of(labelled, meant)
    return sorted(rows, key=lambda row: order.get(row["method"], len(METHODS)))


def _baselines_of(rows: list[Row], stored: list[Row]) -> list[Row]:
    """What is said without any method about the sets of these rows; the mean of the fit sets where lines are drawn."""
    sets = {(row["model"], row["eval_setting"], row["source"]) for row in rows}
    fits = {row["fit"] for row in rows}
    return [
        row
        for row in stored
        if row["method"] in BASELINES
        and (row["model"], row["eval_setting"], row["source"]) in sets
        # Where no line is drawn there are no fit sets to speak of.
        and (row["method"] == NO_CHANGE or row["fit"] in fits)
    ]


def _nothing(store: Store, stored: list[Row], variant: str) -> TestbedError:
    """What estimates there are instead of those that were asked for."""
    if not stored:
        models = sorted({row["model"] for row in estimates(store)})
        hint = f"; there are some of {', '.join(models)}" if models else ": `python autoeval.py` makes them"
        return TestbedError(f"the {store.where} holds no such estimates{hint}")
    here = [row for row in stored if row["variant"] == variant]
    if not here:
        others = sorted({row["variant"] for row in stored})
        hint = ", ".join(f"--variant {name}" if name else "whole settings (--variant '')" for name in others)
        return TestbedError(f"no estimates of {variant or 'whole settings'} in the {store.where}; there are: {hint}")
    told = []
    for key, option in (("method", "--methods"), ("source", "--source"), ("fit", "--fit")):
        names = dict.fromkeys(row[key] for row in here if row[key] and row["method"] not in BASELINES)
        told += [f"{option} {', '.join(names)}"] if names else []
    return TestbedError(f"the {store.where} holds no such estimates; there are: {'; '.join(told)}")


def _is_fit(stored: str, words: tuple[str, ...]) -> bool:
    """Whether a line was fitted on just these words; "meta (30 sets)" tells it from the same words with fewer sets."""
    return " ".join(words) == stored or described_fit(words) == stored.rpartition(" (")[0]


# ---- estimates and errors ------------------------------------------------------------------------------------


def panels(rows: list[Row], title: str | None) -> Any:
    """A panel per method: each set a point, coloured by its group; on the diagonal the estimate is right."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    groups = {g: color_of(i) for i, g in enumerate(dict.fromkeys(row["set_group"] for row in rows))}
    figure, each, _, bottom = new_panels(
        len(methods), _COLUMNS, size=(2.1, 2.0), room=(5.0, 1.1), sharex=True, sharey=True
    )
    off = {method: _errors_of(rows, method).rmse for method in methods}
    worse = worse_than_no_change(off)
    low = max(0.0, min(row["accuracy"] for row in rows) - 8)
    for ax, method in zip(each, methods, strict=True):
        own = [row for row in rows if row["method"] == method]
        ax.plot([low, 100], [low, 100], color=QUIET, linewidth=0.8, zorder=1)
        for group, color in groups.items():
            # Put on the edge, since one wild estimate would make all others small.
            points = [(r["accuracy"], np.clip(r["estimate"], low, 100)) for r in own if r["set_group"] == group]
            if points:
                ax.scatter(*zip(*points, strict=True), s=9, color=color, alpha=0.7, linewidths=0, label=group)
        ax.set_title(f"{method}  {off[method]:.1f}", fontsize=8.5, color=LINE_COLOR if method in worse else "black")
        ax.set_xlim(low, 100)
        ax.set_ylim(low, 100)
        ax.tick_params(labelsize=7.5)
    last_row = bottom[-(len(methods) % len(bottom) or len(bottom)) :]
    # A label of the whole figure would lie under the legend.
    last_row[(len(last_row) - 1) // 2].set_xlabel("true accuracy (%)")
    figure.supylabel("estimated accuracy (%)", fontsize=9)
    handles = [dot(color, group) for group, color in groups.items()]
    legend_below(figure, handles if len(handles) > 1 else ())
    models = sorted({row["model"] for row in rows})
    about = models[0] if len(models) == 1 else f"{len(models)} models"
    sets = len({row["eval_setting"] for row in rows})
    notes = [
        f"{about} on {sets} sets of {_images(rows)} images, {_kind_of_fit(rows)}. Above each panel its RMSE in "
        "percentage points; on the line the estimate is right; estimates beyond the axes are drawn at their edge.",
        *([f"{_told_worse(off)} (RMSE in red)."] if NO_CHANGE in off else ()),
    ]
    head(figure, title or "Estimated against true accuracy", notes, rows[0]["variant"])
    return figure


def _images(rows: list[Row]) -> str:
    return counts(np.array([row["n"] for row in rows]))


def worse_than_no_change(off: Mapping[str, float]) -> list[str]:
    """The methods whose error is larger than that of assuming the accuracy of the source."""
    unchanged = off.get(NO_CHANGE, np.inf)
    return [name for name, error in off.items() if error > unchanged and name not in BASELINES]


def _told_worse(off: Mapping[str, float]) -> str:
    methods = len(off.keys() - set(BASELINES))
    worse = f"{len(worse_than_no_change(off))} of {methods} methods"
    return f"{worse} have a larger RMSE than {NO_CHANGE}, the accuracy on the source"


def _kind_of_fit(rows: list[Row]) -> str:
    fits = sorted({row["fit"] for row in rows if row["fit"]})
    return f"lines fitted on {', '.join(fits)}" if fits else f"starting from {rows[0]['source']}"


def _errors_of(rows: list[Row], method: str) -> Errors:
    own = [row for row in rows if row["method"] == method]
    return errors([row["estimate"] for row in own], [row["accuracy"] for row in own])


def bars(rows: list[Row], title: str | None) -> Any:
    """RMSE of each method over all sets, the smallest on top; the mean absolute error as a mark."""
    off = {method: _errors_of(rows, method) for method in dict.fromkeys(row["method"] for row in rows)}
    names = sorted(off, key=lambda name: -off[name].rmse)
    kinds = [METHODS[name].kind if name in METHODS else "baseline" if name in BASELINES else "score" for name in names]
    figure, ax = new_figure(6.4, 0.24 * len(names) + 1.7)
    ax.barh(names, [off[name].rmse for name in names], color=[KIND_COLORS[k] for k in kinds], height=0.68)
    ax.scatter([off[name].mae for name in names], names, marker="|", color="black", s=60, linewidths=1.3, zorder=3)
    for place, name in enumerate(names):
        number = ax.annotate(f"{off[name].rmse:.1f}", (off[name].rmse, place), (4, 0), textcoords="offset points")
        number.set(va="center", fontsize=7.5, color=QUIET, zorder=3)
        number.set_bbox(dict(facecolor="white", edgecolor="none", pad=0.6))  # the line of no-change may run through it
    handles = [patch(KIND_COLORS[kind], KIND_WORDS[kind]) for kind in KIND_COLORS if kind in kinds]
    if NO_CHANGE in off:
        level = off[NO_CHANGE].rmse
        words = f"RMSE of {NO_CHANGE}"
        handles.append(ax.axvline(level, color=LINE_COLOR, linewidth=1.2, linestyle=(0, (4, 3)), label=words))
    ax.set_xlabel("error in percentage points: RMSE (bar), mean absolute error (mark)")
    ax.grid(axis="y", visible=False)
    ax.margins(y=0.01)
    legend_below(figure, handles)
    sets = len({(row["model"], row["eval_setting"]) for row in rows})
    notes = [f"Over {sets} sets of {_images(rows)} images; {_kind_of_fit(rows)}."]
    if NO_CHANGE in off:
        notes.append(f"{_told_worse({name: error.rmse for name, error in off.items()})}.")
    head(figure, title or "Error of accuracies estimated without labels", notes, rows[0]["variant"])
    return figure


# ---- the agreement line --------------------------------------------------------------------------------------


def agreement_figure(
    store: Store,
    registry: tuple[str, ...],
    words: tuple[str, ...],
    source: str,
    test: str,
    variant: str | None,
    title: str | None,
) -> Any:
    """Agreement of every pair of models on two sets, the line through it, and the accuracies where there are labels."""
    entries = load_registry(registry)
    names = stored_models(store, entries, words)
    if variant is None:
        variant = meant_variant(store, names, [source, test], OWN)
    models = [StoredModel(store, entries, name, variant) for name in names]
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
    images = f"{on_source.shape[1]:,} (x) and {on_test.shape[1]:,} (y) images"
    notes = [f"{len(models)} models, {len(x)} pairs, {images}, probit axes: {said}."]
    if true is not None:
        off = np.abs(estimate.accuracies - true).mean()
        unchanged = np.abs(100 * accuracies - true).mean()
        notes.append(f"ALine-S is off by {off:.2f} points on average; assuming no change, {unchanged:.2f}.")
    head(figure, title or f"Agreement of models: {test} against {source}", notes, variant)
    return figure


def _places(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Two models that always agree have no place on a probit axis.
    return to_axis(x, "probit", clip=0.1), to_axis(y, "probit", clip=0.1)


if __name__ == "__main__":
    main()
