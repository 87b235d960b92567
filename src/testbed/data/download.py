"""Datasets with a public address: a catalogue of them, and how each is fetched to the path it is looked for.

The catalogue is metadata/downloads.json of a registry folder (docs/data.md).
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from testbed.data.fetch import PAUSE_S, Remote, fetch, gigabytes
from testbed.data.locate import MissingData, data_roots, is_there
from testbed.data.regular import regular
from testbed.data.samples import Dataset
from testbed.data.unpack import DamagedArchive, find_inside, is_archive, unpack
from testbed.errors import DataError

CATALOGUE = "metadata/downloads.json"
WORK_FOLDER = ".downloads"  # in the data root, on the same disk: what is whole is renamed, not copied


@dataclass(frozen=True)
class Download:
    """One or more files to fetch, and the paths under the data root where their contents go."""

    name: str
    files: tuple[Remote, ...]
    places: Mapping[str, str]  # path in the unpacked files ("" for all of them) -> path under the data root
    licence: str
    leave_out: tuple[str, ...] = ()  # folders of the archive that are not part of the dataset
    unpack: bool = True  # whether archives are unpacked; shards are read as they are
    then: str = ""  # the command to give next, with {place} for what was fetched

    def describe(self) -> str:
        size = sum(file.size or 0 for file in self.files)
        amount = f"{gigabytes(size)} " if size else ""
        return f"{self.name}: {amount}from {self.files[0].host}, licence: {self.licence}"


def _names(dataset: Dataset) -> tuple[str, ...]:
    """The paths under a data root where a dataset is looked for; empty if it does not live in a data root."""
    name = getattr(dataset, "name", None)
    return (name, *getattr(dataset, "also", ())) if name else ()


def read_downloads(registry_folders: Sequence[Path]) -> dict[str, Download]:
    """Every download of the registry folders, by name; a later folder overrides an earlier one."""
    downloads: dict[str, Download] = {}
    for folder in registry_folders:
        for name, entry in read_json(folder / CATALOGUE).items():
            try:
                downloads[name] = Download(
                    name,
                    tuple(Remote(**file) for file in entry["files"]),
                    dict(entry["places"]),
                    entry["licence"],
                    tuple(entry.get("leave_out", ())),
                    bool(entry.get("unpack", True)),
                    entry.get("then", ""),
                )
            except (KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{folder / CATALOGUE}: '{name}' needs files, places and licence: {error}") from error
    return downloads


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is no such file."""
    if not path.is_file():
        return {}
    try:
        entries = json.loads(regular(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(entries, dict):
        raise DataError(f"{path}: expected names with what belongs to them, got a {type(entries).__name__}")
    return entries


def download_for(dataset: Dataset, downloads: Mapping[str, Download]) -> Download | None:
    """The download that provides a dataset, or None.

    It does if it fetches a path where the dataset is looked for, or a folder above one. The dataset's own name is
    tried before its other names.
    """
    return next((download for download, _ in _bringing(dataset, downloads)), None)


def _bringing(dataset: Dataset, downloads: Mapping[str, Download]) -> Iterator[tuple[Download, str]]:
    """Each download that provides a dataset, with its path that is the dataset's or a folder above."""
    for name in _names(dataset):
        for download in downloads.values():
            for place in download.places.values():
                if name == place or name.startswith(f"{place}/"):
                    yield download, place


def find_place(dataset: Dataset, roots: Sequence[Path]) -> Path | None:
    """The path of the dataset in the first data root that has it, or None."""
    folder = next((root / name for root in roots for name in _names(dataset) if is_there(root / name)), None)
    packed = getattr(dataset, "packed", None)
    return packed(roots) if folder is None and packed is not None else folder


def roots_below(folder: Path, dataset: Dataset) -> list[Path]:
    """The folders, at any depth, that would do as data root: they hold a path where the dataset is looked for."""
    roots: dict[Path, None] = {}
    for name in _names(dataset):
        for place in sorted(folder.rglob(PurePath(name).name)):
            root = place.parents[len(PurePath(name).parts) - 1]
            if place == root / name and is_there(place):
                roots[root] = None
    return list(roots)


def find_places(
    download: Download, downloads: Mapping[str, Download], datasets: Iterable[Dataset], roots: Sequence[Path]
) -> dict[str, Path]:
    """The places of a download that need not be fetched, each with the path where its data already lies.

    A place need not be fetched if it exists in a data root, or if every dataset that it would provide exists, under
    any of the dataset's names.
    """
    served: dict[str, list[Path | None]] = {place: [] for place in download.places.values()}
    for dataset in datasets:
        first, place = next(_bringing(dataset, downloads), (None, ""))
        if first is download:
            served[place].append(find_place(dataset, roots))
    present = {}
    for place, dataset_paths in served.items():
        whole = [root / place for root in roots if is_there(root / place)]
        existing = [path for path in dataset_paths if path is not None]
        if whole or (existing and len(existing) == len(dataset_paths)):
            present[place] = (whole or existing)[0]
    return present


def with_hint(error: DataError, dataset: Dataset, registry_folders: Sequence[Path]) -> DataError:
    """The error; if the dataset is missing and can be downloaded, with the command that does it."""
    if not isinstance(error, MissingData):
        return error
    download = download_for(dataset, read_downloads(registry_folders))
    if download is None:
        return error
    return MissingData(f"{error} `python db.py --download {download.name}` fetches it.")


# ---- fetching --------------------------------------------------------------------------------------------


def install(download: Download, root: Path | None = None, pause_s: float = PAUSE_S) -> list[Path]:
    """Fetch a dataset into a data root (the first one unless given), and return the new paths.

    Files are fetched, checked and unpacked in WORK_FOLDER and then renamed, so a path exists only once it is whole.
    Paths that exist already are left as they are.
    """
    root = root or data_roots()[0]
    missing = {inside: root / place for inside, place in download.places.items() if not is_there(root / place)}
    if not missing:
        return []
    work = root / WORK_FOLDER / download.name
    with _alone(work), _disk_errors(work):
        files = [fetch(file, work / file.file_name, pause_s) for file in download.files]
        unpacked = work / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)  # an interrupted run may have left half of an archive
        unpacked.mkdir()
        for path in files:
            _unpack(path, unpacked, download)
        # All are looked up before the first rename: if one is not in the archive, none is installed.
        sources = {target: _source(unpacked, inside, download) for inside, target in missing.items()}
        for target, source in sources.items():
            _remove_empty(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(source, target)
        shutil.rmtree(work, ignore_errors=True)
    return list(sources)


def _remove_empty(folder: Path) -> None:
    """Remove a folder that holds only empty folders. rmdir one by one, not rmtree: it cannot delete a file."""
    if folder.is_dir():
        for inner in sorted(folder.rglob("*"), reverse=True):
            inner.rmdir()
        folder.rmdir()


def _unpack(path: Path, folder: Path, download: Download) -> None:
    """Unpack an archive into the folder, or move any other file there. A damaged archive is deleted."""
    if not download.unpack or not is_archive(path.name):
        os.replace(path, folder / path.name)
        return
    try:
        unpack(path, folder, download.leave_out)
    except DamagedArchive as error:
        path.unlink()  # otherwise the next try would take the same file again
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(f"{error}. It was removed: the same command fetches it again.") from error


def _source(unpacked: Path, inside: str, download: Download) -> Path:
    source = find_inside(unpacked, inside)
    if source is None:
        contents = ", ".join(sorted(p.name for p in unpacked.iterdir())[:5]) or "nothing"
        raise DataError(f"{download.name}: expected '{inside}' in what was fetched, found {contents}; see {unpacked}")
    return source


@contextmanager
def _disk_errors(work: Path) -> Iterator[None]:
    """Turn errors of the disk into a DataError; on a full disk, free what was unpacked and keep what was fetched."""
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
    """Hold the lock of a work folder: two processes that fetch the same download would write into the same files."""
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
            if [p.name for p in work.glob("*")] == ["lock"]:  # nothing was fetched that a next run could continue
                shutil.rmtree(work, ignore_errors=True)
            with suppress(OSError):  # not empty: another download is under way
                work.parent.rmdir()


def _locked(descriptor: int) -> bool:
    """Take the lock; False where another process holds it. Where there are no locks, it counts as taken."""
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
