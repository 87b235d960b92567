"""Where stored files lie: below the results folder, in another folder, or in object storage.

A row keeps a path below the results folder, or a whole URL: `file:///...` for a folder elsewhere, `s3://...` and the
like for object storage. Whoever opens, checks or removes a stored file asks its `Place`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.data.writing import safe_name

_HERE = "file://"
_BELOW = "logits/"  # of the results folder: how the paths of files that were made here begin


def is_remote(stored: str) -> bool:
    """Whether a path of a row names an object in object storage, and no file of this machine."""
    return "://" in stored and not stored.startswith(_HERE)


@dataclass(frozen=True)
class Place:
    """One stored file, by what a row says: `stored` is a path below the results folder, or a URL."""

    folder: Path  # of the results
    stored: str

    @property
    def remote(self) -> bool:
        return is_remote(self.stored)

    @property
    def path(self) -> Path:
        """The file itself, where it lies on this machine's disks."""
        assert not self.remote, self.stored
        return self.folder / self.stored.removeprefix(_HERE)  # what is absolute stays so

    def array(self, name: str) -> Place:
        """The file of another array of the same evaluation: `logits` by this name, what was recorded beside it.

        No safe name holds a ~, so that no other model's logits are taken for this one's recorded arrays.
        """
        if name == "logits":
            return self
        return Place(self.folder, f"{self.stored.removesuffix('.npy')}~{safe_name(name)}.npy")

    def __str__(self) -> str:
        return self.stored if self.remote else str(self.path)


def under(root: str, relative: str) -> str:
    """What a row says of a file that was made at `relative` below the results folder and is kept under `root`."""
    return f"{root}/{relative.removeprefix(_BELOW)}"
