"""Looks at what a path leads to before it is opened: opening a FIFO blocks for ever, and a device may have no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def regular(path: str | os.PathLike[str]) -> Path:
    """The path, if it leads to a regular file.

    Raises an OSError as `open` would, so that callers need no second way to tell of it. Its `strerror` says what is
    there instead.
    """
    try:
        mode = os.stat(path).st_mode
    except ValueError as error:  # a null byte, or a name that the file system cannot hold
        raise OSError(errno.EINVAL, f"expected a path, got one with {error}", os.fspath(path)) from error
    if not stat.S_ISREG(mode):
        kind = next((word for fits, word in _KINDS if fits(mode)), "something else")
        raise OSError(errno.EINVAL, f"expected a regular file, got {kind}", os.fspath(path))
    return Path(path)
