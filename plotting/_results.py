"""Stored results as one table for figures: points (a model as measured by one source) x eval settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from _model_types import TYPES, type_of
from _nothing import check_models, check_settings, nothing_of_metric
from _settings import MANY_IN_ONE, TENTH, stored_patterns, weights_of

from testbed.commands.options import say
from testbed.errors import StoreError, UnknownName, near_or_some
from testbed.metrics.estimate import ACCURACY, LOWER, UNDECLARED, MetricKind
from testbed.stats.intervals import clopper_pearson
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Number
from testbed.store.find import EVERY, many_objects, meant_variant, numbers, stored_variants
from testbed.store.mixed import MARK, MixedData, lines, mixed_data
from testbed.store.names import matches, model_tags

STORED_CONFIDENCE = 0.95
# Accuracies that are k of n images, so that an interval at any confidence follows from the number and n. The declared
# kind cannot tell: a mean over classes and the area under a ROC curve are percentages from 0 to 100 as well.
SHARES_OF_IMAGES = frozenset({"top1", "top5", "top1_full1000", "accuracy16", *MANY_IN_ONE})


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
    """One number per point with its interval, NaN where it is missing; how many images, 0 unknown."""

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
    kind: MetricKind
    variant: str
    confidence: float
    points: list[Point]
    settings: list[str]
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    n: np.ndarray
    other_variants: tuple[str, ...] = ()  # that are stored but not in the table
    notes: tuple[str, ...] = ()  # on numbers that do not belong side by side; their models have a star

    @property
    def is_accuracy(self) -> bool:
        """Percent from 0 to 100, the more the better: what logit axes and corruption errors are made for."""
        return self.kind == ACCURACY

    @property
    def are_shares(self) -> bool:
        """Whether each number is a share of its n images."""
        return self.is_accuracy and self.metric in SHARES_OF_IMAGES

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is: numbers times this go up with quality."""
        return -1 if self.kind.better == LOWER else 1

    @property
    def axis_label(self) -> str:
        """The metric with its unit."""
        return f"{self.metric}, {self.kind.unit}" if self.kind.unit else self.metric

    @property
    def instead(self) -> str:
        """Ends the sentence that there is nothing to draw: which other variants to ask for."""
        names = [f"--variant {name or repr('')}" for name in self.other_variants]
        return f"; there are other results: {', '.join(names)}" if names else ""

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
        if self.are_shares:
            for cell in zip(*np.nonzero(n), strict=True):
                edges = clopper_pearson(value[cell] / 100 * n[cell], int(n[cell]), self.confidence)
                low[cell], high[cell] = (100 * edge for edge in edges)
        return low, high

    def keep(self, rows: np.ndarray) -> Results:
        """The table of these points only."""
        points = [point for point, kept in zip(self.points, rows, strict=True) if kept]
        arrays = {name: getattr(self, name)[rows] for name in ("value", "low", "high", "n")}
        return replace(self, points=points, **arrays)

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
            if not any(matches(name, [pattern]) for names in labels for name in names):
                known = sorted({point.model for point in self.points})
                raise UnknownName(f"no results of model '{pattern}'{near_or_some(pattern, known)}")
        return np.array([any(matches(name, patterns) for name in names) for names in labels], dtype=bool)

    def highlighted(self, patterns: Sequence[str]) -> np.ndarray:
        """Which points --highlight means; none given means none."""
        return self.matching(patterns) if patterns else np.zeros(len(self.points), dtype=bool)


# ---- from the database -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Words:
    """What the user said of the results a figure shows. They choose the variant; a line needs the other models too."""

    models: Sequence[str] = ()
    eval_settings: Sequence[str] = ()  # settings, averages, globs, comma lists


def load(
    store: Store,
    metric: str = "top1",
    sources: Sequence[str] = (),
    variant: str | None = None,
    confidence: float = STORED_CONFIDENCE,
    words: Words | None = None,
) -> Results:
    """All results of a metric from these sources, own and published where none is named.

    A variant that is not given is the one that `words` mean (testbed.store.find): whole settings where there are any.
    """
    words = words or Words()
    if variant == EVERY:
        raise StoreError("--variant: expected one variant, got *; two are never mixed in a figure")
    source = sources[0] if len(sources) == 1 else EVERY
    if variant is None:
        # A point may be named by its label, such as "resnet50 (own)"; the database knows the model.
        models = [name.partition(" (")[0] for name in words.models]
        variant = meant_variant(store, models or None, stored_patterns(words.eval_settings) or None, source)
    with many_objects():
        rows = _read(store, metric, variant, sources, source)
        if not rows:
            raise nothing_of_metric(store, metric, variant, sources)
        results = _as_table(rows, metric, variant, confidence, model_tags(store))
    results = replace(results, other_variants=tuple(v for v in stored_variants(store) if v != variant))
    check_models(store, words.models, [p.model for p in results.points], variant)
    check_settings(store, words.eval_settings, results.settings, metric, variant)
    return _with_marks(store, results, rows, stored_patterns(words.eval_settings))


def _with_marks(store: Store, results: Results, rows: Sequence[Number], patterns: Sequence[str]) -> Results:
    """The table, with a star at models that have numbers of older data on one of the settings, and a line for each."""
    mixed = tell_mixed(store, {row.evaluation_id for row in rows if matches(row.eval_setting, patterns or None)})
    older = {model for m in mixed for _, model, _ in m.older}
    points = [
        replace(point, label=f"{point.label}{MARK}") if point.source == OWN and point.model in older else point
        for point in results.points
    ]
    return replace(results, points=points, notes=tuple(lines(mixed)))


def tell_mixed(store: Store, evaluation_ids: Collection[int]) -> list[MixedData]:
    """Say which of the evaluations were made from other data than others on the same setting."""
    mixed = mixed_data(store, evaluation_ids)
    for line in lines(mixed):
        say(line, err=True)
    return mixed


def _read(store: Store, metric: str, variant: str, sources: Sequence[str], source: str) -> list[Number]:
    """The numbers in the order they came into the database."""
    # The accuracies over neighbouring frames are read as settings of their own, as the published table has them.
    names = (metric, *MANY_IN_ONE) if metric == "top1" else (metric,)
    rows = numbers(store, metric=names, variant=variant, source=source)
    if len(sources) > 1:
        rows = [row for row in rows if row.source in sources]
    return [row for row in rows if row.value is not None]


def _as_table(
    rows: Sequence[Number], metric: str, variant: str, confidence: float, tags: dict[str, list[str]]
) -> Results:
    """Numbers in their places. By columns, since there may be some hundred thousand numbers."""

    def column(name: str) -> list[Any]:
        return list(map(attrgetter(name), rows))

    names = column("eval_setting")
    if any(row.metric != metric for row in rows):
        names = [row.eval_setting if row.metric == metric else f"{row.eval_setting}_{row.metric}" for row in rows]
    known = set(names)
    settings = sorted(known | {name.removesuffix(TENTH) for name in known})
    setting_place = {name: j for j, name in enumerate(settings)}
    pairs, of_row = _points_of(column("source"), column("model"), np.array(column("evaluation_id")))
    cells = of_row, np.array([setting_place[name] for name in names])

    arrays = {}
    for name, attribute in (("value", "value"), ("low", "ci_low"), ("high", "ci_high"), ("n", "n")):
        arrays[name] = np.full((len(pairs), len(settings)), np.nan)
        arrays[name][cells] = np.array(column(attribute), dtype=np.float64)  # None becomes NaN
    arrays["n"] = np.nan_to_num(arrays["n"]).astype(np.int64)
    one_sided = np.isnan(arrays["low"]) | np.isnan(arrays["high"])
    arrays["low"][one_sided] = arrays["high"][one_sided] = np.nan
    for name in known:
        if name.endswith(TENTH):
            _stand_in(arrays, setting_place[name], setting_place[name.removesuffix(TENTH)])

    # The source is told only where it is needed to tell two points apart.
    seen = Counter(model for _, model in pairs)
    points = [
        Point(
            model,
            source,
            model if seen[model] == 1 else f"{model} ({source})",
            tuple(tags[model]),
            type_of(tags[model], model),
        )
        for source, model in pairs
    ]
    return Results(metric, _kind_of(rows), variant, confidence, points, settings, **arrays)


def _points_of(
    sources: list[str], models: list[str], evaluation_ids: np.ndarray
) -> tuple[list[tuple[str, str]], np.ndarray]:
    """The (source, model) of every point, and which of them each number belongs to.

    Points stand in the order in which they came into the database, and so keep their colours when more come in.
    """
    source_names, model_names = list(dict.fromkeys(sources)), list(dict.fromkeys(models))
    source_place = {name: i for i, name in enumerate(source_names)}
    model_place = {name: i for i, name in enumerate(model_names)}
    code = np.array([source_place[s] for s in sources]) * len(model_names) + [model_place[m] for m in models]
    codes, point_of_row = np.unique(code, return_inverse=True)
    first = np.full(len(codes), np.iinfo(np.int64).max)
    np.minimum.at(first, point_of_row, evaluation_ids)
    order = np.argsort(first, kind="stable")
    place = np.argsort(order)  # the inverse permutation
    pairs = [divmod(int(c), len(model_names)) for c in codes[order]]
    return [(source_names[s], model_names[m]) for s, m in pairs], place[point_of_row]


def _stand_in(arrays: dict[str, np.ndarray], tenth: int, whole: int) -> None:
    """A tenth of the images stands for the whole where the whole was not run, as published."""
    missing = np.isnan(arrays["value"][:, whole])
    for array in arrays.values():
        array[missing, whole] = array[missing, tenth]


def _kind_of(rows: Sequence[Number]) -> MetricKind:
    """What the numbers declare of themselves; nothing where they disagree, so that no unit is shown of some only.

    Numbers that declare nothing do not count: some were stored before metrics did.
    """
    declared = set(map(attrgetter("unit", "better", "lowest", "highest"), rows)) - {(None,) * 4}
    if len(declared) != 1:
        return UNDECLARED
    unit, better, lowest, highest = declared.pop()
    return MetricKind(unit or "", better, lowest, highest)
