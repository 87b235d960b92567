"""The preparing processes of a machine as the parent of a run sees them: one pool that serves all devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import Any

from testbed.engine import broker
from testbed.engine.interrupts import blocked_for_children
from testbed.engine.processes import new_process, run_context
from testbed.options import RunOptions


class PreparingPool:
    """The preparing processes, started with the first worker that asks for a connection."""

    def __init__(self, options: RunOptions, processes: int, devices: int) -> None:
        self._options, self._processes, self._devices = options, processes, devices
        self._context = run_context()
        self._process: Any = None
        self._control: Connection | None = None

    def connection(self, device: int) -> Connection:
        """The end of a new connection for the worker of a device; the one it had before is worth nothing then."""
        if self._process is None or not self._process.is_alive():
            self._start()
        theirs, ours = self._context.Pipe()
        assert self._control is not None
        try:
            self._control.send(device)
            send_handle(self._control, ours.fileno(), self._process.pid)
        except OSError:
            pass  # the broker has just died: the worker notices, ends, and is started again
        ours.close()
        return theirs

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._options, self._processes, self._devices)
        self._process = new_process(self._context, "testbed preparing", broker.serve, *arguments)
        with blocked_for_children():
            self._process.start()
        theirs.close()
        self._control = ours

    def close(self, end: Callable[[list[Any]], None]) -> None:
        """The broker ends when its connection closes, and its processes with it."""
        if self._control is not None:
            self._control.close()
            end([self._process])


def preparing_processes(asked: int | None, devices: Sequence[str]) -> int:
    """How many processes prepare pictures, unless told: as many as there are cores that no worker of a GPU keeps busy.

    Workers on the CPU have cores of their own only while they compute: until then they wait for pictures.
    """
    if asked is not None:
        return asked
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores - sum(device != "cpu" for device in devices))
