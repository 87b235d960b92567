"""Shape against texture, category by category: models by their markers, people as the reference; or as box plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import PERCENT_TICKS, QUIET, counts, head, legend_below, new_figure, save
from _observers import PEOPLE_COLOR, PEOPLE_MARKER, model_style, observers_option
from _options import figure_command, out_option, title_option, variant_option
from _results import tell_mixed

from testbed.commands.options import db_option
from testbed.errors import StoreError, UnknownName, near_or_some
from testbed.metrics.categories16 import NAMES
from testbed.stats.intervals import clopper_pearson
from testbed.store.database import Store
from testbed.store.find import EVERY, meant_variant, nothing_found, numbers
from testbed.store.names import eval_setting_names, matches
from testbed.store.opening import open_store

_DASH = 4  # of lines that coincide, in line widths


@dataclass(frozen=True)
class Observer:
    """One model, or all people together. Counts are of decisions for shape, and for shape or texture."""

    label: str
    shape: np.ndarray  # by category
    decided: np.ndarray
    boxes: np.ndarray  # percent by category, as in the box plot: for people the mean over persons
    color: str
    marker: str

    @property
    def bias(self) -> np.ndarray:
        """Percent by category; NaN where there is no decision for shape or texture."""
        return _percent(self.shape, self.decided)

    @property
    def pooled(self) -> float:
        return float(_percent(self.shape.sum(), self.decided.sum()))

    def intervals(self, order: np.ndarray) -> np.ndarray:
        """Low and high end in percent of all decisions together, then of the categories in this order."""
        shape, decided = (np.append(n.sum(), n[order]).astype(int) for n in (self.shape, self.decided))
        ends = [clopper_pearson(s, n) if n else (np.nan, np.nan) for s, n in zip(shape, decided, strict=True)]
        return 100 * np.array(ends).T


def _percent(part: Any, whole: Any) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return 100 * np.asarray(part, dtype=float) / np.asarray(whole, dtype=float)


@figure_command()
@db_option
@observers_option
@click.option(
    "--setting", default="cue-conflict", show_default=True, metavar="NAME", help="Eval setting of the stimuli."
)
@click.option(
    "--people", default="subject-*", show_default=True, metavar="GLOB", help="Observers drawn as one: people."
)
@click.option(
    "--kind", type=click.Choice(["matrix", "box"]), default="matrix", show_default=True, help="Form of the figure."
)
@variant_option
@title_option
@out_option("figures/shape_bias")
def main(
    *,
    db: str | None,
    models: tuple[str, ...],
    setting: str,
    people: str,
    kind: str,
    variant: str | None,
    title: str | None,
    out: Path,
) -> None:
    """Draw the shape bias of stored models and people.

    \b
        python plotting/shape_bias.py --models 'efficientnet_lite*' resnet50@decisions
        python plotting/shape_bias.py --kind box
    """
    store = open_store(db)
    variant = meant_variant(store, eval_settings=[setting]) if variant is None else variant
    observers = load(store, setting, models, people, variant)
    draw = matrix if kind == "matrix" else boxes
    save(draw(observers, title, variant), out)


# ---- what is drawn ---------------------------------------------------------------------------------------


def load(
    store: Store, setting: str, models: Sequence[str] = (), people: str = "subject-*", variant: str | None = None
) -> list[Observer]:
    """People first, then models in the order of their bias; names or globs choose models."""
    rows = numbers(store, None, [setting], variant=variant)
    by_category = [row for row in rows if row.metric.startswith("shape_bias.")]
    if not by_category:
        if not rows and setting in eval_setting_names(store):
            raise nothing_found(store, None, [setting], variant)
        raise _no_shape_bias(store, setting)
    tell_mixed(store, {row.evaluation_id for row in by_category})
    counts: dict[str, np.ndarray] = {}
    for row in by_category:
        column = NAMES.index(row.metric.removeprefix("shape_bias."))
        decided = row.n or 0
        # Counts, not percentages, are what can be pooled over categories and people.
        shape = round(row.value / 100 * decided) if decided and row.value is not None else 0
        counts.setdefault(row.model, np.zeros((2, len(NAMES))))[:, column] = shape, decided
    persons = [n for n in counts if matches(n, [people])]
    others = [n for n in counts if n not in persons]
    for pattern in models:
        if not any(matches(n, [pattern]) for n in counts):
            raise UnknownName(f"no results of model '{pattern}' on '{setting}'{near_or_some(pattern, others)}")
    chosen = [n for n in others if matches(n, models or None)]
    observers = [_people(persons, counts)] if persons else []
    for i, name in enumerate(sorted(chosen, key=lambda n: counts[n][0].sum() / max(counts[n][1].sum(), 1))):
        shape, decided = counts[name]
        observers.append(Observer(name, shape, decided, _percent(shape, decided), *model_style(i)))
    return observers


def _no_shape_bias(store: Store, setting: str) -> StoreError:
    """Which settings have a shape bias, or how to get one."""
    there = sorted({row.eval_setting for row in numbers(store, metric="shape_bias", variant=EVERY, source=EVERY)})
    hint = f"; --setting {', '.join(there)} has one" if there else ": run eval.py --eval-settings cue-conflict"
    return StoreError(f"no shape bias on '{setting}' in the {store.where}{hint}")


def _people(names: Sequence[str], counts: dict[str, np.ndarray]) -> Observer:
    """All trials of all people together; for boxes, the mean over persons of each category."""
    shape, decided = sum(counts[n] for n in names)  # type: ignore[misc]
    each = np.stack([_percent(*counts[n]) for n in names])
    known = np.isfinite(each)
    mean = _percent(np.where(known, each, 0).sum(axis=0), known.sum(axis=0)) / 100
    label = f"{len(names)} people" if len(names) > 1 else names[0]
    return Observer(label, shape, decided, mean, PEOPLE_COLOR, PEOPLE_MARKER)


# ---- how -------------------------------------------------------------------------------------------------


def matrix(observers: Sequence[Observer], title: str | None = None, variant: str = "") -> Any:
    """Categories down, ordered by the first observer's bias; texture at the left, shape at the right."""
    first = observers[0]
    order = np.argsort(np.nan_to_num(first.bias, nan=-1.0), kind="stable")[::-1]
    figure, ax = new_figure(7.2, 7.4)
    height = np.append(len(NAMES) + 0.3, np.arange(len(NAMES))[::-1])  # all categories together on top, set apart
    for row in height[1::2]:
        ax.axhspan(row - 0.5, row + 0.5, color="0.96", linewidth=0, zorder=0)
    ax.grid(visible=False, axis="y")
    handles = []
    styles = apart([observer.pooled for observer in observers])
    drawn = list(zip(observers, _offsets(observers), styles, strict=True))
    for observer, up, style in reversed(drawn):  # the first lies on top
        ax.axvline(observer.pooled, color=observer.color, linewidth=1.6, linestyle=style, alpha=0.85, zorder=2)
        bias, (low, high) = np.append(observer.pooled, observer.bias[order]), observer.intervals(order)
        ax.hlines(height + up, low, high, color=observer.color, linewidth=0.9, alpha=0.6, zorder=2.5)
        handles.append(
            ax.scatter(
                bias,
                height + up,
                color=observer.color,
                marker=observer.marker,
                s=30,
                linewidths=0.5,
                edgecolors="white",
                zorder=3,
                clip_on=False,
                label=f"{observer.label}: {observer.pooled:.1f} % [{low[0]:.1f}, {high[0]:.1f}]",
            )
        )
    ax.set_yticks(height, ["all categories", *(NAMES[i] for i in order)])
    ax.set_ylim(-0.7, height[0] + 0.6)
    ax.set_xlim(0, 100)
    ax.set_xticks(*PERCENT_TICKS)
    ax.set_xlabel("← texture      share of shape among decisions for shape or texture      shape →")
    ax.set_ylabel("shape category")
    ax.axvline(50, color=QUIET, linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
    legend_below(figure, list(reversed(handles)), 2)
    notes = [
        "Marker: one category. Line: all decisions of an observer together, dashed where several coincide. "
        f"Bars and brackets: 95 % intervals. {_decisions(observers)}"
    ]
    head(figure, title or "Shape bias by category", notes, variant)
    return figure


def _decisions(observers: Sequence[Observer]) -> str:
    """The n behind the intervals."""
    return f"{counts(np.array([o.decided.sum() for o in observers]))} decisions for shape or texture each."


def apart(places: Sequence[float], near: float = 0.6) -> list[Any]:
    """Line styles with which lines that nearly coincide, in points of percent, all stay in sight.

    Each of them has a dash where the others have gaps, so that none moves from its place.
    """
    styles: list[Any] = ["-"] * len(places)
    order = sorted((i for i in range(len(places)) if np.isfinite(places[i])), key=lambda i: places[i])
    groups: list[list[int]] = []
    for i in order:
        if groups and places[i] - places[groups[-1][-1]] < near:
            groups[-1].append(i)
        else:
            groups.append([i])
    for group in (g for g in groups if len(g) > 1):
        for turn, i in enumerate(group):
            styles[i] = (-_DASH * turn, (_DASH, _DASH * (len(group) - 1)))
    return styles


def _offsets(observers: Sequence[Observer]) -> list[float]:
    """Models stand a little above each other, so that none hides another; people in the middle of the row."""
    models = [o for o in observers if o.color != PEOPLE_COLOR]
    places = np.linspace(0.3, -0.3, len(models)) if len(models) > 1 else np.zeros(len(models))
    rest = iter(places.tolist())
    return [0.0 if o.color == PEOPLE_COLOR else next(rest) for o in observers]


def boxes(observers: Sequence[Observer], title: str | None = None, variant: str = "") -> Any:
    """One box per observer over the 16 categories."""
    figure, ax = new_figure(max(4.2, 1.6 + 0.9 * len(observers)), 4.8)
    values = [o.boxes[np.isfinite(o.boxes)] for o in observers]
    drawn = ax.boxplot(values, widths=0.55, patch_artist=True, medianprops=dict(color="black"), flierprops=dict(ms=3))
    for box, observer in zip(drawn["boxes"], observers, strict=True):
        box.set(facecolor=observer.color, alpha=0.75, edgecolor="0.2")
    places = list(range(1, len(observers) + 1))
    ax.scatter(places, [o.pooled for o in observers], marker="D", s=26, color="white", edgecolors="black", zorder=4)
    ax.set_xticks(places, [o.label for o in observers], rotation=30, ha="right")
    ax.set_ylim(-2, 102)
    ax.set_yticks(*PERCENT_TICKS)
    ax.set_ylabel("shape bias")
    ends = np.array([o.intervals(np.arange(0))[:, 0] for o in observers]).T
    ax.vlines(places, *ends, color="black", linewidth=1.1, zorder=3.5)
    notes = [
        "Box: quartiles of the categories. Diamond: all decisions of an observer together, with its 95 % interval. "
        f"{_decisions(observers)}"
    ]
    head(figure, title or "Shape bias over 16 categories", notes, variant)
    return figure


if __name__ == "__main__":
    main()
