"""A disk of a few megabytes, which can be filled to the last byte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

_BLOCK = 1 << 16


class SmallDisk:
    """A file system in memory with its own end; `fill` leaves room for nothing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        size = _BLOCK
        with self._ballast.open("ab", buffering=0) as file:
            while size:
                try:
                    if file.write(bytes(size)) == size:
                        continue
                except OSError:
                    pass
                size //= 2

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield SmallDisk(folder)
    subprocess.run(["umount", "--lazy", str(folder)], check=True)
