"""Reading the results database. Plain rows and dictionaries, no pandas, no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from testbed.errors import StoreError, UnknownName, near_names
from testbed.store import files, schema
from testbed.store.database import Store


def matches(name: str, patterns: Iterable[str] | None) -> bool:
    """Whether a name is one of the patterns (globs); no patterns at all match everything."""
    return patterns is None or any(name == p or fnmatchcase(name, p) for p in patterns)


def model_names(store: Store, pattern: str | None = None) -> list[str]:
    return _names(store, schema.models, pattern)


def eval_setting_names(store: Store, pattern: str | None = None) -> list[str]:
    return _names(store, schema.eval_settings, pattern)


def _names(store: Store, table: sa.Table, pattern: str | None) -> list[str]:
    with store.reading() as connection:
        names = set(connection.execute(sa.select(table.c.name)).scalars())
    # Sorted here and below by Python: databases differ in how they order text.
    return sorted(n for n in names if matches(n, [pattern] if pattern else None))


def model_tags(store: Store) -> dict[str, list[str]]:
    """The tags of every model, by its name."""
    m = schema.models.c
    with store.reading() as connection:
        return {row.name: list(row.tags) for row in connection.execute(sa.select(m.name, m.tags))}


def all_results(store: Store) -> list[dict[str, Any]]:
    """Every metric of every completed evaluation, whatever its version and variant."""
    facts = ["model", "eval_setting", "metric", "value", "ci_low", "ci_high", "n"]
    facts += ["variant", "version", "source", "position", "evaluation_id", "finished_at"]
    view = sa.table("all_results", *(sa.column(name) for name in facts))
    with store.reading() as connection:
        rows = [dict(r) for r in connection.execute(sa.select(view)).mappings()]
    order = ("model", "eval_setting", "version", "evaluation_id", "position")
    return sorted(rows, key=lambda r: [r[name] for name in order])


def results(
    store: Store,
    models: Sequence[str] | None = None,
    eval_settings: Sequence[str] | None = None,
    metric: str | None = None,
    variant: str = "",
    source: str | None = "own",
) -> list[dict[str, Any]]:
    """Rows of one variant, newest version of each setting, filtered by names or globs, in a stable order.

    Published results, which know no versions, come only when their source is named, or with source None.
    """
    s = schema.eval_settings.c
    with store.reading() as connection:
        versions = connection.execute(sa.select(s.name, sa.func.max(s.version)).group_by(s.name))
        newest = {row[0]: row[1] for row in versions}
    return [
        r
        for r in all_results(store)
        if r["variant"] == variant
        and (source is None or r["source"] == source)
        and (r["source"] != "own" or r["version"] == newest[r["eval_setting"]])  # as in the view `results`
        and (metric is None or r["metric"] == metric)
        and matches(r["model"], models)
        and matches(r["eval_setting"], eval_settings)
    ]


@dataclass(frozen=True)
class Evaluation:
    """One row of the evaluations table with the names of its model and setting."""

    id: int
    model: str
    eval_setting: str
    version: int
    row: dict[str, Any]

    @property
    def status(self) -> str:
        return str(self.row["status"])

    def has_recorded(self, arrays: Iterable[str], rotation_head: str | None = None) -> bool:
        """Whether `eval.py --record` kept these arrays beside the logits; rotation logits of that head (sha256)."""
        facts = self.row["provenance"] or {}
        if rotation_head is not None and facts.get("rotation_head", {}).get("sha256") != rotation_head:
            return False
        return set(arrays) <= set(facts.get("recorded", ()))


def evaluations(
    store: Store,
    model: str | None = None,
    eval_setting: str | None = None,
    variant: str | None = None,
    source: str | None = "own",
    id: int | None = None,
) -> list[Evaluation]:
    e, m, s = schema.evaluations, schema.models, schema.eval_settings
    query = sa.select(e, m.c.name.label("model"), s.c.name.label("eval_setting"), s.c.version.label("version"))
    query = query.join(m, m.c.id == e.c.model_id).join(s, s.c.id == e.c.eval_setting_id)
    wanted = ((m.c.name, model), (s.c.name, eval_setting), (e.c.variant, variant), (e.c.source, source), (e.c.id, id))
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    with store.reading() as connection:
        rows = connection.execute(query).mappings().all()
    found = [Evaluation(r["id"], r["model"], r["eval_setting"], r["version"], dict(r)) for r in rows]
    return sorted(found, key=lambda f: (f.model, f.eval_setting, f.version, f.id))


def completed(store: Store, model: str, eval_setting: str, variant: str = "") -> Evaluation:
    """The completed evaluation of a pair (newest version), or an error that says what there is instead."""
    found = [e for e in evaluations(store, model, eval_setting, variant) if e.status == "completed"]
    if found:
        return found[-1]
    for kind, name, known in (
        ("model", model, model_names(store)),
        ("eval setting", eval_setting, eval_setting_names(store)),
    ):
        if name not in known:
            raise UnknownName(f"no {kind} '{name}' in the {store.where}{near_names(name, known)}")
    others = [e for e in evaluations(store, model, eval_setting) if e.status != "completed" or variant == ""]
    state = "has not been run"
    if others:
        last = others[-1]
        what = f"{last.status} ({last.row['variant']})" if last.row["variant"] else last.status
        state = f"{what}: {last.row['error']}" if last.row["error"] else f"is {what}"
    raise StoreError(f"{model} on {eval_setting} {state}")


def has_labels(store: Store, evaluation: Evaluation) -> bool:
    """Whether any image has one; without, there is nothing to measure an accuracy by."""
    relative = evaluation.row["samples_path"]
    return not relative or bool((files.load_samples(Path(store.folder) / relative).targets >= 0).any())


def metrics_of(store: Store, evaluation_id: int) -> list[dict[str, Any]]:
    x = schema.metrics
    with store.reading() as connection:
        rows = connection.execute(sa.select(x).where(x.c.evaluation_id == evaluation_id).order_by(x.c.position))
        return [dict(r) for r in rows.mappings()]


def throughputs(store: Store) -> dict[str, float]:
    """Images per second of each model's latest evaluation, for estimates of time."""
    e, m = schema.evaluations, schema.models
    query = sa.select(m.c.name, e.c.images_per_second).join(m, m.c.id == e.c.model_id)
    query = query.where(e.c.images_per_second.is_not(None)).order_by(e.c.id)
    with store.reading() as connection:
        return {name: float(speed) for name, speed in connection.execute(query)}


@dataclass(frozen=True)
class StoredLogits:
    """The outputs of a completed evaluation; rows of images that could not be read are NaN."""

    logits: np.ndarray
    samples: files.SampleList
    extras: dict[str, np.ndarray]
    bad_rows: np.ndarray


def stored_logits(store: Store, evaluation: Evaluation) -> StoredLogits:
    """Logits with ids and targets, memory-mapped; only for evaluations that own their files."""
    relative = evaluation.row["logits_path"]
    if not relative:
        raise StoreError(f"{evaluation.model} on {evaluation.eval_setting} has no stored logits")
    path = store.folder / relative
    samples = files.load_samples(Path(store.folder) / evaluation.row["samples_path"])
    bad = (evaluation.row["provenance"] or {}).get("bad_rows", [])
    return StoredLogits(files.load_logits(path), samples, files.extra_arrays(path), np.asarray(bad, dtype=np.int64))
