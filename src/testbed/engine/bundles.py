"""Which pairs are prepared together."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from testbed.engine.pairs import Pair, Plan
from testbed.entries.registry import Registry
from testbed.options import RunOptions

_LOADED = 16  # models that a device holds at once: as many ViT-B/16 take 5.5 GB, which half of a small GPU holds


@dataclass(frozen=True)
class Bundle:
    """Pairs of one setting whose models want the same pictures: each picture is prepared once for all of them."""

    pairs: tuple[Pair, ...]
    batch: int  # the largest batch size among them, of which the others are parts

    @property
    def images(self) -> int:
        """Counted once for each model."""
        return sum(pair.n_images for pair in self.pairs)

    @property
    def models(self) -> frozenset[str]:
        return frozenset(pair.model.name for pair in self.pairs)

    @property
    def later(self) -> bool:
        """Whether it is of another shard."""
        return self.pairs[0].later


def batch_size_of(pair: Pair, registry: Registry, options: RunOptions) -> int:
    return options.batch_of(pair.model.batch_size_for(registry.runnable(pair.setting.name)))


def bundles_of(plan: Plan, registry: Registry, options: RunOptions, devices: int = 1) -> list[Bundle]:
    """The pairs to run, in bundles that are prepared together, in the order of the plan.

    A bundle has no more models than there are for each device, unless a device holds more at once: otherwise each of
    many devices would load all models of the run for every chunk. How many devices there will be is not known where
    other runs help, and of a pool whose workers are still to come.
    """
    to_run = plan.having("run")
    known = devices > 0 and not plan.shared
    most = max(_LOADED, math.ceil(len({pair.model.name for pair in to_run}) / devices)) if known else _LOADED
    settings = {name: registry.runnable(name) for name in {pair.setting.name for pair in to_run}}
    transforms, bundles = _Distinct(), list[_Growing]()
    open_for: dict[tuple[str, int, bool], list[_Growing]] = {}  # by setting, transforms, and whose share it is
    for pair in to_run:
        setting = settings[pair.setting.name]
        size = options.batch_of(pair.model.batch_size_for(setting))
        preparation = transforms.number_of(setting.transforms_for(pair.model))
        alike = open_for.setdefault((setting.name, preparation, pair.later), [])
        bundle = next((b for b in alike if len(b.pairs) < most and _parts_of_one({size, *b.sizes})), None)
        if bundle is None:
            bundle = _Growing()
            bundles.append(bundle)
            alike.append(bundle)
        bundle.pairs.append(pair)
        bundle.sizes.add(size)
        if len(bundle.pairs) == most:
            alike.remove(bundle)
    return [Bundle(tuple(bundle.pairs), max(bundle.sizes)) for bundle in bundles]


@dataclass(eq=False)
class _Growing:
    pairs: list[Pair] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)  # of their batches


class _Distinct:
    """Numbers for values that can be compared, but need not be hashable."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._unhashable: list[object] = []

    def number_of(self, value: object) -> int:
        try:
            return self._numbers.setdefault(value, len(self._numbers))
        except TypeError:
            if value not in self._unhashable:
                self._unhashable.append(value)
            return -1 - self._unhashable.index(value)


def _parts_of_one(sizes: Collection[int]) -> bool:
    """Whether batches of all these sizes can be cut from batches of the largest."""
    return all(max(sizes) % size == 0 for size in sizes)
