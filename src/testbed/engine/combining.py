"""Ensembles: the mean of what stored logits of several models say, as a result with logits of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from testbed.engine.data_changes import choice_of
from testbed.engine.function_changes import functions_of
from testbed.engine.stored import Key, Standing
from testbed.entries.made_of import Ensemble
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import StoreError
from testbed.metrics.estimate import Estimate
from testbed.metrics.softmax import mean_of_models
from testbed.options import RunOptions
from testbed.store.claims import METRIC
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import find_one, origin_of
from testbed.store.measuring import measure, outputs_of
from testbed.store.outputs import Outputs
from testbed.store.write import write_outputs

_HALVES = ("float16", "bfloat16")


# ---- for the plan --------------------------------------------------------------------------------------------


def with_members(registry: Registry, entries: Sequence[Model]) -> list[Model]:
    """The models, with members that are not among them, and every ensemble after its members."""
    ensembles = [entry for entry in entries if isinstance(entry.made_of, Ensemble)]
    single = {entry.name: entry for entry in entries if not isinstance(entry.made_of, Ensemble)}
    for ensemble in ensembles:
        assert isinstance(ensemble.made_of, Ensemble)
        for member in ensemble.made_of.members:
            if member not in single:
                single[member] = registry.model(member)
    return [*single.values(), *ensembles]


def refuse_options(entries: Sequence[Model], options: RunOptions) -> None:
    """An ensemble has logits and nothing else; options that need a network of its own are for its members."""
    for entry in entries:
        if isinstance(entry.made_of, Ensemble):
            if options.checkpoint is not None:
                raise StoreError(f"--checkpoint is for a network, '{entry.name}' is computed from stored logits")
            if options.arrays:
                raise StoreError(f"--record looks into a network, '{entry.name}' has none: record its members")
        elif entry.made_of is not None and options.checkpoint is not None:
            raise StoreError(f"--checkpoint is for a network with its own classes, '{entry.name}' is a probe")


def why_not_combined(registry: Registry, name: str) -> str:
    """Why members' answers on a setting are no answers of an ensemble; empty where they are."""
    setting = registry.runnable(name)
    if setting.probe is not None:
        return f"'{name}' looks into a network, and an ensemble has none: run its members"
    if setting.adversarial_attack is not None or "model" in setting.arguments.get("perturbation_fn_gpu", ()):
        return f"'{name}' changes the pictures by the model that sees them: its members saw different ones"
    return ""


def member_made_again(evaluation: Evaluation, key: Key, standings: Mapping[str, Standing]) -> str:
    """Which member has other logits by now than those that a stored ensemble was computed from."""
    for member, told in _told(evaluation).items():
        standing = standings.get(member)
        if standing is None or key not in standing.completed:
            continue  # the members' results may be removed
        if standing.origin_of(key).logits_sha256 != told.get("logits_sha256"):
            return f"member {member} was made again"
    return ""


def _told(evaluation: Evaluation) -> Mapping[str, Mapping[str, Any]]:
    members: Mapping[str, Mapping[str, Any]] = (evaluation.provenance.other.get("ensemble") or {}).get("members") or {}
    return members


# ---- for the recorder ----------------------------------------------------------------------------------------


def combine(
    store: Store,
    registry: Registry,
    options: RunOptions,
    model: Model,
    name: str,
    environment: Mapping[str, Any],
) -> None:
    """The result of an ensemble on a setting, from the stored outputs of its members."""
    assert isinstance(model.made_of, Ensemble)
    setting = registry.eval_setting(name)
    found = [find_one(store, member, name, options.variant, setting.version, OWN) for member in model.made_of.members]
    functions = functions_of(registry, model, name)
    parts = [outputs_of(store, registry, evaluation) for evaluation in found]
    _refuse_unlike(found, parts)
    half = options.logits_dtype == "float16" or any(e.provenance.logits_dtype == "float16" for e in found)
    logits = mean_of_models([part.logits for part in parts], model.made_of.mean).astype(
        np.float16 if half else np.float32, copy=False
    )
    outputs = Outputs(parts[0].rows, logits, model=model.name, n_bad=parts[0].n_bad)
    metrics: dict[str, Estimate] = measure(setting, model, outputs)
    first, origins = found[0], [origin_of(store, evaluation) for evaluation in found]
    dtypes = [evaluation.dtype for evaluation in origins if evaluation.dtype in _HALVES]
    write_outputs(
        store,
        model.name,
        (name, setting.version),
        outputs,
        metrics,
        options.variant,
        override=True,
        n_bad=outputs.n_bad,
        dataset_fingerprint=first.dataset_fingerprint,
        dtype=dtypes[0] if dtypes else "float32",
        seed=first.seed,
        warning="; ".join(dict.fromkeys(e.warning for e in found if e.n_bad and e.warning)) or None,
        provenance={
            **environment,
            "ensemble": {
                "mean": model.made_of.mean,
                "members": {
                    evaluation.model: {
                        "evaluation": evaluation.id,
                        "logits_sha256": origin.logits_sha256,
                        "weights_sha256": origin.weights_sha256,
                    }
                    for evaluation, origin in zip(found, origins, strict=True)
                },
            },
            "content": origins[0].provenance.content if first.id == origins[0].id else None,
            "choice": choice_of(registry, name),
            "functions": {METRIC: functions[METRIC]} if METRIC in functions else {},
            "limit": options.limit,
            "logits_dtype": "float16" if half else "float32",
        },
    )


def _refuse_unlike(found: Sequence[Evaluation], parts: Sequence[Outputs]) -> None:
    """Members must have answered for the same images, with a column for the same classes."""
    first, outputs = found[0], parts[0]
    for evaluation, other in zip(found[1:], parts[1:], strict=True):
        both = f"{first.label} and {evaluation.label}"
        if other.columns != outputs.columns:
            raise StoreError(
                f"{both}: expected members with the same classes, got {outputs.columns} and {other.columns} columns"
            )
        if not np.array_equal(other.ids, outputs.ids) or not np.array_equal(other.targets, outputs.targets):
            raise StoreError(
                f"{both}: expected members that were run on the same images, got {len(outputs)} and {len(other)} that "
                "differ in names or labels; --overwrite runs them again"
            )
        known = {e.dataset_fingerprint for e in (first, evaluation)} - {None, ""}
        if len(known) > 1:
            raise StoreError(f"{both} were made from different data: --overwrite runs them again")
