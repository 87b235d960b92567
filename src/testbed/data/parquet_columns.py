"""Which columns of a parquet file are pictures and labels, and what the label numbers are called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.data.hub_layout import readme_head
from testbed.errors import DataError

# Names of label columns where no feature type tells. `class_name` is none of them: such words are rarely ImageNet's.
_LABELS = ("label", "labels", "cls", "wnid", "class", "target", "fine_label", "coarse_label")
_FOLDERS_UP = 3  # how far above the files a README.md belongs to them
_MOST_NAMED = 8


@dataclass(frozen=True)
class Columns:
    """What is read of a file: leaf columns such as image.bytes, and class names by label number (none: not known)."""

    image: str
    path: str | None  # the leaf column with the name that a picture had as a file
    label: str | None
    names: tuple[str, ...] = ()


def find_columns(schema: Any, image: str | None, label: str | None, labelled: bool, where: Path) -> Columns:
    """The columns of a pyarrow schema: those of the given names, else by feature type, else by their own type."""
    features = _features(schema, where)
    picture = image or _only_picture(schema, features, where)
    field = _field(schema, picture, "image", where)
    if not _holds_pictures(field.type):
        raise DataError(f"{where}: expected a column of pictures, got {picture} of type {_in_words(field.type)}")
    inner = {field.type.field(i).name for i in range(field.type.num_fields)}
    labels = (label or _only_label(schema, features, where)) if labelled else None
    if labels is not None:
        _field(schema, labels, "label", where)
        if labels == picture:
            raise DataError(f"{where}: expected a column of labels, got {labels}, which are the pictures")
    return Columns(
        f"{picture}.bytes" if inner else picture,
        f"{picture}.path" if "path" in inner else None,
        labels,
        _names(features.get(labels or "")),
    )


def _features(schema: Any, where: Path) -> dict[str, Mapping[str, Any]]:
    """Column -> its feature in the words of the datasets library, from the file, else from a README.md beside it."""
    try:
        stored = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return {name: feature for name, feature in stored.items() if isinstance(feature, dict)}
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    for folder in list(where.parents)[:_FOLDERS_UP]:
        for info in _as_list(readme_head(folder).get("dataset_info")):
            stored = info.get("features") if isinstance(info, dict) else None
            listed = [f for f in _as_list(stored) if isinstance(f, dict) and "name" in f]
            if listed and {str(f["name"]) for f in listed} <= set(schema.names):
                return {str(f["name"]): _from_readme(f) for f in listed}
    return {}


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _from_readme(feature: Mapping[str, Any]) -> dict[str, Any]:
    """A feature of a README in the form that it has in a file."""
    dtype = feature.get("dtype")
    if dtype == "image":
        return {"_type": "Image"}
    if isinstance(dtype, dict) and isinstance(dtype.get("class_label"), dict):
        names = dtype["class_label"].get("names")
        if isinstance(names, dict):  # keys are numbers as text
            names = [names[key] for key in sorted(names, key=int)]
        return {"_type": "ClassLabel", "names": names or []}
    return {}


def _names(feature: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names of a ClassLabel, or of a list of them."""
    if not feature:
        return ()
    if feature.get("_type") == "ClassLabel":
        return tuple(str(name) for name in feature.get("names") or ())
    inner = feature.get("feature")
    return _names(inner) if isinstance(inner, dict) else ()


def _only_picture(schema: Any, features: Mapping[str, Mapping[str, Any]], where: Path) -> str:
    likely = [n for n in schema.names if _holds_pictures(schema.field(n).type)]
    columns = [n for n in schema.names if features.get(n, {}).get("_type") == "Image"]
    columns = columns or [n for n in likely if schema.field(n).type.num_fields] or likely
    if not columns:
        raise DataError(f"{where}: expected a column of pictures, got {_listed(schema.names)}")
    return _one(columns, "pictures", "image", where)


def _only_label(schema: Any, features: Mapping[str, Mapping[str, Any]], where: Path) -> str | None:
    columns = [n for n in schema.names if _names(features.get(n)) or features.get(n, {}).get("_type") == "ClassLabel"]
    columns = columns or [n for n in schema.names if n.lower() in _LABELS]
    return _one(columns, "labels", "label", where) if columns else None


def _one(columns: Sequence[str], what: str, option: str, where: Path) -> str:
    if len(columns) > 1:
        raise DataError(
            f"{where}: expected one column of {what}, got {_listed(columns)}: say which, as in ?{option}={columns[0]}"
        )
    return columns[0]


def _field(schema: Any, name: str, option: str, where: Path) -> Any:
    if name not in schema.names:
        raise DataError(f"{where}: no column {name!r} for {option}=, there are {_listed(schema.names)}")
    return schema.field(name)


def _holds_pictures(kind: Any) -> bool:
    """Whether a column type is bytes, or a struct with a field `bytes` of them."""
    import pyarrow.types as types

    if types.is_struct(kind):
        place = kind.get_field_index("bytes")
        return place >= 0 and _holds_pictures(kind.field(place).type) and not types.is_struct(kind.field(place).type)
    return types.is_binary(kind) or types.is_large_binary(kind)


def _in_words(kind: Any) -> str:
    text = str(kind)
    return text if len(text) < 40 else f"{text[:40]}..."


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
