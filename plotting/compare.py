"""Two models on the same images: the difference in accuracy on every eval setting, from stored logits."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import QUIET, counts, head, new_figure, save, save_text
from _logits import StoredOutputs, stored_outputs
from _options import confidence_option, figure_command, out_option, settings_option, title_option, variant_option

from testbed.commands.options import db_option, registry_option
from testbed.entries.registry import load_registry
from testbed.errors import StoreError
from testbed.stats.paired import difference, mcnemar
from testbed.store.opening import open_store
from testbed.store.outputs import Outputs

LEVEL = 0.05  # of the family of all settings together


@dataclass(frozen=True)
class Compared:
    """One setting: first minus second in percentage points, with its interval and McNemar's test."""

    eval_setting: str
    difference: float
    low: float
    high: float
    n: int
    only_first: int
    only_second: int
    p_value: float
    significant: bool = False


@figure_command()
@click.argument("first")
@click.argument("second")
@db_option
@registry_option
@settings_option
@variant_option
@confidence_option(text="Of the intervals.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the numbers here.")
@title_option
@out_option("figures/compare")
def main(
    *,
    first: str,
    second: str,
    db: str | None,
    registry: tuple[str, ...],
    eval_settings: tuple[str, ...],
    variant: str | None,
    confidence: float,
    json_file: Path | None,
    title: str | None,
    out: Path,
) -> None:
    """Compare model FIRST with model SECOND, image by image, on all settings both were run on.

    \b
        python plotting/compare.py digits_cnn digits_mlp --eval-settings 'digits.*'
    """
    if first == second:
        raise click.UsageError(f"expected two models to compare, got '{first}' twice")
    # Both at once: the variant that is meant must be the same for both.
    stored = stored_outputs(open_store(db), load_registry(registry), [first, second], eval_settings, variant)
    compared = compare(stored, first, second, confidence)
    if json_file is not None:
        save_text(json_file, json.dumps([asdict(c) for c in compared], indent=1))
    save(forest(compared, first, second, confidence, title, stored.variant), out)


def compare(stored: StoredOutputs, first: str, second: str, confidence: float = 0.95) -> list[Compared]:
    """Every setting that has logits of both, on the images both could read."""
    one, other = ({e.eval_setting: e for e in stored.evaluations if e.model == model} for model in (first, second))
    compared = []
    for setting in sorted(one.keys() & other.keys()):
        outputs = [stored.readable(evaluations[setting]) for evaluations in (one, other)]
        if outputs[0] is None or outputs[1] is None:
            continue
        pair = _same_images(outputs[0], outputs[1])
        if len(pair[0]):
            apart, test = difference(*pair, confidence), mcnemar(*pair)
            counts = (apart.n, test.only_first, test.only_second, test.p_value)
            compared.append(Compared(setting, apart.value, apart.low, apart.high, *counts))
    if not compared:
        raise StoreError(f"no eval setting has stored logits of both {first} and {second} on the same images")
    return mark_significant(compared)


def _same_images(one: Outputs, other: Outputs) -> tuple[np.ndarray, np.ndarray]:
    """Whether each was right, on the images that both have."""
    if np.array_equal(one.ids, other.ids):
        return one.correct, other.correct
    # One of the two could not read some of the images.
    _, rows, other_rows = np.intersect1d(one.ids, other.ids, return_indices=True)
    return one.correct[rows], other.correct[other_rows]


def mark_significant(compared: list[Compared]) -> list[Compared]:
    """Holm's step-down: all marked differences together are by chance in at most 5 % of cases."""
    order = sorted(range(len(compared)), key=lambda i: compared[i].p_value)
    marked: set[int] = set()
    for step, i in enumerate(order):
        if compared[i].p_value > LEVEL / (len(compared) - step):
            break
        marked.add(i)
    return [Compared(**asdict(c) | {"significant": i in marked}) for i, c in enumerate(compared)]


def forest(
    compared: list[Compared],
    first: str,
    second: str,
    confidence: float,
    title: str | None = None,
    variant: str = "",
) -> Any:
    """A row per setting: the difference with its interval, filled where it is significant."""
    figure, ax = new_figure(7.2, 0.2 * len(compared) + 1.5)
    for place, c in enumerate(reversed(compared)):
        color = QUIET if not c.significant else "tab:blue" if c.difference > 0 else "tab:orange"
        ax.plot([c.low, c.high], [place, place], color=color, linewidth=1.4)
        ax.plot(
            c.difference, place, "o", color=color, markersize=4.5, markerfacecolor=color if c.significant else "white"
        )
        p_value = "p < 0.0001" if c.p_value < 1e-4 else f"p = {c.p_value:.4f}"
        ax.annotate(
            f"{c.difference:+.1f}  {p_value}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=6.5,
            color=QUIET,
            annotation_clip=False,
        )
    ax.axvline(0, color="0.3", linewidth=0.9)
    ax.set_yticks(range(len(compared)), [c.eval_setting for c in reversed(compared)], fontsize=7)
    ax.set_ylim(-0.7, len(compared) - 0.3)
    ax.set_xlabel(f"top1, percentage points:  < 0 {second} is better  |  > 0 {first} is better")
    better = sum(c.significant and c.difference > 0 for c in compared)
    worse = sum(c.significant and c.difference < 0 for c in compared)
    images = counts(np.array([c.n for c in compared]))
    notes = [
        f"{len(compared)} settings, {images} images each, the same for both; bars: {100 * confidence:g} % intervals "
        "(Newcombe); p: McNemar, exact.",
        f"Filled where significant (Holm over all settings, 5 %): {first} better on {better}, {second} on {worse}.",
    ]
    head(figure, title or f"{first} against {second}", notes, variant)
    return figure


if __name__ == "__main__":
    main()
