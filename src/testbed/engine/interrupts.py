"""Ctrl-C: where it may come in the middle of something, and where it has to wait a moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType


@contextmanager
def held_back() -> Iterator[None]:
    """A Ctrl-C within comes when the block has ended; a second one comes at once.

    For moments that must not be cut in two, such as a message that has been read in half.
    """
    handler = signal.getsignal(signal.SIGINT)
    # Where Ctrl-C is ignored (a command started with & in a script) or is another thread's, there is nothing to hold.
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield
        return
    came = 0

    def hold(signal_number: int, frame: FrameType | None) -> None:
        nonlocal came
        came += 1
        if came > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            raise KeyboardInterrupt


@contextmanager
def blocked_for_children() -> Iterator[None]:
    """A process that is started within does not see Ctrl-C until it calls `never_interrupted`.

    Python takes a second or more to start, and would print a traceback from wherever it happens to be.
    """
    resource_tracker.ensure_running()  # starting it unblocks the signal, so it comes first
    with held_back():  # the mask is this thread's alone: another one may take the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def never_interrupted() -> None:
    """Ctrl-C is the parent's to handle: what it sends to the whole group is nothing to a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # discards one that waits
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
