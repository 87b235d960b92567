"""Answers of models from stored logits: which images were right, and how sure the model was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from testbed.entries.registry import Registry
from testbed.errors import StoreError, UnknownName, near_names
from testbed.store import queries
from testbed.store.database import Store
from testbed.store.outputs import outputs_of
from testbed.store.queries import Evaluation

_ROWS = 4096  # logits are memory-mapped and read in blocks
_TOLERANCE = 0.05  # percentage points between stored and recomputed accuracy


@dataclass(frozen=True)
class Answers:
    """One entry per readable image."""

    ids: np.ndarray
    correct: np.ndarray
    confidence: np.ndarray


def with_logits(
    store: Store, models: Sequence[str] = (), eval_settings: Sequence[str] = (), variant: str = ""
) -> list[Evaluation]:
    """Completed own evaluations with logits of their own or their parent's, the newest version; names may be globs."""
    found = queries.evaluations(store, variant=variant)
    for kind, patterns, known in (
        ("model", models, {e.model for e in found}),
        ("eval setting", eval_settings, {e.eval_setting for e in found}),
    ):
        for pattern in patterns:
            if not any(queries.matches(name, [pattern]) for name in known):
                raise UnknownName(f"no own results of {kind} '{pattern}'{near_names(pattern, sorted(known))}")
    newest = {
        (e.model, e.eval_setting): e
        for e in found
        if e.status == "completed"
        and (e.row["logits_path"] or e.row["derived_from_id"])
        and queries.matches(e.model, models or None)
        and queries.matches(e.eval_setting, eval_settings or None)
    }
    return list(newest.values())


def answers(store: Store, registry: Registry, evaluation: Evaluation) -> Answers:
    """What the model said. Refused where the best column is not what the setting counts as its answer."""
    stored = outputs_of(store, registry, evaluation)
    n = len(stored.logits)
    correct, confidence = np.zeros(n, dtype=bool), np.zeros(n)
    for start in range(0, n, _ROWS):
        rows = slice(start, start + _ROWS)
        logits = np.asarray(stored.logits[rows], dtype=np.float64)
        best = logits.max(axis=1)
        correct[rows] = logits.argmax(axis=1) == stored.samples.targets[rows]
        confidence[rows] = 1 / np.exp(logits - best[:, None]).sum(axis=1)
    found = Answers(np.asarray(stored.samples.ids), correct, confidence)
    _check(store, evaluation, found)
    return found


def _check(store: Store, evaluation: Evaluation, found: Answers) -> None:
    for metric in queries.metrics_of(store, evaluation.id):
        if metric["name"] == "top1" and abs(metric["value"] - 100 * found.correct.mean()) < _TOLERANCE:
            return
    raise StoreError(f"{evaluation.model} on {evaluation.eval_setting}: its accuracy is not the share of best columns")
