"""Do models err where people err? Error consistency of all pairs as heat map, or over conditions or sets as lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import QUIET, head, legend_below, new_figure, reach, save
from _observers import PEOPLE_COLOR, PEOPLE_MARKER, model_style, observers_option
from _options import figure_command, many, out_option, title_option

from testbed.commands.options import db_option, registry_option
from testbed.entries.registry import load_registry
from testbed.errors import StoreError
from testbed.metrics import consistency
from testbed.metrics.categories16 import AGGREGATIONS
from testbed.store.evaluation import OWN
from testbed.store.find import meant_variant
from testbed.store.names import matches
from testbed.store.opening import open_store
from testbed.studies.people.observers import PEOPLE, Panel, panel

_SCALE = "0: two observers err together as often as their accuracies alone imply; 1: on the same pictures."


@figure_command()
@db_option
@registry_option
@observers_option
@many("--settings", metavar="NAME...", text="Eval settings of the trials.  [default: cue-conflict]")
@click.option("--people", default=PEOPLE, show_default=True, metavar="GLOB", help="Which observers are people.")
@click.option(
    "--kind", type=click.Choice(["heat", "lines"]), default="heat", show_default=True, help="Form of the figure."
)
@click.option(
    "--aggregation", type=click.Choice(AGGREGATIONS), default="mean", show_default=True, help="From 1000 classes to 16."
)
@title_option
@out_option("figures/error_consistency")
def main(
    *,
    db: str | None,
    registry: tuple[str, ...],
    models: tuple[str, ...],
    settings: tuple[str, ...],
    people: str,
    kind: str,
    aggregation: str,
    title: str | None,
    out: Path,
) -> None:
    """Draw the error consistency (Cohen's kappa of right and wrong) of stored observers.

    \b
        python plotting/error_consistency.py --settings cue-conflict
        python plotting/error_consistency.py --settings contrast-16 --kind lines
    """
    store, entries = open_store(db), load_registry(registry)
    chosen = [*models, people] if models else None
    names = settings or ("cue-conflict",)
    panels = [panel(store, entries, name, chosen, aggregation, every_condition=kind == "lines") for name in names]
    # The same question as in `panel`, which takes the variant that is meant and does not tell it.
    variants = dict.fromkeys(meant_variant(store, chosen, [name], OWN) for name in names)
    variant = ", ".join(filter(None, variants))
    if kind == "heat":
        sets = [f"{name}, {sum(c.shape[1] for c in p.correct):,} trials" for name, p in zip(names, panels, strict=True)]
        figure = heat_map(*pairwise(panels, people), sets, title, variant)
    else:
        figure = line_plot(lines(panels, people), title, variant)
    save(figure, out)


# ---- all pairs -------------------------------------------------------------------------------------------


def pairwise(panels: Sequence[Panel], people: str = PEOPLE) -> tuple[list[str], np.ndarray]:
    """Observers that are in all sets, people first, and the error consistency of each two, averaged over sets."""
    common = [n for n in panels[0].observers if all(n in p.observers for p in panels)]
    names = sorted(common, key=lambda n: (not matches(n, [people]), n))
    if len(names) < 2:
        raise StoreError(f"expected at least two observers in all of the sets, got {', '.join(names) or 'none'}")
    total = np.ones((len(names), len(names)))
    pairs = [(i, j) for i in range(len(names)) for j in range(i)]
    values = np.zeros(len(pairs))
    for p in panels:
        rows = [p.observers.index(n) for n in names]
        correct = [c[rows] for c in p.correct]
        values += consistency.draws_by_pair(correct, pairs, resamples=0)[0, :, 2] / len(panels)
    for (i, j), value in zip(pairs, values, strict=True):
        total[i, j] = total[j, i] = value
    return names, total


def heat_map(
    names: Sequence[str], kappa: np.ndarray, settings: Sequence[str], title: str | None = None, variant: str = ""
) -> Any:
    """One square per pair, with its number where there is room."""
    side = 2.6 + 0.42 * len(names)
    figure, ax = new_figure(side + 0.8, side)
    # Everybody agrees with himself: the diagonal would set the range of the colours.
    shown = np.where(np.eye(len(names), dtype=bool), np.nan, kappa)
    limit = max(0.1, float(np.nanmax(np.abs(shown))))
    image = ax.imshow(shown, cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.grid(visible=False)
    places = range(len(names))
    ax.set_xticks(places, names, rotation=45, ha="right")
    ax.set_yticks(places, names)
    if len(names) <= 20:
        for i in places:
            for j in places:
                if i != j:
                    dark = abs(kappa[i, j]) > 0.6 * limit
                    ax.text(
                        j,
                        i,
                        f"{kappa[i, j]:.2f}",
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="white" if dark else "0.1",
                    )
    figure.colorbar(image, ax=ax, label="error consistency (κ)", shrink=0.8)
    notes = [f"{'; '.join(settings)}. {_SCALE}"]
    head(figure, title or "Error consistency", notes, variant)
    return figure


# ---- over conditions or sets -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """Error consistency with people at each place, with its interval."""

    label: str
    places: list[str]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    color: str
    marker: str


def lines(panels: Sequence[Panel], people: str = PEOPLE, resamples: int = 500) -> list[Line]:
    """People among themselves first, then each model, at the conditions of the one set or at each of the sets."""
    spots = [(p.setting, p, p.correct) for p in panels]
    if len(panels) == 1 and len(panels[0].conditions) > 1:
        only = panels[0]
        spots = [(c, only, [correct]) for c, correct in zip(only.conditions, only.correct, strict=True)]
    models = [n for n in panels[0].observers if all(n in p.observers for p in panels)]
    models = [n for n in models if not matches(n, [people])]
    crowds = [p.rows(people) for _, p, _ in spots]
    if not all(crowds):
        raise StoreError(f"no observer matches '{people}': db.py --import-decisions takes people in")
    drawn = []
    if all(len(crowd) > 1 for crowd in crowds):
        pairs = [consistency.among_people(crowd) for crowd in crowds]
        drawn.append(_line("people among themselves", spots, pairs, resamples, PEOPLE_COLOR, PEOPLE_MARKER))
    for i, name in enumerate(models):
        rows = [p.observers.index(name) for _, p, _ in spots]
        pairs = [consistency.with_people(row, crowd) for row, crowd in zip(rows, crowds, strict=True)]
        drawn.append(_line(name, spots, pairs, resamples, *model_style(i)))
    return drawn


def _line(label: str, spots: Any, pairs: Any, resamples: int, color: str, marker: str) -> Line:
    estimates = [
        consistency.averaged([consistency.draws(correct, chosen, resamples)]).error
        for (_, _, correct), chosen in zip(spots, pairs, strict=True)
    ]
    ends = ("value", "ci_low", "ci_high")
    value, low, high = (np.array([getattr(e, end) for e in estimates], dtype=float) for end in ends)
    return Line(label, [place for place, _, _ in spots], value, low, high, color, marker)


def line_plot(drawn: Sequence[Line], title: str | None = None, variant: str = "") -> Any:
    """One line per observer, bars for the 95 % interval over pictures."""
    figure, ax = new_figure(7.2, 4.8)
    handles = []
    for i, line in enumerate(drawn):
        # Side by side, so that no bar hides another.
        x = np.arange(len(line.places)) + 0.04 * (i - len(drawn) / 2)
        handles.append(
            ax.errorbar(
                x,
                line.value,
                yerr=reach(line.value, line.low, line.high),
                color=line.color,
                marker=line.marker,
                ms=5,
                lw=1.3,
                label=line.label,
            )
        )
    ax.axhline(0, color=QUIET, linewidth=0.9, linestyle=(0, (2, 3)))
    ax.set_xticks(range(len(drawn[0].places)), drawn[0].places, rotation=30, ha="right")
    ax.set_xlim(-0.5, len(drawn[0].places) - 0.5)
    ax.set_ylabel("error consistency with people (κ)")
    legend_below(figure, handles)
    notes = [_SCALE]
    head(figure, title or "Error consistency with people", notes, variant)
    return figure


if __name__ == "__main__":
    main()
