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


# ---- a folder of class folders in another form: functions (folder, place to write to) -> setting -----------------


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def as_tar(folder: Path, place: Path) -> str:
    return f"tar:{make_tar(place / 'pictures.tar', contents(folder))}"


def as_zip(folder: Path, place: Path) -> str:
    """Deflated, and wrapped in a folder."""
    wrapped = {f"pictures/{name}": data for name, data in contents(folder).items()}
    return f"zip:{make_zip(place / 'pictures.zip', wrapped)}"


def as_shards(folder: Path, place: Path) -> str:
    """In the layout of clip-benchmark: two shards, a number beside each picture, the names of the numbers."""
    files, classes = list(contents(folder).items()), sorted(path.name for path in folder.iterdir())
    for shard in range(2):
        members: dict[str, bytes] = {}
        for name, data in files[: len(files) // 2] if shard == 0 else files[len(files) // 2 :]:
            members[f"{name.rpartition('.')[0]}.cls"] = str(classes.index(name.partition("/")[0])).encode()
            members[name] = data
        make_tar(place / "test" / f"{shard}.tar", members)
    (place / "test" / "nshards.txt").write_text("2")
    (place / "classnames.txt").write_text("".join(f"{name}\n" for name in classes))
    return f"wds:{place}"


PACKED = {"shards": as_shards, "tar": as_tar, "zip": as_zip}
