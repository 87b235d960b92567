"""Whether a set of images is what its setting expects: how many, of which classes, and readable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from testbed.data.labels import imagenet_wnids
from testbed.data.samples import Samples
from testbed.errors import ImageError

_WNID = re.compile(r"n\d{8}")
_NUMBERED = re.compile(r"(.*?)(\d+)")
_MOST_NAMED = 4
_THREADS = 4


@dataclass(frozen=True)
class Findings:
    """What is in a dataset, and what is wrong with that."""

    images: int
    names: str  # how class folders are named: wnids, integers, names, or nothing where folders are no classes
    per_class: dict[str, int] = field(repr=False)  # class name -> images
    problems: tuple[str, ...] = ()


def look_over(
    samples: Samples, classes: Sequence[int] | None = None, rows: Sequence[int] | np.ndarray | None = None
) -> Findings:
    """Class names and counts, from the list of the images alone: no file is opened.

    `classes` are the labels that must occur; None expects as many as the set is known to have: all 1000 of one
    with ImageNet's labels. `rows` are the images that a setting takes, and those that are counted. Problems are
    those of the whole set, since all of its folders make the labels.
    """
    labels = samples.targets if rows is None else samples.targets[np.asarray(rows, dtype=np.int64)]
    counts = Counter(labels[labels >= 0].tolist())
    folders = _class_folders(samples)
    wnids = dict(enumerate(imagenet_wnids())) if samples.label_space == "imagenet" else {}
    name_of = wnids | {label: folder for folder, label in folders.items()}
    per_class = {name_of.get(label, str(label)): counts[label] for label in sorted(counts)}
    problems = [*_name_problems(folders, samples, classes), *_missing(samples, classes)]
    return Findings(len(labels), _kind(list(folders)), per_class, tuple(problems))


def _class_folders(samples: Samples) -> dict[str, int]:
    """Label of each class folder, in the order of their names; none where labels come from elsewhere."""
    if not samples.folders_are_classes:
        return {}
    folders = {
        image.partition("/")[0]: label for image, label in zip(samples.ids, samples.targets.tolist(), strict=True)
    }
    return dict(sorted(folders.items()))


def _kind(names: Sequence[str]) -> str:
    if not names:
        return ""
    if all(_WNID.fullmatch(n) for n in names):
        return "wnids"
    return "integers" if all(n.isdecimal() for n in names) else "names"


def _name_problems(folders: Mapping[str, int], samples: Samples, classes: Sequence[int] | None) -> list[str]:
    """Names from which a class order was made that is probably not the one that was meant."""
    if samples.label_space == "imagenet" or not folders:
        return []
    if samples.num_classes is None:
        return _from_one(folders) if not classes or 0 in classes else []
    names = list(folders)
    for what, fits in (("wnids", _WNID.fullmatch), ("integers", str.isdecimal)):
        others = [n for n in names if not fits(n)]
        if 0 < len(others) < len(names) / 2:
            return [f"{_some(others)} among classes that are {what}: all of them now count in the order of their names"]
    return _unpadded(names)


def _from_one(folders: Mapping[str, int]) -> list[str]:
    """Numbers that stand for themselves and leave out 0."""
    last = len(folders)
    own = all(name.isdecimal() and int(name) == label for name, label in folders.items())
    if not own or last < 2 or set(folders.values()) != set(range(1, last + 1)):
        return []
    return [f"classes are numbered 1 to {last}: the classifiers count from 0 to {last - 1}"]


def _unpadded(names: Sequence[str]) -> list[str]:
    """class_10 stands before class_2 in the order of names."""
    found = [_NUMBERED.fullmatch(n) for n in names]
    numbers = [int(m[2]) for m in found if m]
    if len(numbers) == len(names) and len({m[1] for m in found if m}) == 1 and numbers != sorted(numbers):
        later = next(i for i in range(1, len(numbers)) if numbers[i] < numbers[i - 1])
        return [f"classes count in the order of their names, {names[later - 1]} before {names[later]}: pad the numbers"]
    return []


def _missing(samples: Samples, classes: Sequence[int] | None) -> list[str]:
    present = set(samples.targets[samples.targets >= 0].tolist())
    expected = range(samples.num_classes or 0) if classes is None else classes
    wnids = imagenet_wnids() if samples.label_space == "imagenet" else None
    absent = [wnids[label] if wnids else f"class {label}" for label in expected if label not in present]
    if not present:
        return []
    return [f"{len(absent)} of {len(expected)} classes have no image: {_some(absent)}"] if absent else []


def uneven(per_class: dict[str, int]) -> str:
    """The few classes that have another number of images than all others; nothing where sizes vary anyway."""
    if not per_class:
        return ""
    usual, many = Counter(per_class.values()).most_common(1)[0]
    others = [f"{name} has {n}" for name, n in per_class.items() if n != usual]
    if not others or many < 0.95 * len(per_class):
        return ""
    return f"{_some(others)} images, the other classes {usual}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def unreadable(samples: Samples, indices: Sequence[int] | None = None, title: str = "") -> list[tuple[str, str]]:
    """(id, reason) of every image that cannot be decoded to its end."""
    from tqdm import tqdm

    def reason(index: int) -> str:
        try:
            samples.load(index)
        except ImageError as error:
            return str(error)
        return ""

    chosen = range(len(samples)) if indices is None else [int(i) for i in indices]
    with ThreadPoolExecutor(_THREADS) as threads:
        reasons = list(tqdm(threads.map(reason, chosen), total=len(chosen), desc=title, unit=" images", disable=None))
    return [(samples.ids[i], text) for i, text in zip(chosen, reasons, strict=True) if text]
