"""Which stored results a run need not make again: same weights, as precise as asked for, with the recorded arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.data import writing
from testbed.entries.registry import Registry
from testbed.options import RunOptions
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import EVERY, find

Outdated = Callable[[Evaluation], str]  # why a stored result no longer counts; "" where it does


def told_apart(store: Store, name: str, checkpoint: str) -> str:
    """The name, with digits of the checkpoint's sha256 where another file's results are stored under it."""
    path = Path(checkpoint).expanduser()
    stored = find(store, [name], variant=EVERY, version=EVERY, source=OWN)
    known = [e.provenance.weights_files.values() for e in stored if e.provenance.weights_files]
    if not known or not path.is_file():
        return name
    digest = writing.sha256_of(path)
    return name if all(digest in digests for digests in known) else f"{name}-{digest[:8]}"


def why_again(evaluation: Evaluation, options: RunOptions, outdated: Outdated | None) -> str:
    """Why a completed result does not do for what is asked; empty where it does."""
    return less_precise(evaluation, options) or (outdated(evaluation) if outdated else "")


def less_precise(evaluation: Evaluation, options: RunOptions) -> str:
    """In what a stored result falls short of the precision asked for; empty where it does not."""
    if evaluation.dtype in ("float16", "bfloat16") and options.amp is None:
        return f"computed in {evaluation.dtype}"
    kept = evaluation.provenance.logits_dtype
    return "stored in float16" if kept == "float16" and options.logits_dtype == "float32" else ""


Key = tuple[str, int]  # name and version of a setting


@dataclass(frozen=True)
class Standing:
    """What is stored of a model, by setting and version."""

    completed: set[Key]
    done: set[Key]  # those of the completed that need not be made again
    reasons: Mapping[Key, str]  # why others must be, where that is not because something is missing


def standing_of(
    registry: Registry, store: Store, stored_model: str, options: RunOptions, outdated: Outdated | None
) -> Standing:
    stored = find(store, [stored_model], variant=options.variant, version=EVERY, source=OWN)
    completed = {(e.eval_setting, e.version): e for e in stored}
    reasons = {key: why for key, e in completed.items() if (why := why_again(e, options, outdated))}
    return Standing(set(completed), _done(registry, stored, options) - set(reasons), reasons)


def _done(registry: Registry, stored: Sequence[Evaluation], options: RunOptions) -> set[Key]:
    """Completed evaluations that hold what is to be recorded, with today's rotation head.

    A derived one counts only while its parent is of the version that is declared today.
    """
    head = rotation_head(stored[0].model, options).get("sha256") if stored else None
    by_id = {e.id: e for e in stored}
    done = set()
    for evaluation in stored:
        parent = by_id.get(evaluation.derived_from_id) if evaluation.derived_from_id is not None else None
        entry = registry.eval_settings.entries.get(parent.eval_setting) if parent else None
        if not (parent or evaluation).has_recorded(options.arrays, head):
            continue
        if parent is None or entry is None or entry.version == parent.version:
            done.add((evaluation.eval_setting, evaluation.version))
    return done


def rotation_head(stored_model: str, options: RunOptions) -> dict[str, str]:
    """The head that `--record rotation` would use, as the provenance tells it; nothing without one."""
    if "rotation" not in options.arrays:
        return {}
    from testbed.models.rotation import head_facts, head_path  # torch comes with it

    return head_facts(head_path(Path(options.results_folder), stored_model))
