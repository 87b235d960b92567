"""Writes files under a temporary name and renames them, so that a file that exists is whole."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import StoreError


def safe_name(name: str) -> str:
    """A file name for a model or setting. Two names may give the same one: add something where it must be unique."""
    return re.sub(r"[^A-Za-z0-9._+@=-]", "_", name)


def write_aside(path: Path, write: Callable[[Path], None]) -> None:
    """Call write(temporary path), then rename it to `path`: an existing file is whole, even after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")  # in the same folder: a rename cannot cross disks
    try:
        write(aside)
        with aside.open("rb") as file:
            os.fsync(file.fileno())  # before the rename: otherwise a power cut can leave the name without the contents
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file in UTF-8, by `write_aside`."""

    def write(aside: Path) -> None:
        aside.write_text(text, encoding="utf-8")

    write_aside(path, write)


@contextmanager
def writing_to(place: Path) -> Iterator[None]:
    """Turn an OSError into a StoreError that names the place, in one line for the user."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{place} cannot be written: {error.strerror or error}") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
