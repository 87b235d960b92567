"""Sweeping up what killed runs leave in the results folder: temporary files, and chunks that no row refers to.

Several databases may lie in one folder, and several machines may write to it. A file goes only where its owner is known
to be gone: a process of this machine that has ended, or an evaluation that is complete. Where the owner cannot be
asked, it goes after a long silence.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import sqlalchemy as sa

from testbed.data import writing
from testbed.store import schema
from testbed.store.database import Store
from testbed.store.leases import process_lives
from testbed.store.places import folder_of

_KNOWS = "SELECT 1 FROM evaluations WHERE logits_path = ? OR logits_path LIKE '%://' || ?"
SILENT_S = 24 * 3600.0  # after which what nobody is known to own is taken for left behind


def sweep(store: Store) -> list[Path]:
    """Remove what was left behind below logits/ and beside the database; what was removed.

    Called by a run after it has begun.
    """
    root = store.folder / "logits"
    removed = []
    beside = [path for path in store.folder.glob(".*") if writing.aside_written_by(path.name) and path.is_file()]
    kept = [root, *filter(None, [folder_of(store.logits_root)])]
    for path in (*beside, *(path for folder in kept for path in _temporary_files(folder))):
        if not _may_be_written(store, path):
            with suppress(OSError):
                path.unlink()
                removed.append(path)
    for folder in root.glob("*/*.parts"):
        if folder.is_dir() and not _may_be_resumed(store, folder):
            for draft in _drafts(store, folder):  # before the chunks, by which they are found
                draft.unlink(missing_ok=True)
                removed.append(draft)
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _drafts(store: Store, folder: Path) -> list[Path]:
    """The joined files beside chunks, where the evaluation is kept elsewhere and has been put there."""
    relative = folder.with_suffix(".npy").relative_to(store.folder).as_posix()
    e = schema.evaluations.c
    complete = sa.select(e.logits_path).where(e.logits_path.endswith(_elsewhere(relative), autoescape=True), e.complete)
    with store.reading() as connection:
        stored = connection.execute(complete).scalars().all()
    if not stored or any(store.place(each).stays_where_made for each in stored):
        return []
    return [path for path in folder.parent.glob(f"{folder.stem}*.npy") if path.stem.split("~")[0] == folder.stem]


def _temporary_files(root: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        yield from (Path(folder) / name for name in names if writing.aside_written_by(name))


def _may_be_written(store: Store, path: Path) -> bool:
    """Whether the process that began a temporary file may still be at it."""
    written_by = writing.aside_written_by(path.name)
    assert written_by is not None
    machine, pid = written_by
    if machine in ("", writing.this_machine()) and process_lives(pid):
        return True
    if machine == writing.this_machine():
        return False
    # Of another machine, or of an older program, which did not say: its run may be one of this database or of another.
    return store.has_other_living_runs() or not _silent(path)


def _may_be_resumed(store: Store, folder: Path) -> bool:
    """Whether an unfinished evaluation of this or of another database may go on with the chunks."""
    relative = folder.with_suffix(".npy").relative_to(store.folder).as_posix()
    e = schema.evaluations.c
    with store.reading() as connection:
        # Of what is kept elsewhere, the chunks lie here all the same.
        here = sa.or_(e.logits_path == relative, e.logits_path.endswith(_elsewhere(relative), autoescape=True))
        complete = connection.execute(sa.select(e.complete).where(here)).scalars().all()
    if complete:
        return not all(complete)
    return _known_elsewhere(store, relative) or not _silent(folder)


def _elsewhere(relative: str) -> str:
    """How the URL ends of a file that is made at this path."""
    return f"/{relative.removeprefix('logits/')}"


def _known_elsewhere(store: Store, relative: str) -> bool:
    """Whether another database of the folder has the evaluation, or cannot be asked."""
    for path in store.folder.iterdir():
        try:
            if not path.is_file() or not _is_sqlite(path):
                continue
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as other:
                if other.execute(_KNOWS, (relative, f"%{_elsewhere(relative)}")).fetchone():
                    return True
        except (sqlite3.Error, OSError):
            return True
    return False


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def _silent(path: Path) -> bool:
    """Whether nothing at or below the path has been written for long; no for what is gone in the meantime."""
    try:
        times = [path.stat().st_mtime]
        times += [inner.stat().st_mtime for inner in path.iterdir()] if path.is_dir() else []
    except OSError:
        return False
    return time.time() - max(times) > SILENT_S
