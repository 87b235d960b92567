"""Reads CIFAR-10 and CIFAR-100 as their authors publish them: the Python batches and the binary ones.

A folder may be that of the batches itself or the one it was unpacked into, such as torchvision's `root`. The Python
batches are pickles: they are read without running any code, and hold arrays, lists and text only.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from testbed.data.regular import regular
from testbed.errors import DataError

PARTS = ("test", "train")
_PIXELS = 32 * 32 * 3  # of one image: all of red, then green, then blue
_LARGEST = 1 << 29  # bytes of one file; the largest published one, `train` of CIFAR-100, has 155 MB


@dataclass(frozen=True)
class Published:
    """One published form: its folder, and the files of each part in order."""

    folder: str
    test: tuple[str, ...]
    train: tuple[str, ...]
    label_bytes: int = 0  # before each image of a binary file; the last one is the class; 0 for pickles

    def files(self, part: str) -> tuple[str, ...]:
        return self.train if part == "train" else self.test


FORMS = (
    Published("cifar-10-batches-py", ("test_batch",), tuple(f"data_batch_{i}" for i in range(1, 6))),
    Published("cifar-10-batches-bin", ("test_batch.bin",), tuple(f"data_batch_{i}.bin" for i in range(1, 6)), 1),
    Published("cifar-100-python", ("test",), ("train",)),
    Published("cifar-100-binary", ("test.bin",), ("train.bin",), 2),
)
# Where these folders are looked for below a data root.
FOLDERS = {
    data: tuple(
        f"{above}{form.folder}" for form in FORMS if form.folder.startswith(start) for above in ("", f"{data}/")
    )
    for data, start in (("cifar10", "cifar-10-"), ("cifar100", "cifar-100-"))
}


def files_at(place: Path, part: str = "test") -> list[Path]:
    """The published files that a path stands for; none where it is something else.

    The path is a file, a folder of batches, the folder it was unpacked into, or one of these with `/train` or `/test`
    behind it.
    """
    form = _form_of(place.name)
    if form is not None and place.is_file():
        return [place]
    if place.is_dir():
        folders = [(place, form) for form in FORMS] + [(place / form.folder, form) for form in FORMS]
        for folder, form in folders:
            files = [folder / name for name in form.files(part)]
            if all(file.is_file() for file in files) and _belongs(folder, form):
                return files
        if any(place.name == form.folder for form in FORMS):
            raise DataError(f"{place}: no {part} images of CIFAR: expected the files it was published with")
        return []
    if place.name in PARTS and place.parent.is_dir():
        return files_at(place.parent, place.name)
    return []


def _form_of(name: str) -> Published | None:
    return next((form for form in FORMS if name in (*form.test, *form.train)), None)


def _belongs(folder: Path, form: Published) -> bool:
    """`test` and `train` are names of many files: those of CIFAR-100 have its list of classes beside them."""
    return form.folder != "cifar-100-python" or folder.name == form.folder or (folder / "meta").is_file()


def read(files: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 32, 32, 3) uint8 and labels (n,) of all these files; for CIFAR-100 the 100 fine labels."""
    parts = [_read_one(file) for file in files]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _read_one(path: Path) -> tuple[np.ndarray, np.ndarray]:
    form = _form_of(path.name)
    assert form is not None
    try:
        size = regular(path).stat().st_size
        if size > _LARGEST:
            raise ValueError(f"it has {size:,} bytes")
        rows, labels = _binary(path, form.label_bytes) if form.label_bytes else _pickled(path)
    except Exception as error:  # whatever a damaged pickle makes the unpickler do
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise DataError(f"{path}: expected a published file of CIFAR, whole and unchanged: {first}") from error
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), labels


def _binary(path: Path, label_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    content = np.fromfile(path, dtype=np.uint8)
    row = label_bytes + _PIXELS
    if len(content) == 0 or len(content) % row:
        raise ValueError(f"expected a whole number of rows of {row:,} bytes, got {len(content):,} bytes")
    rows = content.reshape(-1, row)
    return rows[:, label_bytes:], rows[:, label_bytes - 1].astype(np.int64)


def _pickled(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with path.open("rb") as file:
        try:
            content = _ArraysOnly(file).load()
        except (EOFError, LookupError, struct.error) as error:
            raise ValueError("it is cut off or damaged") from error
    if not isinstance(content, dict):
        raise ValueError(f"expected a dictionary, got {type(content).__name__}")
    entries = {_text(key): value for key, value in content.items()}
    rows, labels = entries["data"], entries["fine_labels"] if "fine_labels" in entries else entries["labels"]
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.shape != (len(labels), _PIXELS):
        raise ValueError(f"expected uint8 data ({len(labels)}, {_PIXELS}), got {getattr(rows, 'shape', type(rows))}")
    return rows, np.array(labels, dtype=np.int64)


def _text(key: Any) -> str:
    return key.decode("ascii", "replace") if isinstance(key, bytes) else str(key)


def _empty_array(kind: Any, shape: Any, code: Any) -> np.ndarray:
    """What a pickled array begins as. The pickle's own shape is not followed: it could ask for any memory."""
    return np.ndarray((0,), np.uint8)


class _ArraysOnly(pickle._Unpickler):  # in Python: the one in C makes a table as long as the file says
    """Unpickles numpy arrays of numbers and plain Python data, as Python 2 wrote them, and calls nothing else."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, encoding="bytes")

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return _empty_array
        if (module, name) == ("numpy", "ndarray"):
            return ()  # only handed to _empty_array; calling it is refused
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) == ("_codecs", "encode"):  # how protocol 2 writes bytes under Python 3
            return lambda text, encoding: text.encode("latin1")
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not run: expected arrays, lists and text")
