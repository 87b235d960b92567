"""The main figures of Taori et al. 2020, redrawn from the published numbers: db.py --import-csv brings them in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from _drawing import save
from _lines import Choice, fit_line
from _options import confidence_option, figure_command, many, metric_option, models_option, out_option
from _results import Results, load
from _settings import LOWER_ENDS, V2
from effective_robustness import rho_against_rho, rho_column
from scatter import scatter

from testbed.commands.options import db_option
from testbed.errors import StoreError, UnknownName, near_names
from testbed.store.database import Store
from testbed.store.find import EVERY, find
from testbed.store.opening import is_there, open_store

PUBLISHED = "imagenet-testbed"


@dataclass(frozen=True)
class Shift:
    """Accuracy under a shift against accuracy without, for models of some accuracy."""

    title: str
    x: str
    y: str

    @property
    def min_x(self) -> float:
        return LOWER_ENDS[self.x, self.y]


@dataclass(frozen=True)
class Transfer:
    """Effective robustness under one shift against that under another, without the models of the line."""

    title: str
    x: str
    y: str = V2
    min_x: float = LOWER_ENDS["val", V2]


FIGURES: dict[str, Shift | Transfer] = {
    "imagenetv2": Shift("ImageNetV2", "val", V2),
    "objectnet": Shift("ObjectNet", "val-on-objectnet-classes", "objectnet-1.0-beta"),
    "vid-robust": Shift("ImageNet-Vid-Robust", "val-on-vid-robust-classes", "imagenet-vid-robust_pm0"),
    "ytbb-robust": Shift("YTBB-Robust", "val-on-ytbb-robust-classes", "ytbb-robust_pm0"),
    "vid-robust-pm10": Shift(
        "ImageNet-Vid-Robust with neighbouring frames", "imagenet-vid-robust_pm0", "imagenet-vid-robust_pm10"
    ),
    "ytbb-robust-pm10": Shift("YTBB-Robust with neighbouring frames", "ytbb-robust_pm0", "ytbb-robust_pm10"),
    "imagenet-a": Shift("ImageNet-A", "val-on-imagenet-a-classes", "imagenet-a"),
    "imagenet-r": Shift("ImageNet-R", "val-on-imagenet-r-classes", "imagenet-r"),
    "imagenet-sketch": Shift("ImageNet-Sketch", "val", "imagenet-sketch"),
    "corruptions": Shift("Corruptions", "val", "avg_corruptions"),
    "pgd": Shift("PGD", "val", "avg_pgd"),
    "transfer-corruptions": Transfer("Effective robustness: corruptions and ImageNetV2", "avg_corruptions"),
    "transfer-pgd": Transfer("Effective robustness: PGD and ImageNetV2", "avg_pgd"),
}


@figure_command()
@db_option
@click.option("--source", default=PUBLISHED, show_default=True, help="Name of the import.")
@many("--figures", metavar="NAME...", text=f"Only these of: {', '.join(FIGURES)}.")
@models_option
@metric_option
@confidence_option(0.995, "Of error bars; 0.995 as published. Bands of lines: 95 %.")
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
    choice = Choice(min_x=figure.min_x)  # the band of the line is a 95 % one, as published
    if isinstance(figure, Shift):
        x, y = results.column(figure.x), results.column(figure.y)
        return scatter(results, x, y, fit_line(results, x, y, choice), choice, chosen=chosen, title=figure.title)
    # Its bars are made of those of the accuracies and of the line's: all at one level.
    choice = replace(choice, confidence=results.confidence)
    x, y = (rho_column(results, name, None, choice) for name in (figure.x, figure.y))
    rows = chosen & np.isfinite(x.value) & np.isfinite(y.value)
    # As published: the models of the line would fill the middle of the figure.
    rows &= np.array([point.type != choice.type for point in results.points])
    return rho_against_rho(results, x, y, rows, choice, title=figure.title)


if __name__ == "__main__":
    main()
