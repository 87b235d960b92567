"""Outputs of an evaluation, its own or derived from another's, and the metrics computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.data.select import restrict_to_classes
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import EntryError, StoreError
from testbed.metrics.accuracy import FULL_PREDICTION
from testbed.metrics.estimate import Estimate
from testbed.stats.intervals import bootstrap_rows
from testbed.store import queries
from testbed.store.database import Store
from testbed.store.files import SampleList

_BOOTSTRAP_RESAMPLES = 200
_BOOTSTRAP_ELEMENTS = 10_000_000  # larger logits get no interval for a metric that brings none of its own


@dataclass(frozen=True)
class Outputs:
    """Logits of the readable images, with their ids, targets and whatever a probe recorded."""

    logits: np.ndarray
    samples: SampleList
    extras: dict[str, np.ndarray]
    bad: int = 0


def outputs_of(store: Store, registry: Registry, evaluation: queries.Evaluation) -> Outputs:
    """The stored outputs of an evaluation; those of a derived one are computed from its parent's."""
    if evaluation.row["logits_path"]:
        stored = queries.stored_logits(store, evaluation)
        outputs = Outputs(stored.logits, stored.samples, stored.extras, len(stored.bad_rows))
        if not len(stored.bad_rows):
            return outputs
        return _take(outputs, np.setdiff1d(np.arange(len(stored.logits)), stored.bad_rows))
    parents = queries.evaluations(store, id=evaluation.row["derived_from_id"] or -1)
    if not parents:
        raise StoreError(f"{evaluation.model} on {evaluation.eval_setting} has no logits and no parent that has")
    setting = registry.eval_setting(evaluation.eval_setting)
    return derive(outputs_of(store, registry, parents[0]), setting)


def derive(parent: Outputs, setting: EvalSetting) -> Outputs:
    """The rows and columns of the parent's outputs that `setting` takes."""
    rows = np.arange(len(parent.samples.targets))
    if setting.idx_subsample_list is not None:
        # The list may name an image twice; a limited parent may lack some.
        place = {int(index): row for row, index in enumerate(parent.samples.indices)}
        rows = np.array([place[i] for i in setting.idx_subsample_list if i in place], dtype=np.int64)
    targets = parent.samples.targets[rows]
    if setting.class_sublist is not None:
        rows, targets = restrict_to_classes(rows, targets, setting.class_sublist)
    if not len(rows):
        raise StoreError(f"'{setting.name}' takes none of the images that '{setting.derived_from}' was run on")
    taken = _take(parent, rows)
    logits, extras = taken.logits, dict(taken.extras)
    if setting.class_sublist is not None:
        if max(setting.class_sublist) >= logits.shape[1]:
            raise StoreError(
                f"'{setting.name}' asks for class {max(setting.class_sublist)}, the stored logits of "
                f"'{setting.derived_from}' have {logits.shape[1]}"
            )
        if "extras" in setting.arguments["metrics_fn"]:
            extras[FULL_PREDICTION] = _among_all(logits, setting.class_sublist)
        logits = logits[:, list(setting.class_sublist)]
    samples = SampleList(taken.samples.ids, targets, taken.samples.indices)
    return Outputs(logits, samples, extras, parent.bad)


def _among_all(logits: np.ndarray, class_sublist: Sequence[int]) -> np.ndarray:
    """The prediction among all columns, as its place in the sublist; past its end for a class outside."""
    place = np.full(logits.shape[1], len(class_sublist), dtype=np.int64)
    place[list(class_sublist)] = np.arange(len(class_sublist))
    return place[logits.argmax(axis=1)]


def _take(outputs: Outputs, rows: np.ndarray) -> Outputs:
    extras = {name: array[rows] for name, array in outputs.extras.items()}
    return Outputs(outputs.logits[rows], outputs.samples.rows(rows), extras, outputs.bad)


def measure(setting: EvalSetting, model: Model | None, outputs: Outputs) -> dict[str, Estimate]:
    """What the setting's metrics_fn says, each number with an interval where one can be had."""
    taken = setting.arguments["metrics_fn"]

    def call(logits: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
        found = call_by_name(
            setting.metrics_fn,
            taken,
            logits=logits,
            targets=targets,
            model=model,
            image_paths=list(outputs.samples.ids),
            extras=outputs.extras,
        )
        if not hasattr(found, "items"):
            raise EntryError(
                f"metrics_fn of '{setting.name}' must return a dict of numbers, got {type(found).__name__}"
            )
        return dict(found.items())

    targets = outputs.samples.targets
    found = call(outputs.logits, targets)
    bare = {name: v for name, v in found.items() if not isinstance(v, Estimate)}
    # A function of logits and targets alone treats images as exchangeable, so they can be resampled.
    exchangeable = not taken & {"image_paths", "extras", "model"}
    intervals: dict[str, tuple[float, float]] = {}
    if bare and exchangeable and outputs.logits.size <= _BOOTSTRAP_ELEMENTS:
        logits = np.asarray(outputs.logits)

        def resampled(rows: np.ndarray) -> dict[str, Any]:
            again = call(logits[rows], targets[rows])
            return {name: again[name] for name in bare if name in again}

        intervals = bootstrap_rows(resampled, len(targets), _BOOTSTRAP_RESAMPLES)

    def estimate(name: str, value: Any) -> Estimate:
        if isinstance(value, Estimate):
            return value
        low, high = intervals.get(name, (None, None))
        return Estimate(float(value), low, high, len(targets))

    return {name: estimate(name, value) for name, value in found.items()}
