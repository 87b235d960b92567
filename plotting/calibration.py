"""Is a model as often right as it says? Reliability diagrams from stored logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import head, new_panels, reach, save
from _logits import stored_outputs
from _options import (
    confidence_option,
    figure_command,
    models_option,
    out_option,
    settings_option,
    title_option,
    variant_option,
)

from testbed.commands.options import WholeNumber, db_option, registry_option
from testbed.entries.registry import load_registry
from testbed.errors import StoreError, TestbedError
from testbed.metrics.calibration import BINS, ConfidenceBins, binned, equal_width_places
from testbed.stats.intervals import wilson
from testbed.store.evaluation import Evaluation
from testbed.store.opening import open_store
from testbed.store.outputs import Outputs

MOST = 20  # diagrams in one figure


@dataclass(frozen=True)
class Reliability:
    """Bins of confidence, and the interval of the accuracy in each as fractions; NaN for an empty bin."""

    bins: ConfidenceBins
    low: np.ndarray
    high: np.ndarray


@figure_command()
@db_option
@registry_option
@models_option
@settings_option
@variant_option
@click.option("--bins", type=WholeNumber(2, 100), default=BINS, show_default=True, help="Bins of confidence.")
@confidence_option(text="Of the intervals.")
@title_option
@out_option("figures/calibration")
def main(
    *,
    db: str | None,
    registry: tuple[str, ...],
    models: tuple[str, ...],
    eval_settings: tuple[str, ...],
    variant: str | None,
    bins: int,
    confidence: float,
    title: str | None,
    out: Path,
) -> None:
    """Draw a reliability diagram for each model on each setting.

    \b
        python plotting/calibration.py --models 'digits_cnn*' --eval-settings digits digits.contrast.3
    """
    stored = stored_outputs(open_store(db), load_registry(registry), models, eval_settings, variant)
    if len(stored.evaluations) > MOST:
        raise too_many(stored.evaluations)
    diagrams: dict[tuple[str, str], Reliability] = {}
    for evaluation in stored.evaluations:
        outputs = stored.readable(evaluation, with_probabilities=True)
        if outputs is not None:
            diagrams[evaluation.model, evaluation.eval_setting] = reliability(outputs, bins, confidence)
    if not diagrams:
        raise StoreError(f"the {stored.store.where} has no stored logits of these models and settings")
    save(figure_of(diagrams, bins, confidence, title, stored.variant), out)


def too_many(evaluations: Sequence[Evaluation]) -> TestbedError:
    """Which models and settings there are to choose from."""
    models, settings = (list(dict.fromkeys(map(attrgetter(name), evaluations))) for name in ("model", "eval_setting"))
    more = f" and {len(settings) - 5} more" if len(settings) > 5 else ""
    return TestbedError(
        f"{len(evaluations)} pairs have stored logits, a figure shows up to {MOST}: choose with --models "
        f"({', '.join(models)}) and --eval-settings ({', '.join(settings[:5])}{more})"
    )


def reliability(outputs: Outputs, bins: int = BINS, confidence: float = 0.95) -> Reliability:
    """Images sorted into equal bins of confidence."""
    sure = outputs.softmax().confidence
    sorted_in = binned(sure, outputs.correct, equal_width_places(sure, bins), bins)
    # Wilson's: bins hold few images, of which the exact interval is wider than it need be.
    intervals = [
        wilson(right, int(count), confidence) if count else (np.nan, np.nan)
        for right, count in zip(sorted_in.right, sorted_in.count, strict=True)
    ]
    low, high = np.array(intervals).T
    return Reliability(sorted_in, low, high)


def figure_of(
    diagrams: dict[tuple[str, str], Reliability],
    bins: int,
    confidence: float,
    title: str | None = None,
    variant: str = "",
) -> Any:
    """The figure: a small square for each pair."""
    panels = new_panels(len(diagrams), 4, size=(2.3, 2.5), room=(5.6, 0.9), sharex=True, sharey=True)
    for ax, ((model, setting), diagram) in zip(panels.each, diagrams.items(), strict=True):
        _diagram(ax, diagram)
        error, images = diagram.bins.expected_error, diagram.bins.count.sum()
        ax.set_title(f"{model}\n{setting}\nECE {error:.1f}, n = {images:,}", fontsize=7.5)
    for ax in panels.bottom:
        ax.set_xlabel("confidence", fontsize=8)
    for ax in panels.left:
        ax.set_ylabel("accuracy", fontsize=8)
    note = (
        f"Blue: share of right answers in {bins} bins of confidence, with {100 * confidence:g} % intervals; dashed: as "
        "right as sure; grey: share of images. ECE: expected calibration error, points."
    )
    head(panels.figure, title or "Accuracy by confidence", [note], variant)
    return panels.figure


def _diagram(ax: Any, diagram: Reliability) -> None:
    count, confidence, accuracy = diagram.bins.count, diagram.bins.confidence, diagram.bins.accuracy
    edges = np.linspace(0, 1, len(count) + 1)
    ax.bar((edges[:-1] + edges[1:]) / 2, count / count.sum(), width=np.diff(edges), color="0.85", zorder=1)
    ax.plot([0, 1], [0, 1], color="0.3", linestyle=(0, (4, 3)), linewidth=1, zorder=2)
    ax.errorbar(
        confidence,
        accuracy,
        yerr=reach(accuracy, diagram.low, diagram.high),
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
    # Room for the points at 100 %.
    ax.set_ylim(0, 1.02)


if __name__ == "__main__":
    main()
