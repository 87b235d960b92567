"""What is worth keeping between runs whatever the results folder: small files in the user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(part: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "testbed" / part


def keep(path: Path, content: bytes) -> None:
    """Written aside, then renamed. Where nothing can be written, it is simply made again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        aside.write_bytes(content)
        aside.replace(path)
    except OSError:
        pass
