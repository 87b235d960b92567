"""Files of stored results, brought into another results folder: linked within a file system, else copied; checked.

A file keeps its path below the folder. One that is there already with the same contents stays; where another has its
name, which older programs gave twice, the contents add to the name. A path that is a whole address stays where it is.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.data.regular import regular
from testbed.data.writing import write_aside, writing_to
from testbed.errors import DamagedError
from testbed.store import files
from testbed.store.places import Place

_BLOCK = 1 << 20


@dataclass
class Carried:
    """How files came into a folder."""

    linked: int = 0
    copied: int = 0
    there: int = 0  # before
    stayed: int = 0  # at an address, or in the folder that both databases use
    n_bytes: int = 0  # of what was linked or copied


class Carrier:
    """Brings files from one results folder into another."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source, self._target = source, target
        self._same = source.exists() and target.exists() and os.path.samefile(source, target)
        self.carried = Carried()
        self._samples: dict[str, str] = {}  # path -> path in the target: all models of a setting share one

    def stays(self, stored: str) -> bool:
        return self._same or "://" in stored

    def evaluation(self, row: Mapping[Any, Any]) -> dict[str, str | None]:
        """Bring the logits of a completed evaluation, what was recorded beside them, and its list of samples.

        Returns the paths for its row. Raises DamagedError where a file is missing or is not the one that was written.
        """
        logits, samples = row["logits_path"], row["samples_path"]
        if logits:
            digests = {"logits": row["logits_sha256"], **((row["provenance"] or {}).get("arrays_sha256") or {})}
            logits = self._arrays(logits, digests)
        return {"logits_path": logits, "samples_path": self.samples(samples) if samples else samples}

    def samples(self, stored: str) -> str:
        """Bring a list of samples."""
        if stored not in self._samples:
            self._samples[stored] = self.file(stored)
        return self._samples[stored]

    def _arrays(self, stored: str, digests: Mapping[str, str | None]) -> str:
        """The logits first: where they need another name, what was recorded beside them takes that one too."""
        if self.stays(stored):
            self.carried.stayed += len(digests)
            return stored
        name = self.file(stored, digests["logits"])
        for array in digests.keys() - {"logits"}:
            here, there = Place(self._source, stored).array(array), Place(self._target, name).array(array)
            self._one(here.path, there.path, digests[array])
        return name

    def file(self, stored: str, sha256: str | None = None) -> str:
        """Bring one file; the path that it has in the target."""
        if self.stays(stored):
            self.carried.stayed += 1
            return stored
        source, target = Place(self._source, stored).path, Place(self._target, stored).path
        if target.is_file() and source.is_file() and not _alike(source, target):
            digest = files.known_sha256(source)
            stored = str(Path(stored).with_stem(f"{Path(stored).stem}-{digest[:12]}"))
            target = Place(self._target, stored).path
        self._one(source, target, sha256)
        return stored

    def _one(self, source: Path, target: Path, sha256: str | None) -> None:
        if not source.is_file():
            raise DamagedError(f"{source} is missing")
        if target.is_file() and _alike(source, target):
            _refuse_changed(source, files.known_sha256(source), sha256)
            self.carried.there += 1
            return

        def write(aside: Path) -> None:
            if _linked(source, aside):
                _refuse_changed(source, files.known_sha256(source), sha256)
                self.carried.linked += 1
            else:
                _refuse_changed(source, _copied(source, aside), sha256)
                self.carried.copied += 1

        with writing_to(target):
            write_aside(target, write)
        self.carried.n_bytes += target.stat().st_size

    def parts(self, stored: str, starts: list[int]) -> None:
        """Bring the chunks of an unfinished evaluation. One that is lost is made again by the next run."""
        if self._same:
            return
        # Of what is kept at an address, the chunks lie in the folder all the same.
        here, there = (files.parts_folder(Place(folder, stored).draft) for folder in (self._source, self._target))
        with writing_to(there):
            files.make_parts_folder(there)
            for start in starts:
                if files.part_path(here, start).is_file():
                    self._one(files.part_path(here, start), files.part_path(there, start), None)


def _alike(one: Path, other: Path) -> bool:
    if os.path.samefile(one, other):
        return True
    return one.stat().st_size == other.stat().st_size and files.known_sha256(one) == files.known_sha256(other)


def _linked(source: Path, target: Path) -> bool:
    """Make a second name for the file; no across file systems, on those without links, and of files of others."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _copied(source: Path, target: Path) -> str:
    """Copy the file; the checksum of what was read."""
    digest = hashlib.sha256()
    with regular(source).open("rb") as read, target.open("wb") as written:
        while block := read.read(_BLOCK):
            digest.update(block)
            written.write(block)
    return digest.hexdigest()


def _refuse_changed(path: Path, sha256: str, expected: str | None) -> None:
    if expected is not None and sha256 != expected:
        raise DamagedError(f"{path} has changed since it was written")
