"""One stored evaluation and its numbers, as typed values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from testbed.errors import printable
from testbed.metrics.estimate import Estimate, MetricKind

OWN = "own"  # the source of what has outputs: computed here, or imported with its logits


class Number(NamedTuple):
    """One metric of one completed evaluation: a row of the view `all_results`."""

    model: str
    eval_setting: str
    metric: str
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int | None
    unit: str | None
    better: str | None
    lowest: float | None
    highest: float | None
    variant: str
    version: int
    source: str
    position: int
    evaluation_id: int
    finished_at: str | None

    @property
    def estimate(self) -> Estimate:
        """The number as its metrics function gave it; what it could not measure is NaN."""
        kind = MetricKind(self.unit or "", self.better, self.lowest, self.highest)
        value = float("nan") if self.value is None else self.value
        return Estimate(value, self.ci_low, self.ci_high, self.n, kind)


@dataclass(frozen=True)
class Provenance:
    """How a result came to be. What is computed with has a field; the rest is shown as it was recorded."""

    bad_rows: tuple[int, ...] = ()  # rows whose image could not be read
    recorded: tuple[str, ...] = ()  # arrays kept beside the logits by `eval.py --record`
    rotation_head: Mapping[str, str] = field(default_factory=dict)  # of the head whose logits were recorded
    checkpoint: str | None = None
    logits_dtype: str | None = None
    weights_files: Mapping[str, str] = field(default_factory=dict)  # path -> sha256
    arrays_sha256: Mapping[str, str] = field(default_factory=dict)  # logits and recorded arrays
    etags: Mapping[str, str] = field(default_factory=dict)  # of the same in object storage, when they were written
    content: str | None = None  # digest of the images' bytes: testbed.data.content
    choice: str | None = None  # digest of the declared choice of rows and classes
    functions: Mapping[str, str] = field(default_factory=dict)  # digests of what entries compute with, by kind
    model_transform: str | None = None
    normalization: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)  # of packages
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, stored: Mapping[str, Any] | None) -> Provenance:
        """From the JSON of the row; a field that an older program left empty keeps its default."""
        known: dict[str, Any] = {}
        other: dict[str, Any] = {}
        for name, value in (stored or {}).items():
            if name not in cls.__dataclass_fields__ or name == "other":
                other[name] = value
            elif value is not None:
                known[name] = tuple(value) if isinstance(value, list) else value  # JSON knows no tuples
        return cls(**known, other={name: value for name, value in other.items() if value is not None})

    @classmethod
    def problem(cls, stored: Mapping[str, Any]) -> str:
        """What is wrong with the fields of somebody else's provenance; empty where they are as ours."""
        for name, (kind, inner) in _SHAPES.items():
            value = stored.get(name)
            if value is None:
                continue
            items = [*value, *value.values()] if isinstance(value, dict) else value
            if not isinstance(value, kind) or (kind is not str and not all(isinstance(i, inner) for i in items)):
                return f"expected {_IN_WORDS[kind]} as {name} of the provenance, got {type(value).__name__}"
        return ""


# Field of the provenance -> what JSON gives for it, and what is in that.
_SHAPES: dict[str, tuple[type, type]] = {
    "bad_rows": (list, int),
    "recorded": (list, str),
    **dict.fromkeys(("rotation_head", "weights_files", "arrays_sha256", "etags", "functions", "versions"), (dict, str)),
    **dict.fromkeys(("checkpoint", "logits_dtype", "content", "choice"), (str, str)),
    **dict.fromkeys(("model_transform", "normalization"), (str, str)),
}
_IN_WORDS: dict[type, str] = {list: "a list", dict: "an object of texts", str: "text"}


@dataclass(frozen=True)
class Evaluation:
    """One model on one version of one setting: a row of the view `all_evaluations`."""

    id: int
    model: str
    eval_setting: str
    # ---- which of several ----
    variant: str  # "" for the whole setting with seed 0; else such as limit=500 or seed=3
    version: int  # of the setting; 0 for published results
    source: str  # own, also of imported logits; or where the result was published
    superseded: bool  # a newer version of the setting has a completed evaluation of the same variant and source
    shadowed: bool  # published, and there is an own one of the same model, setting and variant
    # ---- its state ----
    status: str  # completed, running or failed; damaged: completed, but its files are not whole any more
    error: str | None
    warning: str | None
    n_images: int
    n_bad: int
    run_id: str | None
    # ---- its files: paths below the results folder, or URLs (store/places.py) ----
    logits_path: str | None
    logits_sha256: str | None
    logits_bytes: int | None
    samples_path: str | None
    derived_from_id: int | None  # the evaluation whose logits it reads
    # ---- how it was made ----
    weights_sha256: str | None
    dataset_fingerprint: str | None
    device: str | None
    dtype: str | None
    seed: int | None
    seconds: float | None
    images_per_second: float | None
    created_at: str
    finished_at: str | None
    stored_provenance: str | Mapping[str, Any] | None = field(repr=False)  # JSON text, or what the driver made of it

    @cached_property
    def provenance(self) -> Provenance:
        """Read on first use: most readers of many evaluations never look at it."""
        stored = self.stored_provenance
        return Provenance.read(json.loads(stored) if isinstance(stored, str) else stored)

    def let_go_of_provenance(self) -> None:
        """It is read again where it is asked for. Read, it takes many times the memory of its text."""
        vars(self).pop("provenance", None)

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    @property
    def published(self) -> bool:
        return self.source != OWN

    @property
    def imported(self) -> str:
        """Where its outputs were imported from; empty for what was computed here."""
        # Older programs noted only that they were.
        place = self.provenance.other.get("imported")
        return "" if not place else str(place) if place is not True else "elsewhere"

    @property
    def label(self) -> str:
        """What it is, for titles and messages: model, setting, and whatever sets it apart."""
        return printable(f"{self.model} on {self.eval_setting}{self.apart}")

    @property
    def apart(self) -> str:
        """What tells it from an own run of the whole setting, in brackets; mostly nothing."""
        marks = [f"published: {self.source}"] if self.published else []
        marks += ["imported"] if self.imported else []
        marks += [self.variant] if self.variant else []
        marks += [f"version {self.version}, superseded"] if self.superseded else []
        return f" ({', '.join(marks)})" if marks else ""

    def has_recorded(self, arrays: Iterable[str], rotation_head: str | None = None) -> bool:
        """Whether these arrays were kept beside the logits; rotation logits of that head (sha256)."""
        facts = self.provenance
        if rotation_head is not None and facts.rotation_head.get("sha256") != rotation_head:
            return False
        return set(arrays) <= set(facts.recorded)
