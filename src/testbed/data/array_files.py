"""Reads .npy and .npz files: nothing is unpickled, and no array is made that the file or the memory does not hold.

numpy makes an array of the declared shape before it reads the first byte of it: a file of 128 bytes can ask for a
terabyte. So the declared size is compared with that of the file, and with the memory of the machine, first.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np

from testbed.data.regular import regular

# What the functions below raise for a file that is missing, damaged or something else.
UNREADABLE = (OSError, ValueError, KeyError, EOFError)
# Compressed arrays may be so much larger than their file, and this much in any case.
_MOST_RATIO = 200
_ALWAYS = 1 << 28


def load_npy(path: Path, mapped: bool = False) -> np.ndarray:
    """The array of an .npy file, or a memory map of it. Raises OSError, or ValueError for a file of another kind."""
    size = regular(path).stat().st_size
    with path.open("rb") as file, _only_value_errors():
        _check_header(file, size, mapped)
        file.seek(0)
        if not mapped:
            return np.lib.format.read_array(file, allow_pickle=False)
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return array


def read_npy(stream: IO[bytes], size: int) -> np.ndarray:
    """The array of an .npy file of `size` bytes that is at hand. Raises ValueError for a file of another kind."""
    with _only_value_errors():
        _check_header(stream, size)
        stream.seek(0)
        return np.lib.format.read_array(stream, allow_pickle=False)


def load_npz(path: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name, all or those of `names` that are there; errors as of load_npy."""
    with regular(path).open("rb") as file, _only_value_errors(), zipfile.ZipFile(file) as archive:
        members = {m.filename.removesuffix(".npy"): m for m in archive.infolist() if m.filename.endswith(".npy")}
        if names is not None:
            members = {name: members[name] for name in names if name in members}
        declared, held = sum(m.file_size for m in members.values()), path.stat().st_size
        if declared > max(_MOST_RATIO * held, _ALWAYS):
            raise ValueError(f"a file of {held:,} bytes declares arrays of {declared:,}")
        return {name: _read_member(archive, member) for name, member in members.items()}


def array_names(path: Path) -> list[str]:
    """The names of the arrays of an .npz file; errors as of load_npy."""
    with regular(path).open("rb") as file, _only_value_errors(), zipfile.ZipFile(file) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as stream:
        _check_header(stream, member.file_size)
    with archive.open(member) as stream:
        array = np.lib.format.read_array(stream, allow_pickle=False)
        stream.read()  # to the end, where the checksum is compared
        return array


def _check_header(stream: IO[bytes], size: int, mapped: bool = False) -> None:
    """Refuse a header that declares more than the `size` bytes of its file, or more than the memory there is."""
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"expected version 1.0 or 2.0 of the .npy format, got {version[0]}.{version[1]}")
    shape, _, dtype = readers[version](stream)
    if dtype.hasobject:
        raise ValueError("expected an array of numbers or text, got Python objects, which only pickle could read")
    # Items of no size could be declared in any number.
    declared = math.prod(shape) * max(dtype.itemsize, 1)
    if min(shape, default=0) < 0 or declared > size - stream.tell():
        raise ValueError(f"it declares {declared:,} bytes of {dtype} {shape}, and holds {size - stream.tell():,}")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if not mapped and declared > memory:
        raise ValueError(f"it needs {declared / 1e9:,.1f} GB of memory, this machine has {memory / 1e9:,.1f} GB")


@contextmanager
def _only_value_errors() -> Iterator[None]:
    """Turn whatever numpy, zipfile and zlib raise for damaged files into a ValueError of one line."""
    try:
        yield
    except OSError:  # of the disk
        raise
    except Exception as error:  # also MemoryError, and what the parsers of headers raise
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(kind + " ".join(str(error).split())) from error
