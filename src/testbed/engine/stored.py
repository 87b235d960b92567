"""What stored results are worth to a run: whose they are, and whether they are as precise as what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.entries.registry import Registry
from testbed.options import RunOptions
from testbed.store import files, queries
from testbed.store.database import Store

Outdated = Callable[[queries.Evaluation], str]  # why a stored result no longer counts; "" where it does


def told_apart(store: Store, name: str, checkpoint: str) -> str:
    """The name, with digits of the checkpoint's sha256 where another file's results are stored under it."""
    path = Path(checkpoint).expanduser()
    facts = [e.row["provenance"] or {} for e in queries.evaluations(store, model=name)]
    known = [f["weights_files"].values() for f in facts if f.get("weights_files")]
    if not known or not path.is_file():
        return name
    digest = files.sha256_of(path)
    return name if all(digest in digests for digests in known) else f"{name}-{digest[:8]}"


def why_again(evaluation: queries.Evaluation, options: RunOptions, outdated: Outdated | None) -> str:
    """Why a completed result does not do for what is asked; empty where it does."""
    return less_precise(evaluation, options) or (outdated(evaluation) if outdated else "")


def less_precise(evaluation: queries.Evaluation, options: RunOptions) -> str:
    """In what a stored result falls short of the precision asked for; empty where it does not."""
    computed = evaluation.row["dtype"]
    if computed in ("float16", "bfloat16") and options.amp is None:
        return f"computed in {computed}"
    kept = (evaluation.row["provenance"] or {}).get("logits_dtype")
    return "stored in float16" if kept == "float16" and options.logits_dtype == "float32" else ""


@dataclass(frozen=True)
class Standing:
    """(setting, version) of what is stored of a model, of what of it does, and why some of it does not."""

    completed: set[tuple[str, int]]
    done: set[tuple[str, int]]
    reasons: Mapping[tuple[str, int], str]


def standing_of(
    registry: Registry, store: Store, stored_model: str, options: RunOptions, outdated: Outdated | None
) -> Standing:
    found = queries.evaluations(store, model=stored_model, variant=options.variant)
    completed = {(e.eval_setting, e.version): e for e in found if e.status == "completed"}
    reasons = {key: why for key, e in completed.items() if (why := why_again(e, options, outdated))}
    return Standing(set(completed), _done(registry, found, options) - set(reasons), reasons)


def _done(registry: Registry, stored: Sequence[queries.Evaluation], options: RunOptions) -> set[tuple[str, int]]:
    """(setting, version) of completed evaluations that hold what is to be recorded, with today's rotation head; a
    derived one counts while its parent is of today's version."""
    head = rotation_head(stored[0].model, options).get("sha256") if stored else None
    completed = {e.id: e for e in stored if e.status == "completed"}
    done = set()
    for evaluation in completed.values():
        parent = completed.get(evaluation.row["derived_from_id"])
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
