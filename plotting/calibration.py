"""Is a model as often right as it says? Reliability diagrams from stored logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import head, new_figure, save
from _logits import Answers, answers, with_logits
from _options import figure_command, models_option, out_option, settings_option, title_option

from testbed.commands.options import db_option, registry_option
from testbed.entries.registry import load_registry
from testbed.errors import StoreError, TestbedError
from testbed.stats.intervals import wilson
from testbed.store.opening import open_store

MOST = 20  # diagrams in one figure


@dataclass(frozen=True)
class Reliability:
    """Per bin of confidence: how many images, how sure, how often right (with interval), all as fractions."""

    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def expected_error(self) -> float:
        """Expected calibration error: the gap between confidence and accuracy, over images."""
        share = self.count / self.count.sum()
        return float(np.nansum(share * np.abs(self.confidence - self.accuracy)))


@figure_command()
@db_option
@registry_option
@models_option
@settings_option
@click.option("--variant", default="", metavar="NAME", help="Results of partial runs, such as limit=500.")
@click.option("--bins", type=click.IntRange(2, 100), default=15, show_default=True, help="Bins of confidence.")
@click.option(
    "--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True
)
@title_option
@out_option("results/figures/calibration")
def main(
    db: str | None,
    registry: tuple[str, ...],
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    variant: str,
    bins: int,
    confidence: float,
    title: str | None,
    out: Path,
) -> None:
    """Draw a reliability diagram for each model on each setting.

    \b
        python plotting/calibration.py --models 'digits_cnn*' --eval-settings digits digits.contrast.3
    """
    store, entries = open_store(db), load_registry(registry)
    found = with_logits(store, models, eval_settings, variant)
    diagrams: dict[tuple[str, str], Reliability] = {}
    for evaluation in found:
        if len(diagrams) == MOST:
            click.echo(f"only the first {MOST} of {len(found)} diagrams are drawn: choose with --models", err=True)
            break
        try:
            pair = (evaluation.model, evaluation.eval_setting)
            diagrams[pair] = reliability(answers(store, entries, evaluation), bins, confidence)
        except TestbedError as error:
            click.echo(f"left out: {error}", err=True)
    if not diagrams:
        raise StoreError(f"the {store.where} has no stored logits of these models and settings")
    save(figure_of(diagrams, bins, confidence, title), out)


def reliability(found: Answers, bins: int = 15, confidence: float = 0.95) -> Reliability:
    """Images sorted into equal bins of confidence."""
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.ceil(found.confidence * bins).astype(int) - 1, 0, bins - 1)  # (low, high], as usual
    count = np.bincount(place, minlength=bins)
    filled = np.where(count, count, np.nan)
    sure = np.bincount(place, found.confidence, minlength=bins) / filled
    right = np.bincount(place, found.correct, minlength=bins)
    intervals = [wilson(r, int(c), confidence) if c else (np.nan, np.nan) for r, c in zip(right, count, strict=True)]
    low, high = np.array(intervals).T
    return Reliability(edges, count, sure, right / filled, low, high)


def figure_of(
    diagrams: dict[tuple[str, str], Reliability], bins: int, confidence: float, title: str | None = None
) -> Any:
    """The figure: a small square for each pair."""
    columns = min(len(diagrams), 4)
    rows = -(-len(diagrams) // columns)
    figure, axes = new_figure(
        max(2.3 * columns, 5.6), 2.5 * rows + 0.9, rows, columns, sharex=True, sharey=True, squeeze=False
    )
    for ax, ((model, setting), found) in zip(axes.flat, diagrams.items(), strict=False):
        _diagram(ax, found)
        error, images = 100 * found.expected_error, found.count.sum()
        ax.set_title(f"{model}\n{setting}\nECE {error:.1f}, n = {images:,}", fontsize=7.5)
    for ax in axes.flat[len(diagrams) :]:
        ax.set_visible(False)
    for ax in axes.flat[: len(diagrams)][-columns:]:
        ax.set_xlabel("confidence", fontsize=8)
        ax.tick_params(labelbottom=True)
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy", fontsize=8)
    note = (
        f"Blue: share of right answers in {bins} bins of confidence, with {100 * confidence:g} % intervals; dashed: as "
        "right as sure; grey: share of images. ECE: expected calibration error, points."
    )
    head(figure, title or "Reliability", [note])
    return figure


def _diagram(ax: Any, found: Reliability) -> None:
    middle, width = (found.edges[:-1] + found.edges[1:]) / 2, np.diff(found.edges)
    ax.bar(middle, found.count / found.count.sum(), width=width, color="0.85", zorder=1)
    ax.plot([0, 1], [0, 1], color="0.3", linestyle=(0, (4, 3)), linewidth=1, zorder=2)
    reach = np.maximum([found.accuracy - found.low, found.high - found.accuracy], 0)
    ax.errorbar(
        found.confidence,
        found.accuracy,
        yerr=reach,
        fmt="o-",
        color="tab:blue",
        markersize=3,
        linewidth=1,
        elinewidth=0.8,
    )
    ticks = [0, 0.25, 0.5, 0.75, 1]
    labels = ["0", "25%", "50%", "75%", "100%"]
    ax.set_xticks(ticks, labels, fontsize=7)
    ax.set_yticks(ticks, labels, fontsize=7)
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02)


if __name__ == "__main__":
    main()
