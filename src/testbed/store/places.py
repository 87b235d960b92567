"""Where stored files lie: below the results folder, in another folder, or in object storage.

A row keeps a path below the results folder, or a whole URL: `file:///...` for a folder elsewhere, `s3://...` and the
like for object storage. Whoever makes, opens, checks or removes a stored file asks its `Place`. Files that are kept
elsewhere are made below the results folder too, and put there when they are whole.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.data.rows import Rows
from testbed.data.writing import safe_name, sha256_of, write_aside, writing_to
from testbed.entries.checks import shortened
from testbed.errors import StoreError
from testbed.store import fetched, files, objects

MISSING = objects.MISSING
CHANGED = "has changed since it was written"
_HERE = "file://"
_BELOW = "logits/"  # of the results folder: how the paths of files that were made here begin
_MARK = ".testbed"  # an object below a root, which tells that this is the place
_MARK_TEXT = b"Logits of the robustness testbed. The rows of its database name these objects: do not rename them.\n"
_ROOT = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]*(/[^\s]*)?")
_MADE = re.compile(r".+-[0-9a-f]{12}\.npy")  # how files.new_logits_path ends
_CANNOT = {"memory": "is gone when the command ends", "http": "cannot be written", "https": "cannot be written"}


def is_remote(stored: str) -> bool:
    """Whether a path of a row names an object in object storage, and no file of this machine."""
    return "://" in stored and not stored.startswith(_HERE)


def checked_path(stored: object) -> str:
    """What a row says of a file, if it is a path of ours; the database may come from somebody else.

    A path leads below logits/ of the results folder, and nowhere else. An address is one that --logits takes.
    """
    if not isinstance(stored, str) or not stored.endswith((".npy", ".npz")) or "\0" in stored:
        raise StoreError(f"expected a path of a file of logits, got {shortened(stored)}")
    parts = stored.split("://", 1)[-1].split("/")
    if {".", ".."} & set(parts) or "::" in stored or ("://" not in stored and not stored.startswith(_BELOW)):
        where = f"below {_BELOW} of the results folder"
        raise StoreError(f"expected a path {where}, or an address, got {shortened(stored)}")
    if stored.startswith(_HERE) and not stored.startswith(f"{_HERE}/"):
        raise StoreError(f"expected file:/// with a path from the root on, got {shortened(stored)}")
    return stored


@dataclass(frozen=True)
class Place:
    """One stored file, by what a row says: `stored` is a path below the results folder, or a URL."""

    folder: Path  # of the results
    stored: str

    def __post_init__(self) -> None:
        checked_path(self.stored)

    @property
    def remote(self) -> bool:
        return is_remote(self.stored)

    @property
    def path(self) -> Path:
        """The file itself, where it lies on this machine's disks."""
        assert not self.remote, self.stored
        return self.folder / self.stored.removeprefix(_HERE)  # what is absolute stays so

    @property
    def draft(self) -> Path:
        """Where the file is made, with its chunks beside it: below the results folder, wherever it is kept."""
        if "://" not in self.stored:
            return self.folder / self.stored
        return self.folder / _BELOW / "/".join(self.stored.rsplit("/", 2)[1:])

    @property
    def stays_where_made(self) -> bool:
        """Whether the draft is the file: in the results folder, by whatever name."""
        return not self.remote and self.path.resolve() == self.draft.resolve()

    def array(self, name: str) -> Place:
        """The file of another array of the same evaluation: `logits` by this name, what was recorded beside it.

        No safe name holds a ~, so that no other model's logits are taken for this one's recorded arrays.
        """
        if name == "logits":
            return self
        return Place(self.folder, f"{self.stored.removesuffix('.npy')}~{safe_name(name)}.npy")

    def __str__(self) -> str:
        return self.stored if self.remote else str(self.path)

    # ---- reading -----------------------------------------------------------------------------------------

    def rows(self, again: bool = False) -> Rows:
        """The list of images that lies here; `again` whatever was fetched before."""
        if not self.remote:
            return files.load_rows(self.path)
        return fetched.rows(self.folder, self.stored, again)

    def size(self, listing: Listing | None = None) -> int | None:
        """Its bytes; None where nothing lies here."""
        if self.remote:
            return listing.size(self.stored) if listing is not None else _size(self.stored)
        try:
            return self.path.stat().st_size
        except OSError:
            return None

    def problem(self, sha256: str | None, again: bool = False) -> str:
        """What its checksum says, in words; empty where it is whole. Read once per process, or `again`."""
        try:
            if not self.remote and not self.path.is_file():
                return f"{self} {MISSING}"
            whole = sha256 is None or self._sha256(again) == sha256
        except objects.MissingObject:
            return missing(self.stored)
        return "" if whole else f"{self} {CHANGED}"

    def _sha256(self, again: bool) -> str:
        return objects.known_sha256(self.stored, again) if self.remote else files.known_sha256(self.path, again)

    # ---- writing -----------------------------------------------------------------------------------------

    def put(self, sha256: str) -> str:
        """Bring the file from its draft to its place; the ETag of the object, where it has one."""
        if self.remote:
            return objects.put_new(self.draft, self.stored, sha256).etag
        if not self.stays_where_made:
            with writing_to(self.path):
                write_aside(self.path, partial(_copy, self.draft))
        return ""

    def put_rows(self) -> None:
        """The list of images from its draft, once: its name tells what is in it. Another one is written anew."""
        if not self.remote:
            if self.path != self.draft:
                files.save_rows(self.path, files.load_rows(self.draft))
            return
        with suppress(objects.MissingObject):
            if objects.known_sha256(self.stored) == sha256_of(self.draft):
                return
        objects.put_bytes(self.draft.read_bytes(), self.stored, overwrite=True)

    def let_go_of_drafts(self, arrays: Mapping[str, str]) -> None:
        """The drafts of arrays (name -> sha256) that were put in their places become what was fetched of them."""
        for name, sha256 in arrays.items():
            place = self.array(name)
            with suppress(OSError):
                if place.remote:
                    fetched.keep(self.folder, place.draft, sha256)
                elif not place.stays_where_made:
                    place.draft.unlink()

    def remove(self) -> None:
        """The logits, what was recorded beside them, and chunks that were left.

        Raises StoreError for what has not the name of a file of ours: a database of somebody else may name anything.
        """
        if "://" in self.stored and not _MADE.fullmatch(self.stored.rsplit("/", 1)[1]):
            raise StoreError(f"{self} was left: expected a name that the testbed gives, such as MODEL-0123456789ab.npy")
        files.remove_logits(self.folder, str(self.draft.relative_to(self.folder)))
        if self.remote:
            folder, name = self.stored.rsplit("/", 1)
            objects.remove_beginning(folder, name.removesuffix(".npy"))
        elif not self.stays_where_made:
            files.remove_logits(self.path.parent, self.path.name)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)


def publish(logits: Place, digests: Mapping[str, str], samples: Place, tell: Callable[[str], None]) -> dict[str, str]:
    """Bring the arrays (name -> sha256) and the rows of a result to their places; ETags by array. Logits come last."""
    names = sorted(digests, key=lambda name: name == "logits")
    try:
        objects.patiently(samples.put_rows, tell)
        etags = {n: objects.patiently(partial(logits.array(n).put, digests[n]), tell) for n in names}
    except objects.StorageAway as away:  # told in the same words of every pair that it happens to
        root = logits.stored.rsplit("/", 2)[0]
        raise objects.StorageAway(f"{root} cannot be written", f"{away.reason}; what is finished is kept") from away
    return {name: etag for name, etag in etags.items() if etag}


def remove_all(folder: Path, stored: Iterable[str]) -> list[str]:
    """The files of results that are no more; of those that could not be removed, why."""
    problems = []
    for each in stored:
        try:
            Place(folder, each).remove()
        except StoreError as error:
            problems.append(str(error))
    return problems


class Listing:
    """Which objects are there, and how large, for commands that look at thousands: each folder is listed once."""

    def __init__(self) -> None:
        self._sizes: dict[str, Mapping[str, int]] = {}

    def size(self, url: str) -> int | None:
        folder, name = url.rsplit("/", 1)
        if folder not in self._sizes:
            self._sizes[folder] = objects.sizes_below(folder)
        size = self._sizes[folder].get(name)
        return _size(url) if size is None else size  # listings of some stores are late


def _size(url: str) -> int | None:
    with suppress(objects.MissingObject):
        return objects.facts_of(url).size
    missing(url)
    return None


def missing(url: str) -> str:
    """That an object is missing, in words. Raises StorageAway where all of its root is: that is another place."""
    root = url.rsplit("/", 2)[0]
    try:
        objects.facts_of(f"{root}/{_MARK}")
    except objects.MissingObject as error:
        raise objects.StorageAway(
            f"{root} holds no logits of the testbed",
            f"expected {_MARK} there; is it the right object storage (AWS_ENDPOINT_URL)?",
        ) from error
    return f"{url} {MISSING}"


# ---- roots: where new files are kept -----------------------------------------------------------------------


def under(root: str, relative: str) -> str:
    """What a row says of a file that was made at `relative` below the results folder and is kept under `root`."""
    return f"{root}/{relative.removeprefix(_BELOW)}"


def checked_root(given: str, by: str = "--logits") -> str:
    """The URL that was given, if files can be kept under it and it holds no secret, which no message repeats."""
    # A secret key may hold a /, so that an @ anywhere may end one; and key:secret may stand without it.
    if re.search(r"[@?#]|::|//[^/]*:(?![0-9]+(/|$))", given):
        raise StoreError(
            f"{by}: expected a URL without user, password or parameters, such as s3://bucket/prefix: object storage "
            "takes its credentials from the environment or its own files"
        )
    if not _ROOT.fullmatch(given) or not given.split("://", 1)[1].strip("/"):
        raise StoreError(f"{by}: expected a URL such as s3://bucket/prefix or file:///folder, got '{given}'")
    scheme, rest = given.split("://", 1)
    if scheme in _CANNOT:
        raise StoreError(f"{by}: expected a URL such as s3://bucket/prefix, got {scheme}:, which {_CANNOT[scheme]}")
    if scheme == "file" and not rest.startswith("/"):
        raise StoreError(f"{by}: expected file:/// with a path from the root on, got '{given}'")
    if any(part in ("", ".", "..") for part in rest.strip("/").split("/")):
        raise StoreError(f"{by}: expected a URL without //, . and .. in its path, got '{given}'")
    return given.rstrip("/")


def folder_of(root: str | None) -> Path | None:
    """The folder that a root names; None for object storage and for none."""
    return Path(root.removeprefix(_HERE)) if root is not None and root.startswith(_HERE) else None


def make_ready(root: str) -> None:
    """See that files can be written under a root, before hours of work. A small object tells that this is the place."""
    folder = folder_of(root)
    if folder is None:
        fetched.budget()  # refused now where it is no number
        objects.put_bytes(_MARK_TEXT, f"{root}/{_MARK}")
        return
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, "Permission denied")
