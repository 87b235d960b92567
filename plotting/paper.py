"""The main figures of Taori et al. 2020, redrawn from the published numbers: db.py --import-csv brings them in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import save
from _lines import Choice, fit_line
from _options import confidence_option, figure_command, many, metric_option, models_option, out_option
from _results import Results, load
from effective_robustness import rho_against_rho, rho_column
from scatter import scatter

from testbed.commands.options import db_option
from testbed.errors import StoreError, UnknownName, near_names
from testbed.store.database import Store
from testbed.store.find import EVERY, find
from testbed.store.opening import is_there, open_store

PUBLISHED = "imagenet-testbed"
V2 = "imagenetv2-matched-frequency-format-val"


@dataclass(frozen=True)
class Shift:
    """Accuracy under a shift against accuracy without, for models of some accuracy."""

    title: str
    x: str
    y: str
    min_x: float


@dataclass(frozen=True)
class Transfer:
    """Effective robustness under one shift against that under another, without the models of the line."""

    title: str
    x: str
    y: str = V2
    min_x: float = 55


# The thresholds on x are the published ones: below them there are only models of other kinds.
FIGURES: dict[str, Shift | Transfer] = {
    "imagenetv2": Shift("ImageNetV2: accuracy falls along one line", "val", V2, 55),
    "objectnet": Shift("ObjectNet", "val-on-objectnet-classes", "objectnet-1.0-beta", 55),
    "vid-robust": Shift("ImageNet-Vid-Robust", "val-on-vid-robust-classes", "imagenet-vid-robust_pm0", 92),
    "ytbb-robust": Shift("YTBB-Robust", "val-on-ytbb-robust-classes", "ytbb-robust_pm0", 95),
    "vid-robust-pm10": Shift(
        "ImageNet-Vid-Robust: right on neighbouring frames too",
        "imagenet-vid-robust_pm0",
        "imagenet-vid-robust_pm10",
        49,
    ),
    "ytbb-robust-pm10": Shift(
        "YTBB-Robust: right on neighbouring frames too", "ytbb-robust_pm0", "ytbb-robust_pm10", 45
    ),
    "imagenet-a": Shift(
        "ImageNet-A: a knee at the model it was made against", "val-on-imagenet-a-classes", "imagenet-a", 75
    ),
    "imagenet-r": Shift("ImageNet-R", "val-on-imagenet-r-classes", "imagenet-r", 75),
    "imagenet-sketch": Shift("ImageNet-Sketch", "val", "imagenet-sketch", 55),
    "corruptions": Shift("Corruptions: interventions raise models above the line", "val", "avg_corruptions", 55),
    "pgd": Shift("PGD: adversarial training raises models above the line", "val", "avg_pgd", 55),
    "transfer-corruptions": Transfer("Robustness to corruptions tells little about ImageNetV2", "avg_corruptions"),
    "transfer-pgd": Transfer("Robustness to PGD tells little about ImageNetV2", "avg_pgd"),
}


@figure_command()
@db_option
@click.option("--source", default=PUBLISHED, show_default=True, help="Name of the import.")
@many("--figures", metavar="NAME...", text=f"Only these of: {', '.join(FIGURES)}.")
@models_option
@metric_option
@confidence_option(0.995, "Of error bars; 0.995 as published.")
@out_option("figures/paper", "DIR", "Each figure is written here as NAME.pdf and NAME.png.")
def main(
    *,
    db: str | None,
    source: str,
    figures: tuple[str, ...],
    models: tuple[str, ...],
    metric: str,
    confidence: float,
    out: Path,
) -> None:
    """Draw the main figures of the testbed paper.

    \b
        python db.py --import-csv robustness_top1s.csv --types model_types.csv --source imagenet-testbed
        python plotting/paper.py
    """
    for name in figures:
        if name not in FIGURES:
            raise UnknownName(f"no figure '{name}'{near_names(name, FIGURES) or '; expected ' + ', '.join(FIGURES)}")
    results = load(published_store(db, source), metric, sources=[source], confidence=confidence)
    chosen = results.chosen(models)
    for name in figures or FIGURES:
        save(draw(results, FIGURES[name], chosen), out / name)


def published_store(db: str | None, source: str) -> Store:
    """The database, if it has results of the source; else an error with the command that gets them."""
    store = open_store(db) if is_there(db) else None
    if store is not None and find(store, variant=EVERY, version=EVERY, source=source):
        return store
    how = "--download imagenet-testbed-results" if source == PUBLISHED else f"--import-csv FILE --source {source}"
    raise StoreError(f"no published results of '{source}' are stored: `python db.py {how}` brings them")


def draw(results: Results, figure: Shift | Transfer, chosen: np.ndarray) -> Any:
    """One of the figures."""
    choice = Choice(min_x=figure.min_x)
    if isinstance(figure, Shift):
        x, y = results.column(figure.x), results.column(figure.y)
        return scatter(results, x, y, fit_line(results, x, y, choice), choice, chosen=chosen, title=figure.title)
    x, y = (rho_column(results, name, None, choice) for name in (figure.x, figure.y))
    rows = chosen & np.isfinite(x.value) & np.isfinite(y.value)
    # As published: the models of the line would fill the middle of the figure.
    rows &= np.array([point.type != choice.type for point in results.points])
    return rho_against_rho(results, x, y, rows, choice, title=figure.title)


if __name__ == "__main__":
    main()
