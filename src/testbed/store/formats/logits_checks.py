"""Whether imported logits are what they claim to be: arrays that fit each other, the setting and the stored results.

Nothing that a manifest says of its numbers is believed. What the registry knows of a setting is compared with; only of
a setting that is unknown here the manifest tells the rest, and then its accuracy must be that of its arrays.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.data import writing
from testbed.data.array_files import load_npz
from testbed.data.rows import Rows
from testbed.entries.checks import shortened
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import DataError, StoreError, TestbedError, UnknownName, in_words
from testbed.metrics.accuracy import accuracy_topk
from testbed.metrics.classification import classification
from testbed.metrics.estimate import Estimate
from testbed.metrics.labels import COLUMNS
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import EVERY, find
from testbed.store.formats.manifest import Item
from testbed.store.measuring import measure
from testbed.store.outputs import Outputs

_ARRAYS = ("logits", "targets", "image_paths", "indices")
_LONGEST_ARRAY_NAME = 64
_ALIKE = 1e-6  # relative; the same arrays give the same accuracy on every machine


# ---- the file --------------------------------------------------------------------------------------------


def read_outputs(item: Item) -> Outputs:
    """The outputs in the item's file, whose arrays fit each other."""
    path = item.path
    try:
        # Of a pipe there is no end to read to.
        whole = path.is_file() and writing.sha256_of(path) == item.sha256
        if path.is_file() and not whole:
            raise StoreError(f"{path} is not what its manifest says: the checksum differs")
        arrays = load_npz(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise StoreError(f"{path}: expected arrays of logits: {error}") from error
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise StoreError(f"{path}: expected the arrays {', '.join(_ARRAYS)}, {missing[0]} is missing")
    return _fitting(item, arrays)


def _fitting(item: Item, arrays: dict[str, np.ndarray]) -> Outputs:
    logits, targets, ids, indices = (arrays.pop(name) for name in _ARRAYS)

    def refuse(expected: str, array: np.ndarray) -> StoreError:
        return StoreError(f"{item.path}: expected {expected}, got {array.dtype} of shape {array.shape}")

    n = len(logits) if logits.ndim == 2 else 0
    if n == 0 or logits.shape[1] == 0 or logits.dtype not in (np.float16, np.float32, np.float64):
        raise refuse("logits as floating-point numbers, images x classes", logits)
    for name, array in (("targets", targets), ("indices", indices)):
        if array.shape != (n,) or array.dtype.kind not in "iu":
            raise refuse(f"{n} whole numbers as {name}, one for each row of the logits", array)
        if int(array.max()) >= 2**31 or int(array.min()) < (-1 if name == "targets" else 0):
            low = "-1 (no label)" if name == "targets" else "0"
            raise StoreError(f"{item.path}: expected {name} from {low} on, got {array.min()} to {array.max()}")
    if ids.shape != (n,) or ids.dtype.kind != "U":
        raise refuse(f"{n} texts as image_paths, one for each row of the logits", ids)
    for name, array in arrays.items():
        if array.shape[:1] != (n,):
            raise refuse(f"{n} rows of {shortened(name)}, as many as of the logits", array)
        if len(name) > _LONGEST_ARRAY_NAME or writing.safe_name(name) != name:
            raise StoreError(f"{item.path}: expected a plain word as the name of an array, got {shortened(name)}")
    rows = Rows(ids, targets.astype(np.int64), indices.astype(np.int64))
    return Outputs(rows, logits, arrays, item.model, item.n_bad)


# ---- the setting -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Known:
    """Rows of a setting: the labels of each image, and how often it stands at each place of the dataset."""

    labels: Mapping[str, set[int]]
    places: Mapping[tuple[str, int], int]


@dataclass(frozen=True)
class Expected:
    """What is known here of an item's setting; `setting` is None where the registry has no such one of its version."""

    setting: EvalSetting | None = None
    rows: _Known | None = None  # from the data, else from results that are stored
    whole: bool = False  # whether these are all rows of the setting
    n_images: int | None = None
    columns: int | None = None  # of the logits

    @property
    def decisions(self) -> bool:
        """Whether its outputs are decisions of observers, who may see a part of the pictures, and may not answer."""
        return self.setting is not None and hasattr(self.setting.metrics_fn, "conditions")


def expected_of(store: Store, registry: Registry, item: Item, data_roots: Sequence[Path]) -> Expected:
    """What this registry, data and database say of the item's setting. A version of the future is refused."""
    setting = _known_setting(registry, item.eval_setting)
    if setting is not None and item.version > setting.version:
        raise StoreError(
            f"{item.label}: expected version {setting.version}, which the registry declares, got {item.version}, which "
            "would hide all results of yours: update the registry first"
        )
    if setting is None or item.version < setting.version:
        _refuse_to_hide(store, item)
        return Expected(rows=_stored_rows(store, item))
    runnable = registry.runnable(setting.name)
    columns = None if runnable.class_sublist is None else len(runnable.class_sublist)
    # The data of a string such as folder:PATH is not looked at: a stranger's path may lead anywhere.
    if runnable.dataset is not None and setting.name in registry.eval_settings.entries:
        try:
            samples = runnable.dataset.open(data_roots)
            rows = runnable.rows(samples, item.limit)
            if columns is None and setting.targets_are == COLUMNS:
                columns = samples.num_classes
            return Expected(setting, _known([rows]), True, len(rows), columns)
        except Exception:  # the data is not here, or not whole: it cannot be compared with
            pass
    size = setting.size if setting.size is None or item.limit is None else min(item.limit, setting.size)
    return Expected(setting, _stored_rows(store, item), False, size, columns)


def _known_setting(registry: Registry, name: str) -> EvalSetting | None:
    try:
        return registry.eval_setting(name)
    except (UnknownName, DataError):  # also a string that names data which is not here
        return None


def _refuse_to_hide(store: Store, item: Item) -> None:
    """An import of a setting that is unknown here must not take the place of results that were computed here."""
    stored = find(store, None, [item.eval_setting], item.variant, EVERY, OWN)
    hidden = [e for e in stored if not e.imported and e.version < item.version]
    if hidden:
        raise StoreError(
            f"{item.label}: version {item.version} would hide {len(hidden)} result(s) of version {hidden[0].version} "
            "that were computed here: register that version of the setting first"
        )


def _stored_rows(store: Store, item: Item) -> _Known | None:
    """The setting's rows, as far as results of it that were computed here have them; None without any."""
    stored = find(store, None, [item.eval_setting], EVERY, item.version, OWN)
    # A derived result lists the images of its parent, with the parent's labels.
    paths = {e.samples_path for e in stored if e.logits_path and e.samples_path and not e.imported}
    return _known([store.place(path).rows() for path in sorted(paths)]) if paths else None


def _known(lists: Sequence[Rows]) -> _Known:
    labels: dict[str, set[int]] = {}
    places: Counter[tuple[str, int]] = Counter()
    for rows in lists:
        ids = rows.ids.tolist()
        for id_, target in zip(ids, rows.targets.tolist(), strict=True):
            labels.setdefault(id_, set()).add(target)
        places |= Counter(zip(ids, rows.indices.tolist(), strict=True))  # a limited run has some of the whole one's
    return _Known(labels, places)


def check_outputs(item: Item, outputs: Outputs, expected: Expected, override: bool) -> str:
    """Refuse outputs that do not fit what is expected; returns a warning, mostly empty.

    With `override` a setting may have another number of images than it declares, as in a run.
    """
    _check_numbers(item, outputs, expected)
    _check_columns(item, outputs, expected)
    if expected.decisions:
        return ""
    _check_rows(item, outputs, expected)
    n = len(outputs) + item.n_bad
    if expected.n_images is None and item.limit is not None and n > item.limit:
        raise StoreError(f"{item.label}: expected at most {item.limit} images of {item.variant}, got {n}")
    warnings = [f"{item.n_bad} unreadable image(s) left out"] if item.n_bad else []
    if expected.n_images is not None and n != expected.n_images:
        if not override:
            raise StoreError(
                f"{item.label}: expected {expected.n_images} images, got {n}: a part of a setting comes with its "
                "variant (limit=N); --override takes it in with a warning"
            )
        warnings.insert(0, f"expected {expected.n_images} images, found {n}")
    return "; ".join(warnings)


def _check_numbers(item: Item, outputs: Outputs, expected: Expected) -> None:
    finite = np.isfinite(outputs.logits).all(axis=1)
    if expected.decisions:
        finite |= np.isnan(outputs.logits).all(axis=1)  # no answer
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise StoreError(f"{item.path}: expected finite logits, got NaN or infinity in row {row} ({_id(outputs, row)})")


def _check_columns(item: Item, outputs: Outputs, expected: Expected) -> None:
    setting, columns = expected.setting, outputs.columns
    if expected.columns is not None and columns != expected.columns:
        raise StoreError(f"{item.label}: expected logits of {expected.columns} classes, got {columns}")
    if setting is not None and setting.targets_are == COLUMNS and int(outputs.targets.max()) >= columns:
        raise StoreError(f"{item.label}: expected labels from 0 to {columns - 1}, got {outputs.targets.max()}")


def _check_rows(item: Item, outputs: Outputs, expected: Expected) -> None:
    """Every row is one of the setting's. Classes and rows of other settings are read from it by its place."""
    if expected.rows is None:
        return
    counted: Counter[tuple[str, int]] = Counter()
    images = zip(outputs.ids.tolist(), outputs.targets.tolist(), outputs.rows.indices.tolist(), strict=True)
    for row, (id_, target, index) in enumerate(images):
        labels = expected.rows.labels.get(id_)
        if labels is None:
            if expected.whole:
                who = _id(outputs, row)
                raise StoreError(f"{item.label}: expected images of the setting, got {who}, which it has not")
            continue
        if target not in labels:
            label = min(labels)
            raise StoreError(
                f"{item.label}: expected label {label} of {_id(outputs, row)}, as it is here, got {target}"
            )
        counted[id_, index] += 1
        often = expected.rows.places.get((id_, index), 0)
        if often == 0:
            right = min(place for known, place in expected.rows.places if known == id_)
            raise StoreError(f"{item.label}: expected index {right} of {_id(outputs, row)}, as it is here, got {index}")
        if counted[id_, index] > often:
            raise StoreError(f"{item.label}: expected {_id(outputs, row)} {often} time(s), as here, got it more often")


def _id(outputs: Outputs, row: int) -> str:
    return shortened(str(outputs.ids[row]))


# ---- the numbers -----------------------------------------------------------------------------------------


def measured(
    registry: Registry, item: Item, outputs: Outputs, expected: Expected
) -> tuple[dict[str, Estimate], list[str]]:
    """The metrics, measured from the arrays, and the names of those that were told and cannot be measured here."""
    if expected.setting is None:
        return _measured_alone(item, outputs)
    try:
        return measure(expected.setting, registry.models.entries.get(item.model), outputs), []
    except Exception as error:  # metrics functions are the users' own code
        raise StoreError(f"{item.label} cannot be measured here: {in_words(error)}") from error


def _measured_alone(item: Item, outputs: Outputs) -> tuple[dict[str, Estimate], list[str]]:
    """Of a setting that is unknown here: those of the told metrics that need nothing but logits and labels.

    Its accuracy must be the told one. If it is not, arrays or numbers are wrong, or the labels are no columns.
    """
    left_out = [name for name in item.metrics if name not in ("top1", "top5", "nll", "brier", "ece")]
    if "top1" not in item.metrics or int(outputs.targets.max()) >= outputs.columns:
        return {}, list(item.metrics)
    try:
        numbers = accuracy_topk(outputs.logits, outputs.targets) | classification(outputs.logits, outputs.targets)
    except TestbedError as error:
        raise StoreError(f"{item.label} cannot be measured: {error}") from error
    for name in ("top1", "top5"):
        told, own = item.metrics.get(name), numbers.get(name)
        if told is not None and (own is None or not math.isclose(told, own.value, rel_tol=_ALIKE, abs_tol=_ALIKE)):
            measured_here = "none" if own is None else f"{own.value:.4g}"
            raise StoreError(
                f"{item.label}: the manifest tells {name} {told:.4g}, its logits and labels give {measured_here}: "
                "register the setting (--registry) to have its own metrics measured"
            )
    return {name: numbers[name] for name in item.metrics if name in numbers}, left_out
