"""Starting the processes of a run, and what each asks of the system for itself.

All are forked from one server that has imported torch (`ancestor.py`) and has never touched a GPU: a process is there
in a tenth of a second, where a fresh interpreter takes some seconds to import torch.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from testbed.engine.interrupts import blocked_for_children

_PRELOADED = ["testbed.engine.ancestor"]


def run_context() -> Any:
    """Where processes of a run come from: a server where the system has one, else fresh interpreters."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload(_PRELOADED)
    return context


def start_server() -> None:
    """Start the server now, so that it imports torch while this process does other things."""
    if run_context().get_start_method() == "forkserver":
        from multiprocessing.forkserver import ensure_running

        with blocked_for_children():
            ensure_running()


def new_process(context: Any, name: str, target: Callable[..., None], *arguments: Any) -> Any:
    """A process with the environment of this one: the server was started with that of an earlier moment."""
    return context.Process(target=_with_environment, args=(dict(os.environ), target, arguments), name=name)


def gpu_count() -> int:
    """How many GPUs torch can use. A process of the server counts them, where this one has no torch yet."""
    if "torch" in sys.modules or run_context().get_start_method() != "forkserver":
        return _count_gpus()
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = new_process(run_context(), "testbed counting GPUs", _tell_gpus, theirs)
    with blocked_for_children():
        process.start()
    theirs.close()
    try:
        return int(ours.recv())
    except EOFError:  # it has died
        return _count_gpus()
    finally:
        process.join()


def _tell_gpus(connection: Connection) -> None:
    connection.send(_count_gpus())


def _count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _with_environment(environment: dict[str, str], target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    for gone in set(os.environ) - set(environment):
        del os.environ[gone]
    os.environ.update(environment)
    target(*arguments)


def keep_freed_memory() -> None:
    """Let glibc reuse large blocks instead of handing each back to the system.

    Activations of a batch are allocated and freed layer by layer; without this every layer pays for fresh pages,
    which cost 60 % of the time of EfficientNet-Lite0 at batch 64 on one core.
    """
    mmap_max, trim_threshold = -4, -1  # names of malloc.h
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(mmap_max, 0)
        libc.mallopt(trim_threshold, 2**31 - 1)
    except (OSError, AttributeError):  # another C library
        pass


def die_with_parent(wanted: bool = True) -> None:
    """Where the system can, it kills this process when its parent is gone; connections that close do it elsewhere."""
    set_death_signal = 1
    try:
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGKILL if wanted else 0)
    except (OSError, AttributeError):
        pass
