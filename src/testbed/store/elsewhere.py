"""Outputs whose files lie in object storage: fetched when somebody looks at them, a few rows without the rest.

A file that is fetched whole is compared with its checksum, as one of this machine is. Rows that are read in ranges
cannot be: they are taken where size and ETag of the object are still those that were noted when it was written. Where
they are not, the file is fetched and its checksum decides.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

import numpy as np

from testbed.data.rows import Rows
from testbed.store import fetched, objects
from testbed.store.outputs import Outputs
from testbed.store.places import Place, missing

_HEADER = 512  # bytes that hold the header of any array of ours
_GAP = 256 * 1024  # bytes between two rows that cost less than another request
_SHARE = 0.25  # of the file: beyond that it is fetched, checked and kept
_SMALL = 2**20  # bytes of a file that is fetched at once


@dataclass(frozen=True)
class _Header:
    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int
    size: int  # of the file

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape[1:])) * self.dtype.itemsize


class StoredArray:
    """One array of an evaluation, in object storage. `refuse` is called with what is wrong, and raises."""

    def __init__(self, place: Place, sha256: str, etag: str, refuse: Callable[[str], NoReturn]) -> None:
        self._place, self._sha256, self._etag, self._refuse = place, sha256, etag, refuse

    def shape(self) -> tuple[int, ...]:
        header = self._header
        return header.shape if header is not None else self.whole.shape

    def rows(self, which: np.ndarray | None) -> np.ndarray:
        """Those of some positions, or all of them."""
        header = self._header if which is not None else None
        if header is not None and which is not None:
            stretches = _stretches(np.unique(which) * header.row_bytes + header.offset, header.row_bytes)
            if sum(stop - start for start, stop in stretches) <= _SHARE * header.size:
                return self._in_ranges(header, which, stretches)
        return self.whole if which is None else self.whole[which]

    @cached_property
    def whole(self) -> np.ndarray:
        """All of it, compared with its checksum and memory-mapped."""
        try:
            return fetched.array(self._place.folder, self._place.stored, self._sha256)
        except objects.MissingObject:
            self._refuse(missing(self._place.stored))
        except fetched.OtherContents as other:
            self._refuse(str(other))

    @cached_property
    def _header(self) -> _Header | None:
        """That of the object, if it is still the one that was written and worth reading in ranges; else None."""
        if "whole" in self.__dict__ or fetched.at_hand(self._place.folder, self._sha256) is not None:
            return None
        try:
            facts = objects.facts_of(self._place.stored)
        except objects.MissingObject:
            self._refuse(missing(self._place.stored))
        if facts.size < _SMALL or not self._etag or facts.etag != self._etag:
            return None
        file = io.BytesIO(objects.ranges(self._place.stored, [(0, _HEADER)])[0])
        try:
            if np.lib.format.read_magic(file) != (1, 0):
                return None
            shape, in_fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        except ValueError:
            return None
        header = _Header(shape, dtype, file.tell(), facts.size)
        as_ours = not in_fortran_order and not dtype.hasobject
        return header if as_ours and header.offset + shape[0] * header.row_bytes == facts.size else None

    def _in_ranges(self, header: _Header, which: np.ndarray, stretches: Sequence[tuple[int, int]]) -> np.ndarray:
        parts = objects.ranges(self._place.stored, stretches)
        rows = [np.frombuffer(part, header.dtype).reshape(-1, *header.shape[1:]) for part in parts]
        numbers = [np.arange(*(np.array(stretch) - header.offset) // header.row_bytes) for stretch in stretches]
        none = np.zeros((0, *header.shape[1:]), header.dtype)
        return np.concatenate([none, *rows])[np.searchsorted(np.concatenate([np.arange(0), *numbers]), which)]


def _stretches(starts: np.ndarray, length: int) -> list[tuple[int, int]]:
    """(start, stop) in bytes of the rows that begin there, in order; near ones as one."""
    if not len(starts):
        return []
    breaks = np.flatnonzero(np.diff(starts) > length + _GAP)
    firsts, lasts = np.r_[0, breaks + 1], np.r_[breaks, len(starts) - 1]
    return [(int(starts[a]), int(starts[b]) + length) for a, b in zip(firsts, lasts, strict=True)]


class OutputsElsewhere(Outputs):
    """Outputs whose arrays are read when somebody looks at them. What `take` gives is read no sooner."""

    def __init__(
        self, rows: Rows, arrays: Mapping[str, StoredArray], which: np.ndarray | None = None, n_bad: int = 0
    ) -> None:
        self.__dict__.update(rows=rows, n_bad=n_bad, facts={}, _arrays=arrays, _which=which)

    _arrays: Mapping[str, StoredArray]
    _which: np.ndarray | None  # positions in the arrays; None for all

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> int:
        return int(self._arrays["logits"].shape()[1])

    def take(self, which: np.ndarray) -> Outputs:
        positions = np.arange(len(self)) if self._which is None else self._which
        return OutputsElsewhere(self.rows.take(which), self._arrays, positions[which], self.n_bad)

    @cached_property
    def logits(self) -> np.ndarray:
        return self._arrays["logits"].rows(self._which)

    @cached_property
    def extras(self) -> Mapping[str, np.ndarray]:
        return _OnFirstUse({name: array for name, array in self._arrays.items() if name != "logits"}, self._which)


class _OnFirstUse(Mapping[str, np.ndarray]):
    """What was recorded beside the logits, each array read when it is asked for."""

    def __init__(self, arrays: Mapping[str, StoredArray], which: np.ndarray | None) -> None:
        self._arrays, self._which = arrays, which
        self._read: dict[str, np.ndarray] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._read:
            self._read[name] = self._arrays[name].rows(self._which)
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)
