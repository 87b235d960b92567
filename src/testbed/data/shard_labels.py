"""Labels of the samples in WebDataset shards: numbers or names in .cls, .json and .txt files, several in .npy files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from testbed.data.class_lists import class_indices_of_numbers
from testbed.data.labels import checked_labels, class_indices, not_understood
from testbed.data.samples import UNKNOWN
from testbed.errors import DataError

_MOST_SHOWN = 40  # letters of a label in a message
_KEYS = ("label", "cls")  # of a label in a .json file


class HasFiles(Protocol):
    """A sample, as far as its labels go."""

    @property
    def key(self) -> str: ...

    def text(self, name: str) -> bytes | None: ...


@dataclass(frozen=True)
class Labels:
    """All labels of each sample; space and number of classes as in Samples; whether a list names the classes."""

    of_samples: list[tuple[int, ...]]
    space: str = "own"
    num_classes: int | None = None
    names: bool = False


def read_labels(samples: Sequence[HasFiles], names: Sequence[str], rule: str, where: str) -> Labels | None:
    """The labels of the samples; None where no sample has any.

    names: the classes by number, from classnames.txt; empty without one. rule: as of ShardDataset.
    """
    raw = [_raw(sample, where) for sample in samples]
    if all(own is None for own in raw):
        return None
    without = next((s.key for s, own in zip(samples, raw, strict=True) if own is None), None)
    if without is not None:
        raise DataError(f"{where}: expected a label for every picture, {without} has none; -1 stands for no label")
    several = _as_lists([own for own in raw if own is not None], len(names))
    flat = [label for own in several for label in own]
    if all(isinstance(label, int) for label in flat):
        return _of_numbers(several, names, rule, where)
    if all(isinstance(label, str) for label in flat):
        return _of_names(several, names, rule, where)
    raise DataError(f"{where}: expected numbers or names as labels, got both, such as {_strange(flat)!r}")


def _strange(flat: Sequence[int | str]) -> str:
    return next(label for label in flat if isinstance(label, str))[:_MOST_SHOWN]


# ---- of one sample ---------------------------------------------------------------------------------------


def _raw(sample: HasFiles, where: str) -> Any:
    """The label as it is stored: a number, a name, a list or an array of numbers; None where there is no file of it."""
    by_field: dict[str, Any] = {}
    for name, read in _READERS.items():
        data = sample.text(name)
        if data is None or (name == "txt" and by_field):  # a caption beside a number
            continue
        try:
            label = read(data)
        except (ValueError, TypeError, KeyError, RecursionError, EOFError) as error:
            told = " ".join(str(error).split())[:_MOST_SHOWN]
            raise DataError(f"{where}: the label {sample.key}.{name} cannot be read: {told}") from error
        if isinstance(label, np.ndarray):
            label = checked_labels(label, f"{where}: {sample.key}.{name}")
        if label is not None:
            by_field[name] = label
    numbers = {name: label for name, label in by_field.items() if isinstance(label, int)}
    if len(set(numbers.values())) > 1:
        said = " and ".join(f"{label} in .{name}" for name, label in numbers.items())
        raise DataError(f"{where}: expected one label of {sample.key}, got {said}")
    return next(iter(by_field.values()), None)


def _of_text(data: bytes) -> int | str:
    word = data.decode("utf-8").strip()
    digits = word.removeprefix("-")
    if digits.isdecimal() and digits.isascii() and len(digits) <= 10:
        return int(word)
    if not word:
        raise ValueError("it is empty")
    return word


def _of_json(data: bytes) -> int | str | list[int] | None:
    content = json.loads(data)
    if not isinstance(content, dict):
        content = {"label": content}
    label = next((content[key] for key in _KEYS if key in content), None)
    if isinstance(label, str):
        return _of_text(label.encode())
    if label is None or (isinstance(label, int) and not isinstance(label, bool)):
        return label
    if isinstance(label, list) and all(isinstance(part, int) and not isinstance(part, bool) for part in label):
        return label
    raise ValueError(f"expected a number, a name or a list of numbers, got {str(label)[:_MOST_SHOWN]}")


def _of_array(data: bytes) -> np.ndarray:
    from testbed.data.array_files import read_npy

    return read_npy(io.BytesIO(data), len(data)).ravel()


_READERS: Mapping[str, Callable[[bytes], Any]] = {"cls": _of_text, "json": _of_json, "npy": _of_array, "txt": _of_text}


# ---- of all of them --------------------------------------------------------------------------------------


def _as_lists(raw: Sequence[Any], classes: int) -> list[list[Any]]:
    """The labels of each sample as a list. Arrays of 0 and 1 that all have one length say which classes are there."""
    arrays = [own for own in raw if isinstance(own, np.ndarray)]
    lengths = {len(own) for own in arrays}
    marks = len(lengths) == 1 and lengths <= {classes or max(lengths)} and all((own <= 1).all() for own in arrays)
    marks = marks and all((own >= 0).all() for own in arrays) and lengths != {1}
    made = []
    for own in raw:
        if isinstance(own, np.ndarray):
            own = (np.flatnonzero(own) if marks else own).tolist()
        labels = own if isinstance(own, list) else [own]
        made.append([label for label in labels if label != UNKNOWN])
    return made


def _of_numbers(several: Sequence[Sequence[int]], names: Sequence[str], rule: str, where: str) -> Labels:
    flat = checked_labels([label for own in several for label in own] or [UNKNOWN], where, len(names) or None)
    indices, space, num_classes = class_indices_of_numbers(names, rule, where, int(flat.max()))
    meant = [tuple(own if indices is None else (indices[label] for label in own)) for own in several]
    return Labels(meant, space, num_classes, bool(names))


def _of_names(several: Sequence[Sequence[str]], names: Sequence[str], rule: str, where: str) -> Labels:
    used = sorted({name for own in several for name in own})
    if names:
        place = {name: number for number, name in enumerate(names)}
        unknown = [name for name in used if name not in place or names.count(name) > 1]
        if unknown:
            raise DataError(f"{where}: expected labels of classnames.txt, got {unknown[0][:_MOST_SHOWN]!r}")
        return _of_numbers([[place[name] for name in own] for own in several], names, rule, where)
    listed = dict.fromkeys(used, where)
    indices, space, num_classes = class_indices(used, rule, where, listed)
    if space == "own" and rule == "auto":  # captions would all be classes
        raise DataError(f"{where}: expected wnids or names of ImageNet's classes as labels{not_understood(used)}")
    return Labels([tuple(indices[name] for name in own) for own in several], space, num_classes)
