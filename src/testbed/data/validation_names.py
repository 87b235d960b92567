"""ImageNet pictures whose names tell the class: a wnid at the end, or a number of the validation set.

The classes of the 50,000 validation pictures come with the package; imagenet_val_labels.md says where they are from.
"""

from __future__ import annotations

import lzma
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from testbed.data.labels import imagenet_wnids
from testbed.data.regular import regular
from testbed.errors import DataError, in_words

_VALIDATION = re.compile(r"ILSVRC2012_val_(?P<number>\d{8})(_(?P<wnid>n\d{8}))?(?P<ending>\.\w+)")
_WITH_WNID = re.compile(r"(?P<stem>.+)_(?P<wnid>n\d{8})(?P<ending>\.\w+)")
_JPEG = (".jpg", ".jpeg")
_DEVKIT = "ILSVRC2012_devkit_t12"
_TRUTH = "data/ILSVRC2012_validation_ground_truth.txt"


@cache
def validation_labels() -> np.ndarray:
    """The class of each validation picture, in the order of the numbers in their names."""
    packed = files("testbed").joinpath("data/imagenet_val_labels.u16le.xz").read_bytes()
    return np.frombuffer(lzma.decompress(packed), dtype="<u2").astype(np.int64)


def tells_class(name: str) -> bool:
    """Whether the name of a picture tells its class."""
    return bool(_VALIDATION.fullmatch(name) or _WITH_WNID.fullmatch(name))


def by_name(names: Sequence[str], where: Path) -> tuple[list[str], np.ndarray] | None:
    """(ids, labels) of pictures whose names all tell their class; None where one does not.

    An id is the path that the picture has in class folders, n01440764/ILSVRC2012_val_00000293.JPEG: the same data has
    the same ids, however it is kept. `where`, the folder or archive, is for messages; the devkit may lie beside it.
    """
    matches = [_VALIDATION.fullmatch(name) or _WITH_WNID.fullmatch(name) for name in names]
    if not names or None in matches:
        return None
    index = {wnid: label for label, wnid in enumerate(imagenet_wnids())}
    published = _checked_truth(where)
    labels, ids = [], []
    for match in matches:
        assert match is not None
        parts = match.groupdict()
        label = _numbered(parts.get("number"), published, match.string, where)
        named = parts["wnid"]
        if named is not None and (named not in index or label not in (None, index[named])):
            said = f"its number is of {imagenet_wnids()[label]}" if label is not None else "no class of ImageNet"
            raise DataError(f"{where}: {match.string} names {named}, but {said}")
        label = index[named] if named is not None else label
        assert label is not None
        labels.append(label)
        ids.append(f"{imagenet_wnids()[label]}/{_published_name(parts)}")
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise DataError(f"{where}: expected each picture once, got {twice.partition('/')[2]} under two names")
    return ids, np.array(labels, dtype=np.int64)


def _numbered(number: str | None, published: np.ndarray, name: str, where: Path) -> int | None:
    if number is None:
        return None
    if not 1 <= int(number) <= len(published):
        raise DataError(f"{where}: expected validation pictures numbered 1 to {len(published)}, got {name}")
    return int(published[int(number) - 1])


def _published_name(parts: dict[str, str]) -> str:
    stem = f"ILSVRC2012_val_{parts['number']}" if "number" in parts else parts["stem"]
    return stem + (".JPEG" if parts["ending"].lower() in _JPEG else parts["ending"])


# ---- the devkit ------------------------------------------------------------------------------------------


def _checked_truth(where: Path) -> np.ndarray:
    """The published labels; an error where a devkit lies beside the pictures and says otherwise."""
    published = validation_labels()
    for folder in (where / _DEVKIT, where.parent / _DEVKIT):
        if (folder / _TRUTH).is_file():
            own = _devkit_labels(folder)
            if not np.array_equal(own, published):
                raise DataError(f"{folder / _TRUTH}: expected the labels of the 50,000 validation pictures, got others")
    return published


def _devkit_labels(folder: Path) -> np.ndarray:
    """The labels of the devkit, whose class numbers are not those of the outputs: they go through the wnids."""
    from scipy.io import loadmat

    try:
        numbers = [int(line) for line in regular(folder / _TRUTH).read_text(encoding="ascii").split()]
        synsets = loadmat(str(regular(folder / "data" / "meta.mat")), squeeze_me=True)["synsets"]
        # Entries with children are groups of classes.
        wnid = {int(s["ILSVRC2012_ID"]): str(s["WNID"]) for s in synsets if int(s["num_children"]) == 0}
        return np.array([imagenet_wnids().index(wnid[number]) for number in numbers], dtype=np.int64)
    except Exception as error:  # loadmat raises many kinds
        raise DataError(f"the devkit {folder} cannot be read: {in_words(error)}") from error
