"""Which pairs are prepared together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.engine.pairs import Pair, Plan
from testbed.entries.registry import Registry
from testbed.options import RunOptions


@dataclass(frozen=True)
class Bundle:
    """Pairs of one setting whose models want the same pictures: each picture is prepared once for all of them."""

    pairs: tuple[Pair, ...]
    batch: int  # the largest batch size among them, of which the others are parts

    @property
    def models(self) -> frozenset[str]:
        return frozenset(pair.model.name for pair in self.pairs)

    @property
    def later(self) -> bool:
        """Whether it is of another shard."""
        return self.pairs[0].later


def batch_size_of(pair: Pair, registry: Registry, options: RunOptions) -> int:
    return options.batch_of(pair.model.batch_size_for(registry.runnable(pair.setting.name)))


def bundles_of(plan: Plan, registry: Registry, options: RunOptions) -> list[Bundle]:
    """The pairs to run, in bundles that are prepared together, in the order of the plan."""
    bundles: list[tuple[tuple[object, ...], list[tuple[Pair, int]]]] = []
    of_setting: dict[str, list[int]] = {}  # places in `bundles`: transforms can be compared, but need not be hashable
    for pair in plan.having("run"):
        setting = registry.runnable(pair.setting.name)
        preparation = (pair.later, *setting.transforms_for(pair.model))
        size = batch_size_of(pair, registry, options)
        places = of_setting.setdefault(pair.setting.name, [])
        for place in places:
            wanted, members = bundles[place]
            full = plan.most_together is not None and len(members) >= plan.most_together
            if not full and wanted == preparation and _parts_of_one([size, *(s for _, s in members)]):
                members.append((pair, size))
                break
        else:
            places.append(len(bundles))
            bundles.append((preparation, [(pair, size)]))
    return [Bundle(tuple(p for p, _ in members), max(s for _, s in members)) for _, members in bundles]


def _parts_of_one(sizes: Sequence[int]) -> bool:
    """Whether batches of all these sizes can be cut from batches of the largest."""
    return all(max(sizes) % size == 0 for size in sizes)
