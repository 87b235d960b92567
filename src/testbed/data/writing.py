"""Writes files under a temporary name and renames them, so that a file that exists is whole."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from testbed.data.regular import regular
from testbed.errors import StoreError

# Of a file name that is made from a name. File systems stand 255; two of them, an ending and more must fit in that.
_LONGEST = 100
_ASIDE = re.compile(r"\..+\.(?:(?P<machine>[0-9a-f]{8})-)?(?P<pid>[0-9]{1,10})")


def safe_name(name: str) -> str:
    """A file name for a model or setting. Two names may give the same one: add something where it must be unique.

    It is never `..` or hidden, and not too long for a file system: a long name is cut and ends in a digest of itself.
    """
    safe = re.sub(r"[^A-Za-z0-9._+@=-]", "_", name)
    safe = re.sub(r"^\.+", lambda dots: "_" * len(dots[0]), safe) or "_"
    if len(safe) <= _LONGEST:
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{safe[: _LONGEST - len(digest) - 1]}-{digest}"


# A spreadsheet takes a cell that begins so for a formula, and runs it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def csv_text(cell: Any) -> Any:
    """A cell of a CSV table. Text that a spreadsheet would run as a formula gets a ' before it; numbers stay numbers.

    `from_csv_text` takes the ' away again.
    """
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) and not _is_number(cell) else cell


def from_csv_text(cell: str) -> str:
    """The text that `csv_text` made the cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_number(text: str) -> bool:
    """Whether a spreadsheet shows the text as it is: a number, or one with its error (-0.30 ± 0.01)."""
    try:
        for part in text.split(" ± "):
            float(part)
    except ValueError:
        return False
    return True


def write_aside(path: Path, write: Callable[[Path], None], make_folder: bool = True) -> None:
    """Call write(temporary path), then rename it to `path`: an existing file is whole, even after a power cut."""
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder: a rename cannot cross disks. The name tells who writes it, for testbed.store.sweeping.
    aside = path.with_name(f".{path.name}.{this_machine()}-{os.getpid()}")
    try:
        write(aside)
        with aside.open("rb") as file:
            os.fsync(file.fileno())  # before the rename: otherwise a power cut can leave the name without the contents
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


@cache
def this_machine() -> str:
    """Eight digits that tell this machine from others that share a folder or a database with it.

    Containers often have one name for all, and their processes the same few numbers.
    """
    facts = [socket.gethostname()]
    with suppress(OSError):  # Linux tells which start of which kernel this is, and whose processes are seen
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]


def aside_written_by(name: str) -> tuple[str, int] | None:
    """(machine, process) of a temporary file of `write_aside`, by its name; the machine is empty in older names."""
    match = _ASIDE.fullmatch(name)
    return (match["machine"] or "", int(match["pid"])) if match else None


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
    with regular(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
