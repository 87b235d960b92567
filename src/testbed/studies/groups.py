"""What is stored of one model on a group of settings, as the group's aggregate sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from testbed.entries.registry import Registry
from testbed.errors import StoreError, UnknownName, near_names
from testbed.metrics.estimate import Estimate
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import find_one, meant_variant, model_names, numbers
from testbed.store.measuring import outputs_of

if TYPE_CHECKING:
    import numpy as np

    from testbed.store.outputs import Outputs


@dataclass(frozen=True)
class StoredGroup:
    """The own results of one model (testbed.metrics.aggregates.StoredGroup). Make it with `stored_group`."""

    store: Store
    registry: Registry
    model: str
    members: Sequence[str]
    variant: str

    @cached_property
    def _metrics(self) -> dict[str, dict[str, Estimate]]:
        by_setting: dict[str, dict[str, Estimate]] = {}
        for number in numbers(self.store, [self.model], variant=self.variant, source=OWN):
            by_setting.setdefault(number.eval_setting, {})[number.metric] = number.estimate
        return by_setting

    @property
    def missing(self) -> list[str]:
        return [name for name in self.members if name not in self._metrics]

    def metrics(self, setting: str) -> dict[str, Estimate]:
        return self._metrics.get(setting, {})

    def estimate(self, setting: str, metric: str) -> Estimate | None:
        return self.metrics(setting).get(metric)

    def logits(self, setting: str) -> np.ndarray | None:
        outputs = self.samples(setting)
        return None if outputs is None else outputs.logits

    def samples(self, setting: str) -> Outputs | None:
        """Ids and targets of the stored rows, with their outputs."""
        try:
            evaluation = find_one(self.store, self.model, setting, self.variant, source=OWN)
            return outputs_of(self.store, self.registry, evaluation)
        except (StoreError, UnknownName):
            return None

    def of(self, model: str) -> StoredGroup | None:
        """The same of another model; None where nothing is stored of it."""
        known = model in model_names(self.store)
        return StoredGroup(self.store, self.registry, model, self.members, self.variant) if known else None


def stored_group(store: Store, registry: Registry, model: str, members: Sequence[str]) -> StoredGroup:
    """Whole settings, or where the group has none the partial variant that most of it was run in."""
    known = model_names(store)
    if model not in known:
        raise UnknownName(f"no model '{model}' in the {store.where}{near_names(model, known)}")
    return StoredGroup(store, registry, model, members, meant_variant(store, [model], members, OWN))
