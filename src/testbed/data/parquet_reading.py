"""Encoded pictures out of parquet files: in order about as cheap as files, from any thread and after a fork."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.errors import DataError, ImageError

EXTRA = "parquet files are read with the package pyarrow: pip install 'robustness-testbed[parquet]'"
_AT_ONCE = 16  # pictures that are read in one go
_MOST_BYTES = 32 << 20  # of pictures that are kept
_MOST_CURSORS = 8  # places in the files where reading can go on
_BUFFER = 1 << 20  # bytes of a file that are asked for at a time


def open_parquet(path: Path) -> Any:
    """A pyarrow.parquet.ParquetFile. Only one thread at a time may use it."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise DataError(EXTRA) from error
    try:
        # With pre_buffer a read uses threads of pyarrow, and two reads at a time crash the process. Without it, and
        # with a buffer, memory grows with a page of the file and not with a row group, which may hold all pictures.
        return ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
        why = in_one_line(error).rstrip(".")
        raise DataError(f"{path} is no whole parquet file: {why}; fetch or write it again") from error


def in_one_line(error: BaseException) -> str:
    return " ".join((getattr(error, "strerror", None) or str(error)).split())


@dataclass(frozen=True)
class Part:
    """A parquet file, and how many rows each of its row groups has."""

    path: Path
    groups: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.groups)


class PictureReader:
    """Row number over all files -> the encoded picture in that row.

    pyarrow reads a row group from its beginning only. So reading goes on where it stopped, in each of the last few
    places, and the last few pictures are kept: whoever takes pictures in order, from one thread or from several that
    are at different parts, reads each of them once.
    """

    def __init__(self, parts: Sequence[Part], column: str) -> None:
        self._column = column
        self._first_rows: list[int] = []  # of each row group, over all files
        self._rows: list[int] = []
        self._groups: list[tuple[Path, int]] = []
        for part in parts:
            for number, count in enumerate(part.groups):
                self._first_rows.append(sum(self._rows[-1:]) + sum(self._first_rows[-1:]))
                self._rows.append(count)
                self._groups.append((part.path, number))
        self._hands = _Hands(-1)

    def __call__(self, index: int) -> bytes:
        group = bisect_right(self._first_rows, index) - 1
        block, place = divmod(index - self._first_rows[group], _AT_ONCE)
        hands = self._hands
        if hands.process != os.getpid():  # after a fork a lock may be held by a thread that is not there any more
            hands = self._hands = _Hands(os.getpid())
        with hands.lock:
            pictures = hands.kept((group, block))
            if pictures is None:
                pictures = self._read(hands, group, block)
        picture = pictures[place]
        if picture is None:
            raise ImageError("expected a picture, got an empty cell")
        return picture

    def _read(self, hands: _Hands, group: int, block: int) -> list[bytes | None]:
        cursor = hands.cursor_before(group, block) or _Cursor(group, self._batches(group))
        try:
            while cursor.block <= block:
                hands.keep((group, cursor.block), next(cursor.batches))
                cursor.block += 1
        except (OSError, ValueError, StopIteration) as error:
            path, number = self._groups[group]
            told = in_one_line(error) or "it ends early"
            raise ImageError(f"row group {number} of {path} is damaged: {told}") from error
        if cursor.block * _AT_ONCE < self._rows[group]:
            hands.cursors.append(cursor)
            del hands.cursors[:-_MOST_CURSORS]
        return hands.blocks[group, block]

    def _batches(self, group: int) -> Iterator[list[bytes | None]]:
        path, number = self._groups[group]
        # Files are opened where they are read: an open one can be neither pickled nor shared.
        file = open_parquet(path)
        top, *inner = self._column.split(".")
        read: list[bytes | None] = []
        for batch in file.iter_batches(_AT_ONCE, [number], [self._column], use_threads=False):
            column = batch.column(top)
            for name in inner:
                column = column.field(name)
            read += column.to_pylist()
            while len(read) >= _AT_ONCE:
                yield read[:_AT_ONCE]
                del read[:_AT_ONCE]
        if read:
            yield read


@dataclass
class _Cursor:
    """A place in a row group where reading can go on."""

    group: int
    batches: Iterator[list[bytes | None]]
    block: int = 0  # the next one


@dataclass
class _Hands:
    """What one process has open and keeps."""

    process: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    cursors: list[_Cursor] = field(default_factory=list)  # the last used at the end
    blocks: OrderedDict[tuple[int, int], list[bytes | None]] = field(default_factory=OrderedDict)
    nbytes: int = 0

    def kept(self, key: tuple[int, int]) -> list[bytes | None] | None:
        if key in self.blocks:
            self.blocks.move_to_end(key)
        return self.blocks.get(key)

    def keep(self, key: tuple[int, int], pictures: list[bytes | None]) -> None:
        self._drop(key)
        self.blocks[key] = pictures
        self.nbytes += _size(pictures)
        while self.nbytes > _MOST_BYTES and len(self.blocks) > 1:
            self._drop(next(iter(self.blocks)))

    def _drop(self, key: tuple[int, int]) -> None:
        self.nbytes -= _size(self.blocks.pop(key, []))

    def cursor_before(self, group: int, block: int) -> _Cursor | None:
        """The cursor that is nearest before a block, taken out of the list."""
        fitting = [cursor for cursor in self.cursors if cursor.group == group and cursor.block <= block]
        if not fitting:
            return None
        nearest = max(fitting, key=lambda cursor: cursor.block)
        self.cursors.remove(nearest)
        return nearest


def _size(pictures: Sequence[bytes | None]) -> int:
    return sum(len(picture) for picture in pictures if picture is not None)
