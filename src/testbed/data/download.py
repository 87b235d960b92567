"""Data sets with a public address: which there are, and how each comes under the name it is looked for.

The addresses are data, in metadata/downloads.json of a registry folder (docs/data.md).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.data.fetch import PAUSE_S, Remote, fetch, gigabytes
from testbed.data.locate import MissingData, data_roots, is_there
from testbed.data.samples import Dataset
from testbed.data.unpack import DamagedArchive, find_inside, is_archive, unpack
from testbed.errors import DataError

CATALOGUE = "metadata/downloads.json"
WORK_FOLDER = ".downloads"  # in the data root, for what is not yet whole


@dataclass(frozen=True)
class Download:
    """One or more files, and which part of what they hold goes where under the data root."""

    name: str
    files: tuple[Remote, ...]
    places: Mapping[str, str]  # path in what is unpacked ("" for all of it) -> path under the data root
    licence: str
    leave_out: tuple[str, ...] = ()  # folders of the archive that are no part of the set

    def describe(self) -> str:
        size = sum(file.size or 0 for file in self.files)
        amount = f"{gigabytes(size)} " if size else ""
        return f"{self.name}: {amount}from {self.files[0].host}, licence: {self.licence}"


def _names(dataset: Dataset) -> tuple[str, ...]:
    """Under which names a data set is looked for in a data root; none where it is not looked for there."""
    name = getattr(dataset, "name", None)
    return (name, *getattr(dataset, "also", ())) if name else ()


def read_downloads(registry_folders: Sequence[Path]) -> dict[str, Download]:
    """Every download of the registry folders, by name."""
    found: dict[str, Download] = {}
    for folder in registry_folders:
        for name, entry in read_json(folder / CATALOGUE).items():
            try:
                found[name] = Download(
                    name,
                    tuple(Remote(**file) for file in entry["files"]),
                    dict(entry["places"]),
                    entry["licence"],
                    tuple(entry.get("leave_out", ())),
                )
            except (KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{folder / CATALOGUE}: '{name}' needs files, places and licence: {error}") from error
    return found


def read_json(path: Path) -> dict[str, Any]:
    """A catalogue; an absent one is empty."""
    if not path.is_file():
        return {}
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(entries, dict):
        raise DataError(f"{path}: expected names with what belongs to them, got a {type(entries).__name__}")
    return entries


def download_for(dataset: Dataset, downloads: Mapping[str, Download]) -> Download | None:
    """What brings the data set to a place it is looked for, or to a folder above one; its own name goes first."""
    return next((download for download, _ in _bringing(dataset, downloads)), None)


def _bringing(dataset: Dataset, downloads: Mapping[str, Download]) -> Iterator[tuple[Download, str]]:
    """Each download that serves a data set, with its place at or above the data set's."""
    for name in _names(dataset):
        for download in downloads.values():
            for place in download.places.values():
                if name == place or name.startswith(f"{place}/"):
                    yield download, place


def find_place(dataset: Dataset, roots: Sequence[Path]) -> Path | None:
    """Where the data set is, if it is there."""
    return next((root / name for root in roots for name in _names(dataset) if is_there(root / name)), None)


def find_places(
    download: Download, downloads: Mapping[str, Download], datasets: Iterable[Dataset], roots: Sequence[Path]
) -> dict[str, Path]:
    """Those places of a download that need not be fetched, and where they are in any of the data roots.

    A place is there, or every data set that it would bring is, under whichever of its names.
    """
    served: dict[str, list[Path | None]] = {place: [] for place in download.places.values()}
    for dataset in datasets:
        first, place = next(_bringing(dataset, downloads), (None, ""))
        if first is download:
            served[place].append(find_place(dataset, roots))
    found = {}
    for place, elsewhere in served.items():
        whole = [root / place for root in roots if is_there(root / place)]
        places = [path for path in elsewhere if path is not None]
        if whole or (places and len(places) == len(elsewhere)):
            found[place] = (whole or places)[0]
    return found


def with_hint(error: DataError, dataset: Dataset, registry_folders: Sequence[Path]) -> DataError:
    """The error, with the command that fetches the data set where there is one."""
    if not isinstance(error, MissingData):
        return error
    download = download_for(dataset, read_downloads(registry_folders))
    if download is None:
        return error
    return MissingData(f"{error} `python db.py --download {download.name}` fetches it.")


# ---- fetching --------------------------------------------------------------------------------------------


def install(download: Download, root: Path | None = None, pause_s: float = PAUSE_S) -> list[Path]:
    """Fetch, check, unpack aside and rename: a place exists only once it is whole. Returns the new places."""
    root = root or data_roots()[0]
    missing = {inside: root / place for inside, place in download.places.items() if not is_there(root / place)}
    if not missing:
        return []
    work = root / WORK_FOLDER / download.name
    with _alone(work), _disk_errors(work):
        files = [fetch(file, work / file.file_name, pause_s) for file in download.files]
        unpacked = work / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        for path in files:
            _unpack(path, unpacked, download)
        sources = {target: _source(unpacked, inside, download) for inside, target in missing.items()}
        for target, source in sources.items():
            _remove_empty(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, target)
        shutil.rmtree(work, ignore_errors=True)
    return list(sources)


def _remove_empty(folder: Path) -> None:
    """A folder that holds nothing but folders; it goes one by one, so that a file could not go with it."""
    if folder.is_dir():
        for inner in sorted(folder.rglob("*"), reverse=True):
            inner.rmdir()
        folder.rmdir()


def _unpack(path: Path, folder: Path, download: Download) -> None:
    if not is_archive(path.name):
        os.replace(path, folder / path.name)
        return
    try:
        unpack(path, folder, download.leave_out)
    except DamagedArchive as error:
        path.unlink()  # else the next try would find the same file
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(f"{error}. It was removed: the same command fetches it again.") from error


def _source(unpacked: Path, inside: str, download: Download) -> Path:
    found = find_inside(unpacked, inside)
    if found is None:
        there = ", ".join(sorted(p.name for p in unpacked.iterdir())[:5]) or "nothing"
        raise DataError(f"{download.name}: expected '{inside}' in what was fetched, found {there}; see {unpacked}")
    return found


@contextmanager
def _disk_errors(work: Path) -> Iterator[None]:
    """What the disk refuses while unpacking, in one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            shutil.rmtree(work / "unpacked", ignore_errors=True)
            raise DataError(
                f"no room left to unpack into {work}: make room; what was fetched is kept, and the same command goes on"
            ) from error
        raise DataError(f"cannot write below {work}: {error}") from error


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Two processes that fetch the same thing would write into one another's file."""
    try:
        work.mkdir(parents=True, exist_ok=True)
        lock = (work / "lock").open("w")
    except OSError as error:
        raise DataError(f"cannot write below {work.parent.parent}: {error}") from error
    with lock:
        if not _locked(lock.fileno()):
            raise DataError(f"{work.name} is being fetched by another process (it holds {work / 'lock'})")
        try:
            yield
        finally:
            if [p.name for p in work.glob("*")] == ["lock"]:  # nothing came that could be gone on with
                shutil.rmtree(work, ignore_errors=True)
            with suppress(OSError):  # something else may be under way
                work.parent.rmdir()


def _locked(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
