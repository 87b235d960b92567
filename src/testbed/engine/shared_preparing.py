"""Batches from the machine's preparing processes, as a worker takes them: in shared memory, ahead of its device."""

from __future__ import annotations

import mmap
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from time import perf_counter
from typing import Any

import torch

from testbed import errors
from testbed.data.rows import Rows
from testbed.data.samples import Samples
from testbed.engine.pictures import Filled, Form
from testbed.engine.preparing import Batch, LocalPreparer, Order, Tally, readable
from testbed.engine.preparing_messages import CANCEL, Dropped, Job, Prepared, Refused, Told, array_in, as_message
from testbed.entries.eval_setting import EvalSetting
from testbed.options import RunOptions

_AHEAD_BYTES = 1 << 30  # of pictures that wait for one device; two batches may always wait
_PAGE = 4096
_NO_RESERVE = 0x4000  # MAP_NORESERVE of Linux: no memory is set aside for pages that nobody will write


class PreparingLost(BaseException):
    """The preparing processes are gone. No exception of a chunk: the worker ends and is started again."""


class PreparingFailed(Exception):
    """An error in a preparing process that is no TestbedError; its own text and traceback."""

    def __init__(self, error: str, details: str) -> None:
        super().__init__(error)
        self.details = details


class SharedPreparer:
    """Asks the preparing processes of the machine for pictures, as far ahead as memory allows."""

    def __init__(self, options: RunOptions, connection: Connection, device: str, note: Callable[[str], None]) -> None:
        self._local = LocalPreparer(options)  # lists datasets, and prepares batches that are too large to hand over
        self._connection, self._note = connection, note
        self._numbers = count()
        self._parts: dict[int, tuple[_Waiting, range]] = {}  # jobs that are not answered
        self._forms: dict[tuple[str, bool], tuple[object, Form]] = {}  # by setting; with the transforms they are for
        welcome = self._receive()
        self._device, self._processes, self._nbytes = welcome.device, welcome.processes, welcome.nbytes
        file = recv_handle(connection)
        self._arena, self._second = mmap.mmap(file, self._nbytes), _private_mapping(file, self._nbytes)
        self._pinned = _PinnedMemory(self._arena) if device.startswith("cuda") else None

    def samples(self, setting: EvalSetting) -> Samples:
        return self._local.samples(setting)

    def batches(self, order: Order, tally: Tally) -> Iterator[Batch]:
        form, first = self._form_of(order, tally)
        if form is None:
            return
        slot = -(-order.size * form.nbytes // _PAGE) * _PAGE
        firsts = range(first, len(order.rows), order.size)
        # So many that every process has its two jobs, within memory.
        wanted = 2 + -(-2 * self._processes // len(list(form.slices(order.size))))
        slots = min(wanted, max(2, _AHEAD_BYTES // slot), len(firsts))
        if slots * slot > self._nbytes:
            yield from self._local.batches(replace(order, rows=order.rows.take(slice(first, None))), tally)
            return
        if self._pinned is not None:
            self._pinned.cover(slots * slot)
        yield from self._in_slots(order, form, firsts, _Slots(slot, deque(range(slots))), tally)

    def _form_of(self, order: Order, tally: Tally) -> tuple[Form | None, int]:
        """The form of the pictures, and the first row of the first batch that has a readable one."""
        key = (order.setting.name, order.perturb)
        transforms = order.setting.transforms_for(order.model)
        if key in self._forms and self._forms[key][0] == transforms:
            return self._forms[key][1], 0
        for first in range(0, len(order.rows), order.size):
            waiting = _Waiting(order.batch_from(first))
            self._send(as_message([self._job(waiting, range(0), order, waiting.rows.indices.tolist())]))
            self._wait_for(waiting, tally)
            if waiting.form is not None:
                self._forms[key] = transforms, waiting.form
                return waiting.form, first
            tally.add(waiting.filled[0][1])
        return None, len(order.rows)

    def _in_slots(self, order: Order, form: Form, firsts: range, slots: _Slots, tally: Tally) -> Iterator[Batch]:
        """Batches in turn, each in a slot of its own that is used again when the next batch is asked for."""
        pending: deque[_Waiting] = deque()
        coming = iter(firsts)
        try:
            while True:
                while slots.free and (first := next(coming, None)) is not None:
                    pending.append(self._ask(order, form, first, slots.free.popleft(), slots.nbytes))
                if not pending:
                    return
                batch = pending.popleft()
                self._wait_for(batch, tally)
                out = array_in(self._arena, batch.slot * slots.nbytes, len(batch.rows), form)
                filled = sorted(batch.filled, key=lambda f: f[0].start)
                for given in readable(batch.rows, out, filled, tally):
                    whole = len(given) == len(batch.rows)  # else it was copied, without those that are bad
                    yield replace(given, again=self._again(batch, form, slots.nbytes)) if whole else given
                slots.free.append(batch.slot)
        finally:
            self._cancel()

    def _again(self, batch: _Waiting, form: Form, slot_bytes: int) -> Callable[[], torch.Tensor] | None:
        """A function that gives the pictures of a slot by the private mapping, without what was written there."""
        second, offset = self._second, batch.slot * slot_bytes
        if second is None:
            return None

        def look() -> torch.Tensor:
            second.madvise(mmap.MADV_DONTNEED, offset, slot_bytes)
            return torch.from_numpy(array_in(second, offset, len(batch.rows), form))

        return look

    def _ask(self, order: Order, form: Form, first: int, slot: int, slot_bytes: int) -> _Waiting:
        waiting = _Waiting(order.batch_from(first), slot)
        indices = waiting.rows.indices.tolist()
        jobs = []
        for part in form.slices(len(indices)):
            offset = slot * slot_bytes + part.start * form.nbytes
            jobs.append(self._job(waiting, part, order, indices[part.start : part.stop], form, offset))
        self._send(as_message(jobs))
        return waiting

    def _job(
        self,
        waiting: _Waiting,
        part: range,
        order: Order,
        indices: list[int],
        form: Form | None = None,
        offset: int = 0,
    ) -> Job:
        number, wanted = next(self._numbers), (order.setting.name, order.model.name, order.perturb)
        self._parts[number] = waiting, part
        waiting.parts += 1
        return Job(number, self._device, *wanted, indices, form, offset)

    def _send(self, message: bytes) -> None:
        try:
            self._connection.send_bytes(message)
        except OSError as error:
            raise PreparingLost from error

    def _wait_for(self, waiting: _Waiting, tally: Tally) -> None:
        began = perf_counter()
        while waiting.parts:
            self._hear()
        tally.waited_s += perf_counter() - began
        if waiting.refused is not None:
            raise waiting.refused

    def _hear(self) -> None:
        message = self._receive()
        if isinstance(message, Told):
            self._note(message.text)
            return
        if isinstance(message, Dropped):
            for number in message.numbers:
                self._parts.pop(number)[0].parts -= 1
            return
        waiting, part = self._parts.pop(message.number)
        waiting.parts -= 1
        if isinstance(message, Prepared):
            waiting.form = message.form
            if message.filled is not None:
                waiting.filled.append((part, message.filled))
        else:
            waiting.refused = waiting.refused or _as_error(message)

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, OSError) as error:
            raise PreparingLost from error

    def _cancel(self) -> None:
        """Nobody may write into the memory of the next batches: wait for what is being done, drop the rest."""
        if not self._parts:
            return
        self._send(CANCEL)
        while self._parts:
            self._hear()

    def close(self) -> None:
        self._local.close()


def _private_mapping(file: int, nbytes: int) -> mmap.mmap | None:
    """A mapping of the shared memory in which a write makes a copy of its page; None on systems other than Linux."""
    if sys.platform != "linux":
        return None
    return mmap.mmap(file, nbytes, mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE)


@dataclass
class _Slots:
    """Places for batches in shared memory, and those that are free."""

    nbytes: int
    free: deque[int]


@dataclass
class _Waiting:
    """A batch that is being prepared."""

    rows: Rows
    slot: int = 0
    parts: int = 0  # jobs that are not answered
    form: Form | None = None
    filled: list[tuple[range, Filled]] = field(default_factory=list)
    refused: Exception | None = None


def _as_error(message: Refused) -> Exception:
    if message.kind:
        kind: type[Exception] = getattr(errors, message.kind, errors.DataError)
        return kind(message.error)
    return PreparingFailed(message.error, message.details)


class _PinnedMemory:
    """Shared memory that the GPU may read by itself, so that copies to it run beside everything else."""

    def __init__(self, arena: mmap.mmap) -> None:
        self._address = torch.frombuffer(arena, dtype=torch.uint8, count=1).data_ptr()
        self._covered = 0

    def cover(self, nbytes: int) -> None:
        if nbytes <= self._covered:
            return
        cuda = torch.cuda.cudart()
        if self._covered:
            cuda.cudaHostUnregister(self._address)
        # Where the system refuses, copies are slower and nothing else.
        refused = int(cuda.cudaHostRegister(self._address, nbytes, 0))
        self._covered = 0 if refused else nbytes
