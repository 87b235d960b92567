"""Checks that a dataset is what its setting expects: number of images, class names, readable files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from testbed.data.labels import imagenet_meanings, imagenet_wnids
from testbed.data.samples import Samples
from testbed.errors import ImageError

_WNID = re.compile(r"n\d{8}")
_NUMBERED = re.compile(r"(.*?)(\d+)")
_MOST_NAMED = 4
_THREADS = 4


@dataclass(frozen=True)
class Findings:
    """The contents of a dataset, and the problems with them."""

    images: int
    names: str  # how class folders are named: wnids, integers or names; empty where folders are no classes
    per_class: dict[str, int] = field(repr=False)  # class name -> images
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what is worth knowing, and no fault of the data
    unusable: str = ""  # why no model can be measured on these images


def look_over(
    samples: Samples,
    classes: Sequence[int] | None = None,
    rows: Sequence[int] | np.ndarray | None = None,
    part: bool = False,
) -> Findings:
    """Class names, counts and problems, from the list of images alone: no file is opened.

    classes: the labels that must occur. None expects every class of the dataset (all 1000 for ImageNet's labels), or
    none where the number of classes is not known.
    rows: the images that a setting takes; only these are counted. Problems are looked for in the whole dataset, since
    a class folder outside of `rows` can still shift all labels.
    part: `rows` were chosen by hand. Classes without an image are then no fault of the data but of the choice: they are
    counted in `rows` alone, and noted.
    """
    labels = samples.targets if rows is None else samples.targets[np.asarray(rows, dtype=np.int64)]
    counts = Counter(labels[labels >= 0].tolist())
    folders = samples.class_folders
    wnids = dict(enumerate(imagenet_wnids())) if samples.label_space == "imagenet" else {}
    name_of = wnids | {label: folder for folder, label in folders.items()}
    per_class = {name_of.get(label, str(label)): counts[label] for label in sorted(counts)}
    problems = _name_problems(folders, samples, classes)
    notes = [samples.left_out] if samples.left_out else []
    if part:
        notes += [f"{text} (in the rows it takes)" for text in _missing(samples, labels, classes)]
    else:
        problems += _missing(samples, samples.targets, classes)
    return Findings(len(labels), _kind(list(folders)), per_class, tuple(problems), tuple(notes))


def _kind(names: Sequence[str]) -> str:
    """How class folders are named, as in Findings.names."""
    if not names:
        return ""
    if all(_WNID.fullmatch(n) for n in names):
        return "wnids"
    return "integers" if all(n.isdecimal() for n in names) else "names"


def _name_problems(folders: Mapping[str, int], samples: Samples, classes: Sequence[int] | None) -> list[str]:
    """Warnings about folder names whose class order is probably not the one that was meant."""
    if samples.label_space == "imagenet" or not folders:
        return []
    if samples.num_classes is None:  # numbers that are the labels themselves: sorting plays no part
        return _from_one(folders) if not classes or 0 in classes else []
    names = list(folders)
    kinds: tuple[tuple[str, Callable[[str], object]], ...] = (
        ("wnids", _WNID.fullmatch),
        ("integers", str.isdecimal),
        ("names of ImageNet's classes", imagenet_meanings),
    )
    for what, fits in kinds:
        others = [n for n in names if not fits(n)]
        if 0 < len(others) < len(names) / 2:  # with a minority of misfits the wnids or integers were meant
            return [
                f"{some_of(others)} among classes that are {what}: all of them now count in the order of their names"
            ]
    return _unpadded(names)


def _from_one(folders: Mapping[str, int]) -> list[str]:
    """A warning where the folders are numbered 1 to n instead of 0 to n - 1."""
    last = len(folders)
    own = all(name.isdecimal() and int(name) == label for name, label in folders.items())
    if not own or last < 2 or set(folders.values()) != set(range(1, last + 1)):
        return []
    return [f"classes are numbered 1 to {last}: the classifiers count from 0 to {last - 1}"]


def _unpadded(names: Sequence[str]) -> list[str]:
    """A warning where sorting as text mixes up numbers: class_10 comes before class_2."""
    matches = [_NUMBERED.fullmatch(n) for n in names]
    numbers = [int(m[2]) for m in matches if m]
    if len(numbers) == len(names) and len({m[1] for m in matches if m}) == 1 and numbers != sorted(numbers):
        later = next(i for i in range(1, len(numbers)) if numbers[i] < numbers[i - 1])
        return [f"classes count in the order of their names, {names[later - 1]} before {names[later]}: pad the numbers"]
    return []


def _missing(samples: Samples, labels: np.ndarray, classes: Sequence[int] | None) -> list[str]:
    """A warning that names the expected classes that are not in `labels`; none for a dataset without labels."""
    present = set(labels[labels >= 0].tolist())
    expected = range(samples.num_classes or 0) if classes is None else classes
    wnids = imagenet_wnids() if samples.label_space == "imagenet" else None
    name_of = dict(enumerate(wnids)) if wnids else {}
    absent = [name_of.get(label, f"class {label}") for label in expected if label not in present]
    if not present:
        return []
    return [f"{len(absent)} of {len(expected)} classes have no image: {some_of(absent)}"] if absent else []


def uneven(per_class: dict[str, int]) -> str:
    """The few classes whose number of images differs from that of all others, as text.

    Empty where all are equal, or where fewer than 95 % of the classes have the same number: such sets vary anyway.
    """
    if not per_class:
        return ""
    usual, classes_with_usual = Counter(per_class.values()).most_common(1)[0]
    others = [f"{name} has {n}" for name, n in per_class.items() if n != usual]
    if not others or classes_with_usual < 0.95 * len(per_class):
        return ""
    return f"{some_of(others)} images, the other classes {usual}"


def some_of(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def unreadable(samples: Samples, indices: Sequence[int] | None = None, title: str = "") -> list[tuple[str, str]]:
    """(id, reason) of every image that cannot be fully decoded."""
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
