"""Small files in the user's cache folder, kept between runs and shared by all results folders."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def user_cache(part: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "testbed" / part


def keep(path: Path, content: bytes) -> None:
    """Write a cache file under a temporary name, then rename it. A failure is ignored: the content is made again."""
    # The process id keeps two workers that write the same file apart.
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:  # such as a full disk
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def keep_first(path: Path, content: bytes) -> bytes:
    """Write a cache file unless another process has done so already; returns the content that stands for all."""
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        os.link(aside, path)  # unlike a rename it fails where the file is there
    except FileExistsError:
        return path.read_bytes()
    except OSError:
        return content
    finally:
        aside.unlink(missing_ok=True)
    return content
