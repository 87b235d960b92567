"""Logits and rows as files: written aside, then renamed; checksummed; read without pickle."""

from __future__ import annotations

import os
import shutil
import struct
import uuid
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from testbed.data.rows import Rows
from testbed.data.writing import safe_name, sha256_of, write_aside
from testbed.errors import StoreError

_TRIES_TO_REMOVE = 5  # a folder in which somebody still writes cannot be removed at that moment
# What numpy and zipfile raise for a file that is missing, torn or something else: flipped bytes may look like an
# unknown compression, an encrypted file or an array of any shape.
UNREADABLE = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError, SyntaxError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)


def new_logits_path(model: str, setting: str) -> str:
    """A name below the results folder that no evaluation has, not even of another database in the same folder."""
    return f"logits/{safe_name(setting)}/{safe_name(model)}-{uuid.uuid4().hex[:12]}.npy"


# ---- the rows of a setting: once for all models -------------------------------------------------------


def save_rows(path: Path, rows: Rows) -> None:
    """Once: its name tells what is in it. A file that cannot be read, or holds other rows, is written anew."""
    with suppress(StoreError):
        stored = load_rows(path)
        if all(np.array_equal(getattr(stored, name), getattr(rows, name)) for name in ("ids", "targets", "indices")):
            return

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            ids = np.asarray(rows.ids, dtype=np.str_)
            np.savez(file, allow_pickle=False, ids=ids, targets=rows.targets, indices=rows.indices)

    write_aside(path, write)


def load_rows(path: Path) -> Rows:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return Rows(stored["ids"], stored["targets"], stored["indices"])
    except UNREADABLE as error:
        raise StoreError(f"sample list {path} cannot be read: {error}") from error


# ---- chunks of a running evaluation ----------------------------------------------------------------------


def parts_folder(logits_path: Path) -> Path:
    return logits_path.with_suffix(".parts")


def part_path(folder: Path, start: int) -> Path:
    return folder / f"{start:09d}.npz"


def make_parts_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def write_part(folder: Path, start: int, arrays: Mapping[str, np.ndarray]) -> None:
    """The outputs of one chunk: `logits`, and whatever a probe recorded.

    Raises FileNotFoundError where the folder is gone: another run has taken the pair over, and a chunk that comes late
    must not bring the folder back.
    """

    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            np.savez(file, allow_pickle=False, **dict(arrays))

    write_aside(part_path(folder, start), write, make_folder=False)


def part_holds(path: Path, names: Iterable[str]) -> bool:
    """Whether the chunk is there with these arrays: it may have been begun by a run that was asked for fewer."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return set(names) <= set(stored.files)
    except UNREADABLE:
        return False


def link_parts(source: Path, target: Path, starts: Iterable[int]) -> None:
    """These chunks under a second name in another folder; one whose file is lost is left out.

    Links, so that no byte is copied, and so that a file which replaces the first one later is not seen here.
    """
    make_parts_folder(target)
    for start in starts:
        try:
            os.link(part_path(source, start), part_path(target, start))
        except FileNotFoundError:
            continue
        except OSError:  # a file system without links
            shutil.copy2(part_path(source, start), part_path(target, start))


def remove_part(folder: Path, start: int) -> None:
    """One chunk, and the folder where it was the last."""
    part_path(folder, start).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError:
        pass


def part_problem(path: Path, n_rows: int, names: Iterable[str] = ()) -> str:
    """Why a finished chunk cannot be taken up again; empty where it can.

    All of it is read: the format keeps a checksum of every array, which is compared at its end.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = sorted({"logits", *names} - set(stored.files))
            if missing:
                return f"it has no {missing[0]}"
            lengths = {name: len(stored[name]) for name in stored.files}
    except FileNotFoundError:
        return "it is missing"
    except UNREADABLE as error:
        return f"it cannot be read: {error}"
    wrong = next((n for n in lengths.values() if n != n_rows), n_rows)
    return "" if wrong == n_rows else f"expected {n_rows} rows, it has {wrong}"


def assemble(folder: Path, starts: Iterable[int], n_rows: int, target: Path, dtype: str) -> dict[str, str]:
    """Join the chunks' parts into one .npy per array; returns sha256 by array name. Logits go to `target`."""
    parts = [part_path(folder, start) for start in sorted(starts)]
    with np.load(parts[0], allow_pickle=False) as first:
        # Chunks of an earlier run may hold more than this one was asked for.
        common = [name for name in first.files if all(part_holds(part, [name]) for part in parts)]
        layout = {name: (first[name].shape[1:], first[name].dtype) for name in common}
    digests = {}
    for name, (row_shape, own_dtype) in layout.items():
        kind = np.dtype(dtype) if name == "logits" else own_dtype
        digests[name] = _join(parts, name, (n_rows, *row_shape), kind, array_path(target, name))
    return digests


def _join(parts: list[Path], name: str, shape: tuple[int, ...], dtype: np.dtype, target: Path) -> str:
    def write(aside: Path) -> None:
        with aside.open("wb") as file:
            header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            rows = 0
            for part in parts:
                with np.load(part, allow_pickle=False) as stored:
                    array = np.ascontiguousarray(stored[name], dtype=dtype)
                file.write(array.data)
                rows += len(array)
        if rows != shape[0]:
            raise StoreError(f"{target}: expected {shape[0]} rows of {name}, the chunks have {rows}")

    write_aside(target, write)
    return sha256_of(target)


def array_path(logits_path: Path, name: str) -> Path:
    """Where an evaluation's array lies: the logits by their own path, probe outputs beside them.

    No safe name holds a ~, so that no other model's logits are taken for this one's probe outputs.
    """
    return logits_path if name == "logits" else logits_path.with_name(f"{logits_path.stem}~{safe_name(name)}.npy")


def extra_arrays(logits_path: Path) -> dict[str, np.ndarray]:
    """What a probe recorded beside the logits, memory-mapped."""
    arrays = sorted(logits_path.parent.glob(f"{logits_path.stem}~*.npy"))
    return {p.stem.split("~", 1)[1]: load_logits(p) for p in arrays}


def load_logits(path: Path) -> np.ndarray:
    """The stored logits (or what a probe recorded beside them), memory-mapped."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE as error:
        raise StoreError(f"logits file {path} cannot be read: {error}") from error


def declared_bytes(path: Path) -> int:
    """The size that the header of an .npy file promises; -1 where it has none."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except UNREADABLE:
        return -1  # a file that is shorter than its header says cannot be mapped either
    return int(mapped.offset) + mapped.nbytes if isinstance(mapped, np.memmap) else path.stat().st_size


_digests: dict[tuple[str, int, int], str] = {}  # of files that this process has read to the end


def known_sha256(path: Path, again: bool = False) -> str:
    """The checksum of a file, computed once per process for each state (size and time) of it."""
    state = path.stat()
    key = (str(path), state.st_size, state.st_mtime_ns)
    if again or key not in _digests:
        _digests[key] = sha256_of(path)
    return _digests[key]


def remove_logits(folder: Path, relative: str) -> None:
    path = folder / relative
    for extra in path.parent.glob(f"{path.stem}~*.npy"):
        extra.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    parts = parts_folder(path)
    for _ in range(_TRIES_TO_REMOVE):
        shutil.rmtree(parts, ignore_errors=True)
        if not parts.exists():
            return
