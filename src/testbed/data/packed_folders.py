"""Datasets that are one tar or zip file with class folders in it. Nothing is unpacked."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.data.archives import Archive, Member, open_archive
from testbed.data.class_folders import check_rule, labels_of
from testbed.data.images import EXTENSIONS, OTHER_PICTURES, left_out_in_words, packed_samples
from testbed.data.labels import imagenet_wnids
from testbed.data.locate import MissingData
from testbed.data.samples import Dataset, Samples
from testbed.data.validation_names import tells_class
from testbed.errors import DataError

_OF_MACS = "__MACOSX"  # holds what a Mac knows of the files, under their names


@dataclass(frozen=True)
class ArchiveDataset(Dataset):
    """Pictures in a tar or zip file: those of a folder of class folders, with the same ids and labels as there.

    A folder that wraps all class folders is passed over. labels: as of StandardDataset.
    """

    path: str | os.PathLike[str]
    labels: str = "if-any"
    source: str = ""

    def __post_init__(self) -> None:
        check_rule("ArchiveDataset", self.labels)

    def describe(self) -> str:
        return f"archive {self.path}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        path = Path(self.path).expanduser()
        if not path.exists():
            raise MissingData(f"archive {path} does not exist: expected a tar or zip file with class folders in it")
        archive = open_archive(path)
        if is_shard(archive):
            raise DataError(f"{path} has labels beside its pictures, as shards have: wds:{path} reads it")
        return samples_in(archive, self.labels)


def is_shard(archive: Archive) -> bool:
    """Whether labels lie beside the pictures, as in WebDataset shards."""
    return any(member.name.lower().endswith(".cls") for member in archive.members)


def samples_in(archive: Archive, labels: str, classes: Mapping[str, int] | None = None) -> Samples:
    """The Samples of the pictures in an archive, by the class folders in it."""
    pictures, others = _pictures(archive)
    wrapping = _wrapping(list(pictures))
    by_path = {name.removeprefix(wrapping): member for name, member in pictures.items()}
    if classes is not None:
        by_path = {name: member for name, member in by_path.items() if name.split("/", 1)[0] in classes}
    left_out = left_out_in_words(others)
    if not by_path:
        raise DataError(_nothing_in(archive) + (f"; {left_out}" if left_out else ""))
    paths = sorted(by_path)
    inside = [f.removeprefix(wrapping) for f in archive.folders if f.startswith(wrapping) and f + "/" != wrapping]
    labelled = labels_of(paths, labels, classes, archive.path, {f.split("/", 1)[0] for f in inside} - {_OF_MACS})
    members = [by_path[paths[place]] for place in labelled.order]
    return packed_samples(
        labelled.ids,
        labelled.targets,
        [member.size for member in members],
        lambda index: archive.read(members[index]),
        {archive.path: archive.state},
        label_space=labelled.space,
        num_classes=labelled.num_classes,
        folders_are_classes=labelled.folders_are_classes,
        left_out=left_out,
    )


def _pictures(archive: Archive) -> tuple[dict[str, Member], Counter[str]]:
    """The pictures by their names, and the number of those of kinds that are not read, by ending."""
    pictures: dict[str, Member] = {}
    others: Counter[str] = Counter()
    for member in archive.members:
        *folders, name = member.name.split("/")
        ending = os.path.splitext(name)[1].lower()
        if name.startswith(".") or _OF_MACS in folders:
            continue
        if ending in EXTENSIONS:
            pictures[member.name] = member
        elif ending in OTHER_PICTURES:
            others[ending] += 1
    return pictures, others


def _wrapping(names: Sequence[str]) -> str:
    """The folders, with a / at the end, that hold all class folders or all validation pictures; mostly none."""
    prefix = ""
    while names:
        rest = [name.removeprefix(prefix) for name in names]
        first = rest[0].partition("/")[0]
        is_class = first in imagenet_wnids() or first.isdecimal()
        inner = [name.removeprefix(f"{first}/") for name in rest]
        deeper = all("/" in name for name in inner) or all(map(tells_class, inner))
        if is_class or not deeper or not all(name.startswith(f"{first}/") for name in rest):
            break
        prefix += f"{first}/"
    return prefix


def _nothing_in(archive: Archive) -> str:
    inner = sum(member.name.endswith(".tar") for member in archive.members)
    got = f", got {inner} tar files: unpack it once" if inner else ""
    return f"no images in {archive.path}: expected class folders with jpg, png, ... files in them{got}"
