"""The interface of a dataset, and the Samples that it opens into: ids, targets and a function that loads an image."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

UNKNOWN = -1  # the target of an image without a label


@dataclass(frozen=True)
class Samples:
    """The images of one dataset, in a fixed order."""

    ids: Sequence[str]
    targets: np.ndarray  # int64; UNKNOWN where there is no label
    load: Callable[[int], Any]  # index -> PIL image in RGB
    fingerprint: str  # of ids, targets and sizes: equal data, equal fingerprint, on every machine
    label_space: str  # "imagenet": targets are the 1000 class indices; "own": the dataset's own numbering
    num_classes: int | None = None  # how many columns the labels need; None where only the metric knows
    folders_are_classes: bool = False  # the first folder of an id gave its label
    cache_salt: str = ""  # path and times of the files: tells two copies of the data on this machine apart
    form: str = ""  # where a registered dataset was found, and as what: "folder data/val", "archive data/val.tar"
    left_out: str = ""  # pictures that lie among the others and are not read, in words
    older_fingerprints: tuple[str, ...] = ()  # what earlier programs called the same data
    newest_ns: int = 0  # latest modification time of files whose sizes stand in for their contents; 0 without such
    revision: str = ""  # of data from the hub: OWNER/NAME@COMMIT
    read: Callable[[int], bytes] | None = None  # index -> the stored bytes of an image, for testbed.data.content
    decode: Callable[[int, bytes], Any] | None = None  # index and these bytes -> what `load` gives

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def class_folders(self) -> dict[str, int]:
        """Class folder -> label, sorted by folder name; empty where labels do not come from folders."""
        if not self.folders_are_classes:
            return {}
        pairs = zip(self.ids, self.targets.tolist(), strict=True)
        return dict(sorted({image.partition("/")[0]: label for image, label in pairs}.items()))


class Dataset(ABC):
    """A declaration of where images come from. Only opening it touches the disk."""

    source: str = ""  # how to get the data, for the message when it is missing

    @abstractmethod
    def open(self, data_roots: Sequence[Path]) -> Samples:
        """List the images. Raises DataError where they cannot be found."""

    @abstractmethod
    def describe(self) -> str:
        """One short phrase for lists and provenance."""

    def stamp(self, data_roots: Sequence[Path]) -> str | None:
        """Path, size and times of the files, where opening reads all of them: the same stamp, the same fingerprint.

        None where opening only lists files, so that a stamp would save nothing, or where there are no files.
        """
        return None


def fingerprint_of(*parts: bytes | memoryview | str) -> str:
    """A digest of the parts as 32 hexadecimal digits, the same on every machine."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        # Names of files need not be UTF-8: the bytes they have on disk are taken.
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        # Each part after its length: otherwise ("ab", "c") and ("a", "bc") would have one digest.
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
