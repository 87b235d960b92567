"""Makes archives and shards of pictures for tests."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int = 0, size: int = 4) -> bytes:
    """A PNG of random colours."""
    file = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def make_tar(path: Path, files: Mapping[str, bytes], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def make_zip(path: Path, files: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def make_folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def samples_of(labels: Mapping[str, int], first: int = 0) -> dict[str, bytes]:
    """The files of a shard: key -> label, the label before the picture as webdataset's writer sorts them."""
    files = {}
    for seed, (key, label) in enumerate(labels.items(), first):
        files |= {f"{key}.cls": str(label).encode(), f"{key}.png": picture(seed)}
    return files
