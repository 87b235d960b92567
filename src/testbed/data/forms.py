"""The forms in which a registered dataset may lie under a data root: class folders, parquet, shards or an archive.

All of them give the samples of the class folders, so that one setting has one meaning wherever it is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from testbed.data.archives import open_archive
from testbed.data.class_lists import NUMBERED_RULES, subset
from testbed.data.labels import imagenet_wnids
from testbed.data.packed_folders import is_shard
from testbed.data.packed_folders import samples_in as samples_in_archive
from testbed.data.parquet import files_at, refuse_missing_shards, samples_of_files
from testbed.data.samples import Samples, fingerprint_of
from testbed.data.shard_files import shard_files
from testbed.data.shards import samples_of_shards
from testbed.data.validation_names import by_name
from testbed.errors import DataError

ENDINGS = (".tar", ".zip")
# Behind the name of a set: val-00000-of-00014.parquet, val.parquet, validation-0000.parquet.
_PARQUET = r"([-_.]?\d{1,6}(-of-\d{5})?(-[0-9a-f]{16})?)?\.parquet"
_VALIDATION = "val"


@dataclass(frozen=True)
class Form:
    """Files that hold a dataset."""

    kind: str  # "parquet", "shards" or "archive"
    files: tuple[Path, ...]

    def __str__(self) -> str:
        first = self.files[0]
        return (
            f"{self.kind} {first}" if len(self.files) == 1 else f"{self.kind} {first.parent} ({len(self.files)} files)"
        )


def packed_at(root: Path, name: str) -> Form | None:
    """The files beside the place of a folder that hold what would be in it, else None."""
    place = root / name
    word = re.escape(place.name) + ("(idation)?" if place.name == _VALIDATION else "")
    if place.parent.is_dir():
        pattern = re.compile(word + _PARQUET)
        tables = sorted(p for p in place.parent.glob("*.parquet") if pattern.fullmatch(p.name))
        if tables:
            refuse_missing_shards(tables)
            return Form("parquet", tuple(tables))
    packed = next((file for ending in ENDINGS if (file := place.with_name(place.name + ending)).is_file()), None)
    return Form("archive", (packed,)) if packed is not None else None


def packed_in(folder: Path) -> Form | None:
    """The parquet files or shards in a folder without pictures, else None."""
    if any(folder.rglob("*.parquet")):
        return Form("parquet", tuple(files_at(folder)))
    if any(folder.glob("*.tar")) or any(folder.glob("*/nshards.txt")):
        return Form("shards", tuple(shard_files(str(folder))))
    return None


def find_packed(names: Sequence[str], roots: Sequence[Path]) -> Form | None:
    """The packed form of a dataset in the first data root that has one, under any of its names."""
    return next((form for root in roots for name in names if (form := packed_at(root, name)) is not None), None)


# ---- opening ---------------------------------------------------------------------------------------------


def samples_of(
    form: Form, name: str, rule: str, classes: Mapping[str, int] | None = None, order_matters: bool = False
) -> Samples:
    """The Samples of a dataset in a packed form. The other arguments are fields of StandardDataset."""
    if form.kind == "archive":
        archive = open_archive(form.files[0])
        if not is_shard(archive):
            return replace(samples_in_archive(archive, rule, classes), form=str(form))
    if classes is not None:
        raise DataError(f"{form}: expected class folders, or an archive of them, since only some of them are taken")
    samples = _as_in_folders(_labelled(form, name, rule), form, order_matters)
    return replace(samples, form=str(form))


def _labelled(form: Form, name: str, rule: str) -> Samples:
    """The samples with labels as the dataset's rule means them, which is made for names of folders."""

    def opened(rule: str) -> Samples:
        if form.kind == "parquet":
            return samples_of_files(form.files, None, None, rule)
        return samples_of_shards(form.files, rule)

    if rule != "imagenet":
        return opened("auto" if rule == "if-any" else rule)
    samples = opened("auto")  # names of ImageNet's classes are as good as wnids
    if samples.label_space == "imagenet":
        return samples
    if name not in NUMBERED_RULES:
        return opened("imagenet")
    # A set of 200 classes: its own numbers, or those of all 1000.
    labels = set(samples.targets.tolist())
    own, among_all = labels <= set(range(len(subset(name)))), labels <= set(subset(name))
    if own and among_all:
        raise DataError(f"{form}: its few labels may be numbers among the set's 200 classes or among all 1000")
    return opened(name if own else "imagenet")


def _as_in_folders(samples: Samples, form: Form, order_matters: bool) -> Samples:
    """The samples with the ids and the order that they have in class folders, where their names tell both.

    Lists of rows count the pictures in that order, and noise is seeded by ids.
    """
    names = [image.rpartition("/")[2] for image in samples.ids]
    known = by_name(names, form.files[0]) if samples.label_space == "imagenet" else None
    if known is not None and np.array_equal(known[1], samples.targets):
        ids = known[0]
    elif samples.label_space == "imagenet" and _in_folders(samples):
        ids = list(samples.ids)
    elif order_matters:
        raise DataError(
            f"{form}: expected names of pictures such as ILSVRC2012_val_00000293.JPEG, got {samples.ids[0]}: settings "
            "of this set count pictures by their order in class folders. wds: and parquet: take these files as they are"
        )
    else:
        return samples
    order = sorted(range(len(ids)), key=ids.__getitem__)
    if ids == list(samples.ids) and order == list(range(len(ids))):
        return samples
    load, read, decode = samples.load, samples.read, samples.decode
    ids = [ids[place] for place in order]
    return replace(
        samples,
        ids=ids,
        targets=samples.targets[order],
        load=lambda index: load(order[index]),
        read=None if read is None else lambda index: read(order[index]),
        decode=None if decode is None else lambda index, data: decode(order[index], data),
        fingerprint=fingerprint_of(samples.fingerprint, "\n".join(ids)),
        folders_are_classes=True,
    )


def _in_folders(samples: Samples) -> bool:
    wnids = imagenet_wnids()
    pairs = zip(samples.ids, samples.targets.tolist(), strict=True)
    return all(label >= 0 and image.startswith(f"{wnids[label]}/") for image, label in pairs)
