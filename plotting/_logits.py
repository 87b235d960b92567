"""Stored outputs for figures about single images: which evaluations have logits, and what the model said there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from _results import tell_mixed

from testbed.commands.options import say
from testbed.entries.registry import Registry
from testbed.errors import DamagedError, StoreError, TestbedError
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import find, meant_variant, nothing_found, numbers
from testbed.store.measuring import outputs_of, refuse_answers
from testbed.store.names import matches
from testbed.store.objects import StorageAway
from testbed.store.outputs import Outputs

_TOLERANCE = 0.05  # percentage points between stored and recomputed accuracy


@dataclass(frozen=True)
class StoredOutputs:
    """Own evaluations of one variant that have logits of their own or of the setting they are derived from."""

    store: Store
    registry: Registry
    variant: str
    evaluations: list[Evaluation]
    top1: Mapping[int, float | None]  # stored accuracy by evaluation

    def readable(self, evaluation: Evaluation, with_probabilities: bool = False) -> Outputs | None:
        """The outputs; where they cannot be used, None, and a line that says why."""
        try:
            outputs = self.read(evaluation)
            if with_probabilities:
                refuse_answers(outputs, evaluation.label)
            return outputs
        except (DamagedError, StorageAway):
            raise
        except TestbedError as error:
            say(f"left out: {error}", err=True)
            return None

    def read(self, evaluation: Evaluation) -> Outputs:
        """The outputs of the labelled images. Refused where the best column is not what the setting counts."""
        outputs = outputs_of(self.store, self.registry, evaluation)
        stored = self.top1.get(evaluation.id)
        # Some settings count groups of classes, or the right answer among several: there `correct` would be wrong.
        if stored is None or outputs.accuracy is None or abs(stored - 100 * outputs.accuracy) >= _TOLERANCE:
            raise StoreError(f"{evaluation.label}: its accuracy is not the share of best columns")
        labelled = outputs.targets >= 0
        return outputs if labelled.all() else outputs.take(labelled)


def stored_outputs(
    store: Store,
    registry: Registry,
    models: Sequence[str] = (),
    eval_settings: Sequence[str] = (),
    variant: str | None = None,
) -> StoredOutputs:
    """The evaluations that these names or globs mean; each of them must mean at least one."""
    if variant is None:
        variant = meant_variant(store, models or None, eval_settings or None, OWN)
    words = (models or None, eval_settings or None)
    evaluations = find(store, *words, variant, source=OWN)
    if not evaluations:
        raise nothing_found(store, *words, variant, source=OWN)
    for pattern in models:
        if not any(matches(e.model, [pattern]) for e in evaluations):
            raise nothing_found(store, [pattern], words[1], variant, source=OWN)
    for pattern in eval_settings:
        if not any(matches(e.eval_setting, [pattern]) for e in evaluations):
            raise nothing_found(store, words[0], [pattern], variant, source=OWN)
    with_logits = [e for e in evaluations if e.logits_path or e.derived_from_id is not None]
    top1 = {n.evaluation_id: n.value for n in numbers(store, *words, "top1", variant, source=OWN)}
    tell_mixed(store, {e.id for e in evaluations})
    return StoredOutputs(store, registry, variant, with_logits, top1)
