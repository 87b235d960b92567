"""Images listed in a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.data.images import picture_samples
from testbed.data.labels import class_indices
from testbed.data.samples import UNKNOWN, Dataset, Samples
from testbed.errors import DataError


@dataclass(frozen=True)
class ManifestDataset(Dataset):
    """A CSV with the columns `image` (path, from the CSV's own folder) and, unless unlabelled, `label`."""

    csv: str | os.PathLike[str]
    labels: str = "auto"
    source: str = ""

    def describe(self) -> str:
        return f"manifest {self.csv}"

    def open(self, data_roots: Sequence[Path]) -> Samples:
        path = Path(self.csv).expanduser()
        ids, names = _read_rows(path)
        base = path.parent
        missing = next((i for i in ids if not (base / i).is_file()), None)
        if missing is not None:
            raise DataError(f"{path}: lists {missing}, but there is no such file below {base}")
        if names is None:
            targets, space, num_classes = np.full(len(ids), UNKNOWN, dtype=np.int64), "own", None
        else:
            indices, space, num_classes = class_indices(names, self.labels, str(path))
            targets = np.array([indices[n] for n in names], dtype=np.int64)
        sizes, salt = [(base / i).stat().st_size for i in ids], f"{path.resolve()}:{path.stat().st_mtime_ns}"
        return picture_samples(base, ids, targets, sizes, salt, space, num_classes)


def _read_rows(path: Path) -> tuple[list[str], list[str] | None]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"manifest {path} cannot be read: {getattr(error, 'strerror', error)}") from error
    if not rows:
        raise DataError(f"manifest {path} lists no images: expected a header line and one line per image")
    if "image" not in rows[0]:
        raise DataError(f"manifest {path}: expected a column 'image', got {', '.join(rows[0])}")
    short = next((line for line, r in enumerate(rows, start=2) if None in r.values()), None)
    if short is not None:
        raise DataError(f"manifest {path}, line {short}: expected {len(rows[0])} cells, got fewer")
    names = [r["label"] for r in rows] if "label" in rows[0] else None
    return [r["image"] for r in rows], names
