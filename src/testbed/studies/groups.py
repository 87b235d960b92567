"""The stored results of one model on a group of settings, in the form that the group's aggregate reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from testbed.entries.registry import Registry
from testbed.errors import DamagedError, StoreError, TestbedError, UnknownName, near_or_some
from testbed.metrics.accuracy import right_or_wrong
from testbed.metrics.answers import ANSWERS
from testbed.metrics.estimate import Estimate
from testbed.stats.combined import PerImage
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import find_one, meant_variant, numbers
from testbed.store.measuring import outputs_of
from testbed.store.names import model_names
from testbed.store.objects import StorageAway

if TYPE_CHECKING:
    from testbed.store.outputs import Outputs


_SAME_MEAN = 1e-6  # rounding of a mean over many images


@dataclass(frozen=True)
class StoredGroup:
    """Implements testbed.metrics.aggregates.StoredGroup over own results. `stored_group` makes it."""

    store: Store
    registry: Registry
    model: str
    members: Sequence[str]
    variant: str

    # One query for all settings: a group may have hundreds of members, and aggregates also ask for other settings.
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
        """The logits; None if the setting is not stored, or has answers alone, which tell no score from another."""
        outputs = self.samples(setting)
        return None if outputs is None or ANSWERS in outputs.extras else outputs.logits

    def samples(self, setting: str) -> Outputs | None:
        """The stored rows with their ids, targets and logits; None if the setting is not stored."""
        try:
            evaluation = find_one(self.store, self.model, setting, self.variant, source=OWN)
            return outputs_of(self.store, self.registry, evaluation)
        except (DamagedError, StorageAway):
            raise
        except (StoreError, UnknownName):  # to an aggregate, a setting that was not run is a missing one
            return None

    def per_image(self, setting: str, metric: str) -> PerImage | None:
        """The value of each image whose mean is the stored number of the metric."""
        stored, outputs = self.estimate(setting, metric), self.samples(setting)
        if stored is None or outputs is None:
            return None
        try:
            metrics_fn = self.registry.eval_setting(setting).metrics_fn
        except TestbedError:  # it is no longer registered, or the list behind a string is gone
            return None
        of_setting = getattr(metrics_fn, "per_image", None)
        if of_setting is not None:
            values = of_setting(outputs.logits, outputs.targets).get(metric)
        else:
            values = right_or_wrong(outputs.correct, outputs.targets) if metric == "top1" else None
        if values is None or not (counts := ~np.isnan(values)).any():
            return None
        # A metrics_fn may count otherwise, such as any of several labels. Then the mean tells.
        same = abs(float(values[counts].mean()) - stored.value) < _SAME_MEAN
        return PerImage(outputs.ids[counts], outputs.targets[counts], values[counts]) if same else None

    def of(self, model: str) -> StoredGroup | None:
        """The same group for another model; None if nothing is stored of that model."""
        known = model in model_names(self.store)
        return StoredGroup(self.store, self.registry, model, self.members, self.variant) if known else None


def stored_group(
    store: Store, registry: Registry, model: str, members: Sequence[str], variant: str | None = None
) -> StoredGroup:
    """The model's results on whole settings or, if the group has none, in the variant that most members have."""
    known = model_names(store)
    if model not in known:
        raise UnknownName(f"no model '{model}' in the {store.where}{near_or_some(model, known)}")
    if variant is None:
        variant = meant_variant(store, [model], members, OWN)
    return StoredGroup(store, registry, model, members, variant)
