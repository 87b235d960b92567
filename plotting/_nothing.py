"""What there is instead, where the words of a figure find no results: variants, sources, metrics, names."""

from __future__ import annotations

from collections.abc import Sequence

from _settings import stored_patterns, weights_of

from testbed.errors import StoreError, UnknownName, near_names
from testbed.store.database import Store
from testbed.store.evaluation import Number
from testbed.store.find import EVERY, nothing_found, numbers
from testbed.store.names import eval_setting_names, matches, model_names

_IMPORT = " (db.py --import-csv FILE --source NAME brings in more)"


def nothing_of_metric(store: Store, metric: str, variant: str, sources: Sequence[str]) -> StoreError | UnknownName:
    """Why there is no number at all. Only asked where nothing was found, so it may read everything."""
    there = numbers(store, variant=EVERY, source=EVERY)
    if not there:
        return StoreError(f"the {store.where} holds no results: run eval.py, or db.py --import-csv, first")
    known = sorted({row.source for row in there})
    for name in sources:
        if name not in known:
            return UnknownName(f"no results from source '{name}'; expected {', '.join(known)}{_IMPORT}")
    here = [row for row in there if row.variant == variant]
    if not here:
        return nothing_found(store, variant=variant, source=sources[0] if len(sources) == 1 else None)
    return _other_metrics(metric, here)


def check_models(store: Store, models: Sequence[str], found: Sequence[str], variant: str) -> None:
    """Refuse models that the table lacks but the database has: of another variant, most often."""
    for pattern in models:
        name = pattern.partition(" (")[0]  # a point may be named by its label, such as "resnet50 (own)"
        if not any(matches(f, [name]) for f in found) and any(matches(n, [name]) for n in model_names(store)):
            raise nothing_found(store, [name], None, variant)


def check_settings(store: Store, expressions: Sequence[str], found: Sequence[str], metric: str, variant: str) -> None:
    """Refuse settings that the table lacks, and say of which other variant or metric there are results."""
    for expression in expressions:
        try:
            weights_of(expression, found)
        except UnknownName:
            patterns = stored_patterns([expression])
            if not any(matches(name, patterns) for name in eval_setting_names(store)):
                raise
            there = numbers(store, None, patterns, variant=variant, source=EVERY)
            if there and all(row.metric != metric for row in there):
                raise _other_metrics(metric, there, f" on {expression}") from None
            wanted = [p for p in expression.split(",") if p not in found]
            raise nothing_found(store, None, wanted, variant) from None


def _other_metrics(metric: str, there: Sequence[Number], where: str = "") -> UnknownName:
    metrics = sorted({row.metric for row in there})
    near = near_names(metric, metrics)
    return UnknownName(f"no results with metric '{metric}'{where}{near or ';'} there are: {', '.join(metrics)}")
