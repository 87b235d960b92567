"""Datasets that are WebDataset shards: tar files in which the files of a sample stand side by side under one key."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from testbed.data.archives import Archive, Member, open_archive
from testbed.data.class_folders import labels_of
from testbed.data.images import EXTENSIONS, packed_samples
from testbed.data.samples import UNKNOWN, Dataset, Samples, fingerprint_of
from testbed.data.shard_files import class_names, shard_files
from testbed.data.shard_labels import Labels, read_labels
from testbed.data.validation_names import by_name
from testbed.errors import DataError, EntryError

RULES = ("auto", "imagenet", "integer", "sorted", "imagenet-a", "imagenet-r", "none")
# As in the packages webdataset and datasets: the key ends at the first dot of the file's name.
_KEY = re.compile(r"(?P<key>(?:.*/)?[^./][^./]*)\.(?P<field>[^/]*)")
_OF_THE_FORMAT = re.compile(r"__[^/]*__(/.*)?")


@dataclass(frozen=True)
class ShardDataset(Dataset):
    """Pictures in WebDataset shards: a glob, a range in braces, one file, or a folder of them.

    The label of a sample is its .cls, .json, .npy or .txt file. labels: how it becomes an index, by names in a
    classnames.txt beside the shards if there is one.
    - "auto", "imagenet", "integer", "sorted": as of labels.class_indices;
    - "imagenet-a", "imagenet-r": numbers 0 to 199 are the places of the set's classes in the order of their wnids;
    - "none": no labels.
    """

    shards: str
    labels: str = "auto"
    source: str = ""

    def __post_init__(self) -> None:
        if self.labels not in RULES:
            raise EntryError(f"ShardDataset: labels must be one of {', '.join(RULES)}, got {self.labels!r}")

    def describe(self) -> str:
        return f"shards {self.shards}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        return samples_of_shards(shard_files(self.shards), self.labels)

    def several_labels(self) -> dict[str, tuple[int, ...]]:
        """Image -> all of its labels, for the pictures that have more than one."""
        listed, _ = _listed(shard_files(self.shards), self.labels)
        return listed.several


@dataclass(frozen=True)
class Sample:
    """The files of one sample by their fields, such as jpg and cls."""

    key: str
    archive: Archive
    files: dict[str, Member] = field(default_factory=dict)

    @property
    def picture(self) -> Member:
        pictures = [field for field in self.files if f".{field}" in EXTENSIONS]
        if len(pictures) != 1:
            got = " and ".join(pictures) or ", ".join(self.files)
            raise DataError(f"{self.archive.path}: expected one picture of the sample {self.key}, got {got}")
        return self.files[pictures[0]]

    def text(self, name: str) -> bytes | None:
        """The contents of a field; None where it is not there."""
        member = self.files.get(name)
        if member is None:
            return None
        kept = self.archive.labels.get(member.name)
        return self.archive.read(member) if kept is None else kept


@dataclass(frozen=True)
class _Listed:
    ids: list[str]
    order: list[int]  # places in the shards
    labels: Labels
    targets: np.ndarray
    several: dict[str, tuple[int, ...]]
    folders_are_classes: bool


def samples_of_shards(files: Sequence[Path], rule: str) -> Samples:
    """The Samples of the pictures in shards, in their order; ImageNet's validation pictures in that of folders."""
    listed, everything = _listed(files, rule)
    chosen = [everything[place] for place in listed.order]
    pictures = [(sample.archive, sample.picture) for sample in chosen]
    samples = packed_samples(
        listed.ids,
        listed.targets,
        [member.size for _, member in pictures],
        lambda index: pictures[index][0].read(pictures[index][1]),
        {sample.archive.path: sample.archive.state for sample in everything},
        label_space=listed.labels.space,
        num_classes=listed.labels.num_classes,
        folders_are_classes=listed.folders_are_classes,
    )
    if not listed.several:
        return samples
    return replace(samples, fingerprint=fingerprint_of(samples.fingerprint, repr(listed.several)))


def _listed(files: Sequence[Path], rule: str) -> tuple[_Listed, list[Sample]]:
    everything = [sample for path in files for sample in samples_in(open_archive(path))]
    place = files[0] if len(files) == 1 else files[0].parent
    if not everything:
        raise DataError(f"no samples in {place}: expected files such as 000.jpg and 000.cls side by side")
    names = _names(everything)
    labels = (
        Labels([()] * len(everything))
        if rule == "none"
        else read_labels(everything, class_names(files), rule, str(place))
    )
    if labels is None:  # no sample has any: folders or names may tell
        return _by_path(names, rule, place), everything
    targets = np.array([own[0] if own else UNKNOWN for own in labels.of_samples], dtype=np.int64)
    several = {name: own for name, own in zip(names, labels.of_samples, strict=True) if len(own) > 1}
    known = None if several or (labels.space == "own" and labels.names) else by_name(_bare(names), place)
    if known is None:
        return _Listed(names, list(range(len(names))), labels, targets, several, False), everything
    ids, published = known
    wrong = np.flatnonzero((targets != published) & (targets != UNKNOWN))
    if len(wrong):
        first = int(wrong[0])
        raise DataError(f"{place}: {names[first]} has the label {targets[first]}, its name says {published[first]}")
    order = sorted(range(len(ids)), key=ids.__getitem__)
    # Labels that a rule leaves out stay out.
    targets = published if (targets != UNKNOWN).any() else targets
    labels = replace(labels, space="imagenet", num_classes=1000)
    return _Listed([ids[i] for i in order], order, labels, targets[order], {}, bool((targets >= 0).any())), everything


def _by_path(names: list[str], rule: str, place: Path) -> _Listed:
    bare = _bare(names)
    in_folders = all("/" in name for name in names)
    if not in_folders and by_name(bare, place) is None:
        raise DataError(
            f"{place}: no sample has a label: expected .cls, .json, .npy or .txt beside the pictures; labels=none "
            "takes them without"
        )
    paths = names if in_folders else bare
    first = sorted(range(len(paths)), key=paths.__getitem__)
    made = labels_of([paths[i] for i in first], rule, None, place)
    labels = Labels([(int(t),) for t in made.targets], made.space, made.num_classes)
    return _Listed(made.ids, [first[i] for i in made.order], labels, made.targets, {}, made.folders_are_classes)


def _bare(names: Sequence[str]) -> list[str]:
    return [name.rpartition("/")[2] for name in names]


def _names(everything: Sequence[Sample]) -> list[str]:
    """The names of the pictures; with those of the shards before them where every shard counts anew."""
    names = [sample.picture.name for sample in everything]
    if len(set(names)) == len(names):
        return names
    names = [f"{sample.archive.path.stem}/{name}" for sample, name in zip(everything, names, strict=True)]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(f"{everything[0].archive.path.parent}: expected each picture once, got {twice} twice")
    return names


def samples_in(archive: Archive) -> Iterator[Sample]:
    """The samples of a shard: runs of files with one key. Files without an ending belong to none."""
    over: set[str] = set()
    current: Sample | None = None
    for member in archive.members:
        match = _KEY.fullmatch(member.name)
        if match is None or _OF_THE_FORMAT.fullmatch(member.name):
            continue
        key, name = match["key"], match["field"].lower()
        if current is None or key != current.key:
            if current is not None:
                yield current
                over.add(current.key)
            if key in over:
                raise DataError(
                    f"{archive.path}: the files of the sample {key} do not stand side by side, so that labels and "
                    "pictures may be mixed up: pack the shard with `tar --sort=name`"
                )
            current = Sample(key, archive)
        if name in current.files:
            raise DataError(f"{archive.path}: the sample {key} has two files .{name}, expected one")
        current.files[name] = member
    if current is not None:
        yield current
