"""Sharing a run out over machines: which pairs are those of shard I of N.

The answer depends on what was asked for and on what the entries declare, and on nothing that a machine, a database or
the time of day knows: shards that start at different times, and at different states of the work, must agree. So the
speed of a model is not asked for, which a database may have stored and another not.

All that is to be run is laid in a line: setting after setting, within a setting the models that want the same pictures
beside one another, and the line is cut into N stretches of equal cost. A shard then has whole settings, with all their
models, and at most a piece of two others: pictures are decoded once for all models of most settings, and fast and slow
models are mixed alike in every shard, whatever their speed is.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from testbed.data.transforms import StandardTransform
from testbed.engine.pairs import Pair, Plan
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.made_of import Ensemble
from testbed.entries.model import Model
from testbed.entries.registry import Registry
from testbed.errors import EntryError, counted

AUTO = "auto"
_USUAL_SIDE = 224
_EXPECTED = f"--shard: expected I/N such as 1/8, or {AUTO} in a Slurm array"

Cell = tuple[str, str]  # a model, and a setting that is run: what reads its logits goes with it


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a run, counted from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"shard {self.number} of {self.count}"

    @classmethod
    def read(cls, text: str, environment: Mapping[str, str] = os.environ) -> Shard:
        """From I/N, or from the variables of a Slurm array."""
        if text == AUTO:
            return _of_array(environment)
        if (given := re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)) is None:
            raise EntryError(f"{_EXPECTED}, got '{text}'")
        number, count = int(given[1]), int(given[2])
        if count < 1:
            raise EntryError(f"--shard: expected at least one shard, as in 1/1, got {text}")
        if number < 1:
            raise EntryError(
                f"--shard: shards are counted from 1: expected 1/{count} to {count}/{count}, got {text}; in an array "
                f"that begins at 0, --shard {AUTO} adds the 1"
            )
        if number > count:
            raise EntryError(f"--shard: expected 1/{count} to {count}/{count}, got {text}")
        return cls(number, count)


def _of_array(environment: Mapping[str, str]) -> Shard:
    """Slurm tells every task of an array its number, the lowest, the highest and how many there are."""
    names = [f"SLURM_ARRAY_TASK_{word}" for word in ("ID", "COUNT", "MIN", "MAX")]
    told = [environment.get(name, "") for name in names]
    if not told[0]:
        raise EntryError(f"--shard {AUTO}: SLURM_ARRAY_TASK_ID is not set, so this is no Slurm array: give I/N")
    if not all(text.isdecimal() for text in told):
        raise EntryError(f"--shard {AUTO}: expected numbers in {', '.join(names)}, got {told}: give I/N")
    number, count, least, most = map(int, told)
    if most - least + 1 != count or not least <= number <= most:
        raise EntryError(
            f"--shard {AUTO}: task {number} of {count} in {least}-{most} is of an array with gaps, which does not tell "
            "how many shards there are: give I/N, such as $SLURM_ARRAY_TASK_ID/8"
        )
    return Shard(number - least + 1, count)


# ---- who has what ------------------------------------------------------------------------------------------


def share_out(costs: Mapping[Cell, tuple[str, int, str]], count: int) -> dict[Cell, int]:
    """The shard of every cell, by its kind, cost and preparation.

    Kinds cannot be compared in cost (an attack takes many passes), so that each is shared out by itself.
    """
    shards: dict[Cell, int] = {}
    kinds = sorted({kind for kind, _, _ in costs.values()})
    for place, kind in enumerate(kinds):
        line = sorted((cell for cell in costs if costs[cell][0] == kind), key=lambda c: _place(c, costs[c][2]))
        total = sum(costs[cell][1] for cell in line)
        reached = place * total * 618 // 1000  # where few cells are cut, the kinds should not all end in one shard
        for cell in line:
            cost = costs[cell][1]
            middle = (2 * reached + cost) % (2 * total)
            shards[cell] = middle * count // (2 * total) + 1  # whole numbers, which are the same on every machine
            reached += cost
    return shards


def _place(cell: Cell, preparation: str) -> tuple[str, str, str]:
    """Models of one preparation lie together, those of one family do not: they are as slow as one another."""
    model, setting = cell
    return setting, preparation, hashlib.sha256(f"{model}\0{setting}".encode()).hexdigest()


def cells_of(
    registry: Registry, models: Iterable[Model], settings: Iterable[str], limit: int | None = None
) -> dict[Cell, tuple[str, int, str]]:
    """Kind, cost and preparation of every model on every setting that has a forward pass.

    The cost is in pictures of 224 x 224 pixels, times 224 x 224. A setting without a declared size counts as the mean
    of the others.
    """
    readers: dict[str, list[EvalSetting]] = {}
    for name in settings:
        readers.setdefault(root_of(registry, name), []).append(registry.eval_setting(name))
    sizes = {root: _images(registry.runnable(root), asked) for root, asked in readers.items()}
    known = [size for size in sizes.values() if size]
    usual = sum(known) // len(known) if known else 1
    entries = {model.name: model for model in models}
    cells = {}
    for root in sizes:
        setting = registry.runnable(root)
        images = sizes[root] or usual
        images = images if limit is None else min(images, limit)
        for name, model in entries.items():
            cells[name, root] = (_kind(setting), max(1, images * _pixels(model)), _preparation(model))
    return cells


def root_of(registry: Registry, name: str) -> str:
    """The setting at the root of what a setting reads its logits from: itself, where it is run."""
    while (parent := registry.eval_setting(name).logits_from) is not None:
        name = parent
    return name


def _images(root: EvalSetting, asked: Sequence[EvalSetting]) -> int:
    """As many as are asked for: where only some of a large setting are, these alone are run. 0: not declared."""
    whole = root.size or 0
    if any(setting.idx_subsample_list is None for setting in asked):
        return whole
    picked = sum(len(setting.idx_subsample_list or ()) for setting in asked)
    return min(whole, picked) if whole else picked


def _kind(setting: EvalSetting) -> str:
    if setting.probe is not None:
        return "probe"
    by_model = "model" in setting.arguments.get("perturbation_fn_gpu", ()) or setting.adversarial_attack is not None
    return "attack" if by_model else "plain"


def _pixels(model: Model) -> int:
    size = model.transform.img_crop_size if isinstance(model.transform, StandardTransform) else None
    height, width = size if isinstance(size, tuple) else (size or _USUAL_SIDE,) * 2
    return height * width


def _preparation(model: Model) -> str:
    """A text that is the same in every process; a function's own has its address."""
    own = model.transform
    return repr(own) if isinstance(own, StandardTransform) else getattr(own, "__qualname__", type(own).__name__)


# ---- the plan of one shard ---------------------------------------------------------------------------------


def shards_of(plan: Plan, registry: Registry, limit: int | None, count: int) -> list[frozenset[int]]:
    """The shards that each pair of a plan belongs to: one, but for an ensemble, which has those of its members."""
    asked = [pair for pair in plan.pairs if pair.asked and not pair.follows]  # all of them, done or not
    models = {model.name: model for pair in asked for model in _networks(registry, pair.model)}
    cells = cells_of(registry, models.values(), dict.fromkeys(pair.setting.name for pair in asked), limit)
    shards = share_out(cells, count)

    def of(pair: Pair) -> frozenset[int]:
        root = root_of(registry, pair.setting.name)
        return frozenset(shards[model.name, root] for model in _networks(registry, pair.model))

    return [of(pair) for pair in plan.pairs]


def _networks(registry: Registry, model: Model) -> list[Model]:
    """The models that are shown pictures for it: its members, or itself."""
    made_of = model.made_of
    return [registry.model(name) for name in made_of.members] if isinstance(made_of, Ensemble) else [model]


def plan_of_shard(plan: Plan, registry: Registry, limit: int | None, shard: Shard, helps: bool) -> Plan:
    """The plan of one shard: its own pairs, and where it `helps` those of the others, when its own are all begun.

    An ensemble whose members are not all its own is left out, or comes late.
    """
    owners = shards_of(plan, registry, limit, shard.count)
    own = [pair for pair, of in zip(plan.pairs, owners, strict=True) if of == {shard.number}]
    others = [(pair, of) for pair, of in zip(plan.pairs, owners, strict=True) if of != {shard.number}]
    made = Plan(own, [*plan.notes], share=f"{shard}: {len(own):,} of {counted(len(plan.pairs), 'pair')}")
    if helps:
        # Each begins with another shard: all that are done would else crowd around the first.
        others.sort(key=lambda other: min((n - shard.number) % shard.count for n in other[1]))
        for pair, _ in others:
            pair.later = True
        made.pairs += [pair for pair, _ in others]
    elif left := sum(shard.number in of and pair.action != "done" for pair, of in others):
        made.notes.append(
            f"{counted(left, 'pair')} of ensembles with members in other shards: left out; the same command without "
            "--shard on the merged database makes them, without a forward pass"
        )
    return made
