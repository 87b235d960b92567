"""The manifest of a folder of logits: what it says of each file, checked before anything is believed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.entries.checks import check_name, shortened
from testbed.errors import EntryError, StoreError
from testbed.store.evaluation import Provenance

MANIFEST = "manifest.json"
# Columns of the row that travel with the logits, and the longest text that each may be; None for numbers.
CARRIED: Mapping[str, int | None] = {
    **dict(weights_sha256=64, dataset_fingerprint=64, device=64, dtype=16),
    **dict(seed=None, seconds=None, images_per_second=None),
}
_MOST_BYTES = 1 << 28
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VARIANT = re.compile(r"(limit=(?P<limit>[1-9]\d{0,9}))?((?<=\d),(?=s))?(seed=[1-9]\d{0,18})?")
# What a terminal would obey. Line breaks stay: transforms are told in several lines.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Item:
    """One file of logits, as its manifest describes it."""

    path: Path
    sha256: str
    model: str
    eval_setting: str
    version: int
    variant: str
    metrics: Mapping[str, float | None]
    facts: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"{self.model} on {self.eval_setting}"

    @property
    def limit(self) -> int | None:
        limit = (_VARIANT.fullmatch(self.variant) or {"limit": None})["limit"]
        return int(limit) if limit else None

    @property
    def n_bad(self) -> int:
        """How many images could not be read where the logits come from; they are not among the rows."""
        return len(self.provenance.get("bad_rows") or ())


def read_manifest(folder: Path) -> list[Item]:
    """The items of `manifest.json`; a StoreError of one line where it is not what --save-logits writes."""
    place = folder / MANIFEST
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise ValueError("too long")
        # Numbers that JSON does not know (NaN, Infinity) tell nothing.
        content = json.loads(place.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(f"{folder}: expected a folder that --save-logits wrote, with {MANIFEST} in it") from error
    if not isinstance(content, list):
        raise StoreError(f"{place}: expected a list of items, got {shortened(content)}")
    items = [_Reader(item, f"{place}, item {number}").item(folder) for number, item in enumerate(content, start=1)]
    seen: set[tuple[object, ...]] = set()
    for number, item in enumerate(items, start=1):
        key = (item.model, item.eval_setting, item.version, item.variant)
        if key in seen:
            raise StoreError(f"{place}, item {number}: expected each pair once, got {shortened(item.label)} again")
        seen.add(key)
    return items


class _Reader:
    """One item of the manifest, read field by field."""

    def __init__(self, content: Any, where: str) -> None:
        self._where = where
        if not isinstance(content, dict):
            raise self._error("what --save-logits writes", content)
        self._content = content

    def item(self, folder: Path) -> Item:
        return Item(
            path=folder / self._file(),
            sha256=self._text("sha256", _SHA256, "64 hexadecimal digits"),
            model=self._name("model"),
            eval_setting=self._name("eval_setting"),
            version=self._version(),
            variant=self._text("variant", _VARIANT, "a variant such as limit=500, or an empty one"),
            metrics=self._metrics(),
            facts={name: self._fact(name, longest) for name, longest in CARRIED.items()},
            provenance=self._provenance(),
        )

    def _error(self, expected: str, got: Any) -> StoreError:
        return StoreError(f"{self._where}: expected {expected}, got {shortened(got)}")

    def _get(self, key: str) -> Any:
        if key not in self._content:
            raise StoreError(f"{self._where}: expected what --save-logits writes, got an item without '{key}'")
        return self._content[key]

    def _text(self, key: str, pattern: re.Pattern[str], expected: str) -> str:
        text = self._get(key)
        if not isinstance(text, str) or not pattern.fullmatch(text):
            raise self._error(f"{expected} as {key}", text)
        return text

    def _file(self) -> str:
        name = self._get("file")
        # A name of the folder itself: no other folder, and no upward path, of whatever system.
        if not isinstance(name, str) or not re.fullmatch(r"[^/\\:\0]+\.npz", name):
            raise self._error("the name of an .npz file beside the manifest as file", name)
        return name

    def _name(self, key: str) -> str:
        try:
            return check_name(key.replace("_", " "), self._get(key))
        except EntryError as error:
            raise StoreError(f"{self._where}: {error}") from error

    def _version(self) -> int:
        version = self._get("version")
        if type(version) is not int or not 1 <= version < 2**31:
            raise self._error("a whole number from 1 on as version", version)
        return version

    def _metrics(self) -> dict[str, float | None]:
        metrics = self._get("metrics")
        if not isinstance(metrics, list) or not all(isinstance(m, dict) for m in metrics):
            raise self._error("a list of metrics", metrics)
        told: dict[str, float | None] = {}
        for metric in metrics:
            name, value = metric.get("name"), metric.get("value")
            if not isinstance(name, str) or not (value is None or _is_number(value)):
                raise self._error("a name and a number of each metric", metric)
            told[name] = None if value is None else float(value)
        return told

    def _fact(self, name: str, longest: int | None) -> Any:
        fact = self._get(name)
        if fact is None:
            return None
        if longest is not None:
            if not isinstance(fact, str) or len(fact) > longest or _CONTROL.search(fact):
                raise self._error(f"text of at most {longest} letters as {name}", fact)
        elif name == "seed":
            if type(fact) is not int or not 0 <= fact < 2**63:
                raise self._error("a whole number from 0 on as seed", fact)
        elif not _is_number(fact) or fact < 0:
            raise self._error(f"a number from 0 on as {name}", fact)
        return fact

    def _provenance(self) -> dict[str, Any]:
        provenance = self._get("provenance")
        if provenance is None:
            return {}
        if not isinstance(provenance, dict):
            raise self._error("an object as provenance", provenance)
        if problem := Provenance.problem(provenance):
            raise StoreError(f"{self._where}: {problem}")
        return dict(_visible(provenance))


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def _visible(value: Any) -> Any:
    """The same values, with escapes in place of what a terminal would obey: provenance is printed."""
    if isinstance(value, str):
        return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", value)
    if isinstance(value, list):
        return [_visible(item) for item in value]
    if isinstance(value, dict):
        return {_visible(key): _visible(item) for key, item in value.items()}
    return value
