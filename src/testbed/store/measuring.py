"""From outputs to metrics: rows and columns that a setting takes of another's logits, and what its metrics_fn says."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.rows import Rows, chosen_rows
from testbed.data.samples import UNKNOWN
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import DataError, EntryError, StoreError
from testbed.metrics.accuracy import FULL_PREDICTION
from testbed.metrics.answers import ANSWERS, decided_by_answers
from testbed.metrics.estimate import Estimate, as_number
from testbed.stats.intervals import bootstrap_rows
from testbed.store import files
from testbed.store.damage import refuse, refuse_damaged
from testbed.store.database import Store
from testbed.store.elsewhere import OutputsElsewhere, StoredArray
from testbed.store.evaluation import Evaluation
from testbed.store.fetched import OtherContents
from testbed.store.find import evaluation_by_id, origin_of
from testbed.store.objects import MissingObject
from testbed.store.outputs import Outputs
from testbed.store.places import missing

_BOOTSTRAP_RESAMPLES = 200
_BOOTSTRAP_ELEMENTS = 10_000_000  # larger logits get no interval for a metric that brings none of its own


def outputs_of(store: Store, registry: Registry, evaluation: Evaluation) -> Outputs:
    """The stored outputs of an evaluation. Those of a derived one are rows and columns of its parent's."""
    if evaluation.logits_path:
        return read_outputs(store, evaluation)
    if evaluation.derived_from_id is None:
        raise StoreError(f"{evaluation.label} has no logits")
    origin_of(store, evaluation)  # which refuses one that is derived from itself
    parent = evaluation_by_id(store, evaluation.derived_from_id)
    return derive(outputs_of(store, registry, parent), registry.eval_setting(evaluation.eval_setting))


def read_outputs(store: Store, evaluation: Evaluation) -> Outputs:
    """From the evaluation's own files, if they are whole. Logits stay mapped; unreadable images are left out.

    What lies in object storage is fetched, and compared, when somebody looks at it.
    """
    logits, samples = store.place(evaluation.logits_path), store.place(evaluation.samples_path)
    if logits.remote:
        return _outputs_elsewhere(store, evaluation)
    refuse_damaged(store, evaluation)
    return outputs_in(logits.path, samples.path, evaluation.provenance.bad_rows)


def outputs_in(logits: Path, samples: Path, bad_rows: Sequence[int]) -> Outputs:
    """From files of this machine."""
    rows = files.load_rows(samples)
    return _readable(
        Outputs(rows, files.load_logits(logits), files.extra_arrays(logits), n_bad=len(bad_rows)), bad_rows
    )


def _outputs_elsewhere(store: Store, evaluation: Evaluation) -> Outputs:
    facts, samples = evaluation.provenance, store.place(evaluation.samples_path)
    refuse_this = partial(refuse, store, evaluation)
    try:
        rows = samples.rows()
    except MissingObject:
        refuse_this(missing(samples.stored))
    except OtherContents as error:
        refuse_this(str(error))
    if len(rows) != evaluation.n_images:
        refuse_this(f"{samples}: expected {evaluation.n_images} rows, got {len(rows)}")
    place = store.place(evaluation.logits_path)
    arrays = {
        name: StoredArray(place.array(name), sha256, facts.etags.get(name, ""), refuse_this)
        for name, sha256 in {"logits": str(evaluation.logits_sha256), **facts.arrays_sha256}.items()
    }
    return _readable(OutputsElsewhere(rows, arrays, n_bad=len(facts.bad_rows)), facts.bad_rows)


def _readable(outputs: Outputs, bad_rows: Sequence[int]) -> Outputs:
    """The outputs without the images that could not be read."""
    if not len(bad_rows):
        return outputs
    return outputs.take(np.setdiff1d(np.arange(len(outputs)), np.asarray(bad_rows, dtype=np.int64)))


def refuse_answers(outputs: Outputs, owner: str) -> None:
    """Raise a StoreError where logits were made of answers alone, for readers that look at probabilities."""
    if ANSWERS in outputs.extras:
        raise StoreError(f"{owner} has answers without probabilities: nothing but accuracy can be measured of them")


def derive(parent: Outputs, setting: EvalSetting) -> Outputs:
    """The rows and columns of the parent's outputs that `setting` takes, without a forward pass."""
    if setting.class_sublist is not None and max(setting.class_sublist) >= parent.columns:
        raise StoreError(
            f"'{setting.name}' asks for class {max(setting.class_sublist)}, the stored logits of "
            f"'{setting.logits_from}' have {parent.columns}"
        )
    positions = np.arange(len(parent))
    try:
        rows = chosen_rows(Rows(parent.ids, parent.targets, parent.rows.indices, positions), *setting.choice)
    except DataError as error:
        raise StoreError(f"'{setting.name}': {error}") from error
    if not len(rows):
        raise StoreError(f"'{setting.name}' takes none of the images that '{setting.logits_from}' was run on")
    whole = len(rows) == len(parent) and np.array_equal(rows.numbers, positions)
    taken = parent if whole else parent.take(rows.numbers)  # all of them: the file stays mapped instead of copied
    logits, extras = taken.logits, taken.extras
    if setting.class_sublist is not None:
        if "extras" in setting.arguments["metrics_fn"]:
            # Over the others, which are not read unless they are asked for.
            among_all = {FULL_PREDICTION: _prediction_among_all(logits, setting.class_sublist)}
            extras = ChainMap(among_all, extras)  # type: ignore[arg-type]
        logits = logits[:, list(setting.class_sublist)]
    stored = Rows(rows.ids, rows.targets, rows.indices, taken.rows.numbers)
    return Outputs(stored, logits, extras, parent.model, parent.n_bad, parent.facts)


def _prediction_among_all(logits: np.ndarray, class_sublist: Sequence[int]) -> np.ndarray:
    """The prediction among all columns, as its place in the sublist; past its end for a class outside."""
    place = np.full(logits.shape[1], len(class_sublist), dtype=np.int64)
    place[list(class_sublist)] = np.arange(len(class_sublist))
    return place[logits.argmax(axis=1)]


def measure(setting: EvalSetting, model: Model | None, outputs: Outputs) -> dict[str, Estimate]:
    """What the setting's metrics_fn says, each number with an interval where one can be had.

    Of answers without probabilities, the numbers that the answers decide.
    """
    if ANSWERS in outputs.extras:
        return decided_by_answers(
            lambda logits: _measured(setting, model, outputs.with_logits(logits)),
            outputs.logits,
            outputs.extras[ANSWERS],
        )[0]
    return _measured(setting, model, outputs)


def _measured(setting: EvalSetting, model: Model | None, outputs: Outputs) -> dict[str, Estimate]:
    numbers = _call(setting, model, outputs)
    bare = [name for name, value in numbers.items() if not isinstance(value, Estimate)]
    intervals = _resampled_intervals(setting, model, outputs, bare) if bare else {}

    def estimate(name: str, value: Any) -> Estimate:
        if isinstance(value, Estimate):
            return value
        low, high = intervals.get(name, (None, None))
        return Estimate(as_number(value), low, high, len(outputs.targets))

    return {name: estimate(name, value) for name, value in numbers.items()}


def _call(setting: EvalSetting, model: Model | None, outputs: Outputs) -> dict[str, Any]:
    try:
        numbers = call_by_name(
            setting.metrics_fn,
            setting.arguments["metrics_fn"],
            logits=outputs.logits,
            targets=outputs.targets,
            model=model,
            image_paths=list(outputs.ids),
            extras=outputs.extras,
        )
    except IndexError as error:
        highest = int(outputs.targets.max(initial=UNKNOWN))
        if highest < outputs.columns:
            raise
        # A function that does not declare what its targets are is not checked before.
        raise DataError(
            f"metrics_fn of '{setting.name}': expected labels from 0 to {outputs.columns - 1}, one for each column of "
            f"the logits, got {highest}"
        ) from error
    return _checked(numbers, setting.name)


def _checked(numbers: Any, setting: str) -> dict[str, Any]:
    """What a metrics_fn returned, if it is a dict from names to numbers."""
    if not hasattr(numbers, "items"):
        raise EntryError(f"metrics_fn of '{setting}' must return a dict of numbers, got {type(numbers).__name__}")
    for name, value in numbers.items():
        if not isinstance(name, str) or not name.strip():
            raise EntryError(f"metrics_fn of '{setting}': expected names of metrics as text, got {name!r}")
        parts = (value.value, value.ci_low, value.ci_high, value.n) if isinstance(value, Estimate) else (value,)
        try:
            for place, part in enumerate(parts):
                if part is not None or place == 0:  # an estimate may lack its interval, not its value
                    as_number(part)
        except ValueError as error:
            raise EntryError(f"metrics_fn of '{setting}', metric '{name}': {error}") from error
    return dict(numbers.items())


def _resampled_intervals(
    setting: EvalSetting, model: Model | None, outputs: Outputs, names: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Bootstrap intervals of plain numbers, where images are exchangeable and few enough.

    A function of logits and targets alone treats images as exchangeable, so they can be resampled. One that also sees
    paths, recorded arrays or the model may pair images up, and resampling would break its pairs.
    """
    exchangeable = not setting.arguments["metrics_fn"] & {"image_paths", "extras", "model"}
    if not exchangeable or outputs.logits.size > _BOOTSTRAP_ELEMENTS:
        return {}
    in_memory = outputs.take(np.arange(len(outputs)))

    def again(which: np.ndarray) -> dict[str, Any]:
        numbers = _call(setting, model, in_memory.take(which))
        return {name: numbers[name] for name in names if name in numbers}

    return bootstrap_rows(again, len(outputs), _BOOTSTRAP_RESAMPLES)
