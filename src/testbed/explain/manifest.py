"""Heatmaps from files, listed in a CSV: image, heatmap, class, contrast; one line per heatmap. Imports no torch."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from testbed.data.array_files import UNREADABLE, array_names, load_npy, load_npz
from testbed.data.images import file_state, read_rgb
from testbed.data.regular import regular
from testbed.data.samples import UNKNOWN, Dataset, Samples, fingerprint_of
from testbed.errors import DataError

_MOST_DIGITS = 9
_PER_PIXEL = 64  # maps with a shorter side are coarse grids, which fit a picture of any size


@dataclass(frozen=True)
class Explained:
    """One line: the explained classes of an image, the classes they are contrasted with, and the heatmap's file."""

    positive: tuple[int, ...]
    contrast: tuple[int, ...]
    heatmap: Path | None


@dataclass(frozen=True)
class ExplanationManifest(Dataset):
    """The images of such a CSV, each once, without labels. Paths are relative to the CSV's folder.

    A heatmap covers the whole picture. One with a value for every pixel was made for a picture of its size, so the
    picture is resized to that, bilinearly and whatever its aspect ratio, as by the published program.
    """

    csv: str
    source: str = ""

    def describe(self) -> str:
        return f"explanations {self.csv}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        path = Path(self.csv).expanduser()
        lines = read_explanations(path)
        base, ids = path.parent, list(lines)
        for name in ids:
            if not _is_file(base / name):
                raise DataError(f"{path}: lists {name}, but there is no such file below {base}")
        maps = [e.heatmap for rows in lines.values() for e in rows if e.heatmap is not None]
        for file in dict.fromkeys(maps):
            if not _is_file(file):
                raise DataError(f"{path}: lists the heatmap {file}, but there is no such file")
        questions = repr([(name, [(e.positive, e.contrast) for e in rows]) for name, rows in lines.items()])
        states = np.array([file_state(base / i) for i in ids], dtype=np.int64)

        def load(index: int) -> object:
            return _at_map_size(read_rgb(base / ids[index]), lines[ids[index]])

        return Samples(
            ids=ids,
            targets=np.full(len(ids), UNKNOWN, dtype=np.int64),
            load=load,
            # Classes and heatmaps too: other ones are another evaluation, even of the same pictures.
            fingerprint=fingerprint_of(
                questions,
                np.ascontiguousarray(states[:, 0]).tobytes(),
                *(f.read_bytes() for f in dict.fromkeys(maps)),
            ),
            label_space="own",
            cache_salt=f"{path.resolve()}:{fingerprint_of(states.tobytes(), str(path.stat().st_mtime_ns))}",
            newest_ns=int(states[:, 1].max()),
            read=lambda index: (base / ids[index]).read_bytes(),
        )


def _is_file(path: Path) -> bool:
    """No too for a name that no file system takes."""
    try:
        return path.is_file()
    except OSError:
        return False


def _at_map_size(picture: Any, lines: Sequence[Explained]) -> Any:
    """The picture at the size of its largest heatmap; unchanged where that is a coarse grid, or there is none."""
    from PIL import Image

    shapes = [read_heatmap(e.heatmap, e.positive).shape for e in lines if e.heatmap is not None]
    if not shapes or min(max(shapes)) < _PER_PIXEL:
        return picture
    height, width = max(shapes)
    return picture.resize((width, height), Image.Resampling.BILINEAR)


def read_explanations(path: str | Path) -> dict[str, list[Explained]]:
    """Image -> its lines, in the order of the file."""
    path = Path(path).expanduser()
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"manifest {path} cannot be read: {getattr(error, 'strerror', error)}") from error


@lru_cache(maxsize=8)
def _read(path: Path, changed: int) -> dict[str, list[Explained]]:
    """The lines of a file; its modification time `changed` makes a file that was edited be read again."""
    with regular(path).open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise DataError(f"manifest {path} lists nothing: expected a header line and one line per heatmap")
    missing = [c for c in ("image", "class") if c not in rows[0]]
    if missing:
        raise DataError(
            f"manifest {path}: expected the columns image, heatmap, class, contrast; there is no {missing[0]}"
        )
    lines: dict[str, list[Explained]] = {}
    for number, row in enumerate(rows, start=2):  # line 1 is the header
        where = f"manifest {path}, line {number}"
        if None in row.values():  # DictReader fills cells that are missing with None
            raise DataError(f"{where}: expected {len(row)} cells, got fewer")
        positive = _classes(row["class"], where)
        if not positive:
            raise DataError(f"{where}: expected a class, got none")
        named = row.get("heatmap") or ""
        heatmap = path.parent / named if named else None
        contrast = _classes(row.get("contrast") or "", where)
        lines.setdefault(row["image"], []).append(Explained(positive, contrast, heatmap))
    return lines


def _classes(text: str, where: str) -> tuple[int, ...]:
    """Class indices separated by spaces, semicolons or |."""
    words = [w for w in re.split(r"[\s;|]+", text.strip()) if w]
    if not all(w.isdecimal() and len(w) <= _MOST_DIGITS for w in words):
        raise DataError(f"{where}: expected class indices separated by spaces, got {text!r}")
    return tuple(int(w) for w in words)


def read_heatmap(path: Path, positive: Sequence[int]) -> np.ndarray:
    """A heatmap (h, w) in float64 from a file.

    The file is an .npy, an .npz (the array that is named like the class, or the only one) or a grey .png.
    """
    from PIL import Image

    try:
        if path.suffix == ".npz":
            heatmap = _from_archive(path, positive)
        elif path.suffix == ".npy":
            heatmap = load_npy(path)
        elif path.suffix == ".png":
            # From memory, where a length that the file does not hold asks for no memory.
            with Image.open(io.BytesIO(regular(path).read_bytes()), formats=["PNG"]) as picture:
                # Converting to "L" would cut the 16 bits of mode I, and the floats of mode F, to 8 bits.
                heatmap = np.asarray(picture if picture.mode.startswith(("I", "F")) else picture.convert("L"))
        else:
            raise DataError(f"heatmap {path}: expected .npy, .npz or .png")
    except (*UNREADABLE, MemoryError, SyntaxError, Image.DecompressionBombError) as error:
        hint = f"; python -m testbed.explain.convert_heatmaps {path} makes an .npz of a pickled dictionary"
        raise DataError(f"heatmap {path} cannot be read: {error}{hint if 'pickle' in str(error) else ''}") from error
    if heatmap.ndim != 2:
        raise DataError(f"heatmap {path}: expected one number per pixel, got an array of shape {heatmap.shape}")
    return np.asarray(heatmap, dtype=np.float64)


def _from_archive(path: Path, positive: Sequence[int]) -> np.ndarray:
    names = array_names(path)
    wanted = (" ".join(map(str, positive)), str(positive[0]))
    chosen = next((name for name in wanted if name in names), names[0] if len(names) == 1 else None)
    if chosen is None:
        raise DataError(f"heatmap {path}: expected an array named {positive[0]}, got {', '.join(names[:5])}")
    return load_npz(path, (chosen,))[chosen]
