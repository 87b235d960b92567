"""Small files in the user's cache folder, kept between runs and shared by all results folders."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(part: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "testbed" / part


def keep(path: Path, content: bytes) -> None:
    """Write a cache file under a temporary name, then rename it. A failure is ignored: the content is made again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The process id keeps two workers that write the same file apart.
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        pass
