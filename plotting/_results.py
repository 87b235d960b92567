"""Stored results as one table for figures: points (a model as measured by one source) x eval settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _settings import weights_of
from _types import TYPES, type_of

from testbed.errors import StoreError, UnknownName, near_names
from testbed.stats.intervals import clopper_pearson
from testbed.store import queries
from testbed.store.database import Store

OWN = "own"
STORED_CONFIDENCE = 0.95
SHARES = ("top1", "top5")  # percentages of images, whose interval follows from n at any confidence
_TENTH = "_10percent"
_MANY_IN_ONE = ("pm0", "pm10")  # own settings have these as metrics, the published table as columns of their own


@dataclass(frozen=True)
class Point:
    """A model as one source measured it."""

    model: str
    source: str
    label: str
    tags: tuple[str, ...]
    type: str


@dataclass(frozen=True)
class Column:
    """One number for each point: percent with its interval, NaN where it is missing; how many images, 0 unknown."""

    label: str
    settings: tuple[str, ...]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray


@dataclass(frozen=True)
class Results:
    """The table itself; each array is (points, settings)."""

    metric: str
    confidence: float
    points: list[Point]
    settings: list[str]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray

    @property
    def is_accuracy(self) -> bool:
        return self.metric in SHARES

    def column(self, expression: str, label: str | None = None) -> Column:
        """A setting, or the mean over several: missing for a model that lacks any of them.

        The interval of a mean is the mean of the intervals, which holds even where all settings show the same images;
        its n is the smallest.
        """
        weights = weights_of(expression, self.settings)
        places = [self.settings.index(name) for name in weights]
        share = np.array(list(weights.values()))
        low, high = self._intervals(places)
        if label is None:
            label = expression if len(weights) == 1 else f"{expression} (mean of {len(weights)})"
        return Column(
            label,
            tuple(weights),
            self.value[:, places] @ share,
            low @ share,
            high @ share,
            self.n[:, places].min(axis=1),
        )

    def _intervals(self, places: list[int]) -> tuple[np.ndarray, np.ndarray]:
        if self.confidence == STORED_CONFIDENCE:
            return self.low[:, places], self.high[:, places]
        value, n = self.value[:, places], self.n[:, places]
        low, high = np.full(value.shape, np.nan), np.full(value.shape, np.nan)
        if self.is_accuracy:
            for cell in zip(*np.nonzero(n), strict=True):
                edges = clopper_pearson(value[cell] / 100 * n[cell], int(n[cell]), self.confidence)
                low[cell], high[cell] = (100 * edge for edge in edges)
        return low, high

    def keep(self, rows: np.ndarray) -> Results:
        """The table of these points only."""
        points = [point for point, kept in zip(self.points, rows, strict=True) if kept]
        arrays = (array[rows] for array in (self.value, self.low, self.high, self.n))
        return Results(self.metric, self.confidence, points, self.settings, *arrays)

    def chosen(self, models: Sequence[str] = (), types: Sequence[str] = ()) -> np.ndarray:
        """Which points these names or globs, and these types, mean; none given means all."""
        for name in types:
            if name not in TYPES:
                raise UnknownName(f"no model type '{name}'; expected {', '.join(TYPES)}")
        of_type = np.array([not types or point.type in types for point in self.points])
        return of_type & self.matching(models) if models else of_type

    def matching(self, patterns: Sequence[str]) -> np.ndarray:
        """Which points these names or globs mean; a name that means none is refused."""
        labels = [{point.model, point.label} for point in self.points]
        for pattern in patterns:
            if not any(queries.matches(name, [pattern]) for names in labels for name in names):
                known = sorted({point.model for point in self.points})
                raise UnknownName(f"no results of model '{pattern}'{near_names(pattern, known)}")
        return np.array([any(queries.matches(name, patterns) for name in names) for names in labels], dtype=bool)


def load(
    store: Store,
    metric: str = "top1",
    sources: Sequence[str] = (),
    variant: str = "",
    confidence: float = STORED_CONFIDENCE,
) -> Results:
    """All results of a metric from these sources, own and published where none is named."""
    rows = queries.results(store, variant=variant, source=None)
    if not rows:
        raise StoreError(f"the {store.where} holds no results: run eval.py, or db.py --import-csv, first")
    known_sources = sorted({row["source"] for row in rows})
    for name in sources:
        if name not in known_sources:
            raise UnknownName(f"no results from source '{name}'; expected {', '.join(known_sources)}")
    cells = _cells(rows, metric, sources)
    if not cells:
        known = sorted({row["metric"] for row in rows})
        raise UnknownName(f"no results with metric '{metric}'{near_names(metric, known) or f'; there is {known[0]}'}")
    return _as_table(cells, metric, confidence, queries.model_tags(store))


Cells = dict[tuple[str, str], dict[str, dict[str, Any]]]


def _cells(rows: list[dict[str, Any]], metric: str, sources: Sequence[str]) -> Cells:
    """Rows by (source, model), in the order they came into the database, and by setting."""
    cells: Cells = {}
    for row in sorted(rows, key=lambda r: r["evaluation_id"]):
        if (sources and row["source"] not in sources) or row["value"] is None:
            continue
        setting = row["eval_setting"]
        if metric == "top1" and row["metric"] in _MANY_IN_ONE:
            setting = f"{setting}_{row['metric']}"
        elif row["metric"] != metric:
            continue
        cells.setdefault((row["source"], row["model"]), {})[setting] = row
    for found in cells.values():  # a tenth of the images stands for the whole where the whole was not run, as published
        for setting in [s for s in found if s.endswith(_TENTH)]:
            found.setdefault(setting.removesuffix(_TENTH), found[setting])
    return cells


def _as_table(cells: Cells, metric: str, confidence: float, tags: dict[str, list[str]]) -> Results:
    settings = sorted({setting for found in cells.values() for setting in found})
    place = {setting: i for i, setting in enumerate(settings)}
    shape = (len(cells), len(settings))
    value, low, high = (np.full(shape, np.nan) for _ in range(3))
    n = np.zeros(shape, dtype=np.int64)
    seen: dict[str, int] = {}
    for _, model in cells:
        seen[model] = seen.get(model, 0) + 1
    points = []
    for i, ((source, model), found) in enumerate(cells.items()):
        label = model if seen[model] == 1 else f"{model} ({source})"
        points.append(Point(model, source, label, tuple(tags[model]), type_of(tags[model], model)))
        for setting, row in found.items():
            j = place[setting]
            value[i, j] = row["value"]
            if row["ci_low"] is not None and row["ci_high"] is not None:
                low[i, j], high[i, j] = row["ci_low"], row["ci_high"]
            n[i, j] = row["n"] or 0
    return Results(metric, confidence, points, settings, value, low, high, n)
