"""Parquet files with pictures in them, as the datasets library and others write them, for tests."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def encoded(seed: int, size: int = 8) -> bytes:
    """A small PNG of random pixels."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def class_label(*names: str) -> dict[str, Any]:
    return {"_type": "ClassLabel", "names": list(names)}


def write_parquet(
    path: Path,
    columns: Mapping[str, Sequence[Any]],
    pictures: Sequence[bytes | None] | None = None,
    paths: Sequence[str | None] | None = None,
    features: Mapping[str, Any] | None = None,
    group: int | None = None,
    image: str = "image",
    plain: bool = False,
) -> Path:
    """A file with a column of pictures and others beside it; `features` are what the datasets library notes of them."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    n = len(next(iter(columns.values()))) if columns else len(pictures or ())
    cells = list(pictures) if pictures is not None else [encoded(i) for i in range(n)]
    kind = pa.binary() if plain else pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    if not plain:
        cells = [{"bytes": c, "path": p} for c, p in zip(cells, paths or [None] * n, strict=True)]
    table = pa.table({image: pa.array(cells, kind), **{name: pa.array(values) for name, values in columns.items()}})
    if features is not None:
        noted = {"info": {"features": {image: {"_type": "Image"}, **features}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(noted)})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group or n or 1, compression="none", use_dictionary=False)
    return path
