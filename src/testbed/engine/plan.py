"""What is to do: names to pairs, minus what is done, minus what can be derived from stored logits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from testbed.data.download import with_hint
from testbed.data.rows import Rows
from testbed.data.samples import UNKNOWN, Dataset, Samples
from testbed.engine.checks import look_over_setting
from testbed.engine.stored import Outdated, Standing, standing_of, told_apart
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.entries.registry import Registry, registry_folders
from testbed.errors import DataError, ModelError, StoreError
from testbed.models.classes import columns_for, lacks_classes
from testbed.options import RunOptions, stored_model_name
from testbed.store.database import Store


@dataclass
class Pair:
    """One model on one setting, and what is to be done about it."""

    model: Model
    setting: EvalSetting  # as declared
    action: str = "run"  # run, derive, done, fail
    stored_model: str = ""  # the name results go under: with a checkpoint it is not the entry's own
    samples: Samples | None = None
    rows: Rows | None = None
    asked: bool = True  # False for a parent that is run only because a derived setting needs it
    error: str = ""
    warning: str = ""
    reason: str = ""  # why a stored result is made again

    @property
    def label(self) -> str:
        return f"{self.stored_model} on {self.setting.name}"

    @property
    def n_images(self) -> int:
        return len(self.rows) if self.rows is not None else 0

    @property
    def fingerprint(self) -> str:
        """Of the data; empty where it could not be opened."""
        return self.samples.fingerprint if self.samples is not None else ""

    @property
    def labels(self) -> np.ndarray:
        """Of the whole dataset, in its own numbering."""
        return self.samples.targets if self.samples is not None else np.empty(0, dtype=np.int64)


@dataclass
class Plan:
    """All pairs of a run, each with its action. A pair that others read their logits from stands before them."""

    pairs: list[Pair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what the user should know before the work begins

    def having(self, action: str) -> list[Pair]:
        return [p for p in self.pairs if p.action == action]

    def parent_of(self, pair: Pair) -> Pair | None:
        return self._by_name.get((pair.stored_model, pair.setting.logits_from))

    def children_of(self, parent: Pair) -> list[Pair]:
        """Pairs that are derived from this one's logits."""
        return self._children.get((parent.stored_model, parent.setting.name), [])

    @cached_property
    def _by_name(self) -> dict[tuple[str, str | None], Pair]:
        return {(p.stored_model, p.setting.name): p for p in self.pairs}

    @cached_property
    def _children(self) -> dict[tuple[str, str | None], list[Pair]]:
        children: dict[tuple[str, str | None], list[Pair]] = {}
        for pair in self.having("derive"):
            children.setdefault((pair.stored_model, pair.setting.logits_from), []).append(pair)
        return children

    def estimated_seconds(self, speeds: dict[str, float]) -> float | None:
        """From stored throughput; None where none of the models has been run before."""
        timed = [p for p in self.having("run") if p.stored_model in speeds]
        if not timed:
            return None
        known = sum(p.n_images / speeds[p.stored_model] for p in timed)
        images = sum(p.n_images for p in timed)
        # Models that were never run are taken to be as fast as the others.
        return known * sum(p.n_images for p in self.having("run")) / max(images, 1)


def make_plan(
    registry: Registry,
    store: Store,
    models: Sequence[str],
    eval_settings: Sequence[str],
    options: RunOptions,
    overwrite: bool = False,
    outdated: Outdated | None = None,
) -> Plan:
    """Every pair that was asked for once, and the pairs whose logits they need, which stand before them."""
    entries = [registry.model(name) for name in registry.expand_models(models)]
    asked = _with_controls(registry, registry.expand_eval_settings(eval_settings))
    if options.checkpoint is not None and len(entries) != 1:
        raise StoreError(f"--checkpoint is for one model at a time, got {len(entries)}")
    plan = Plan()
    for entry in entries:
        stored = plain = stored_model_name(entry.name, options.checkpoint)
        if options.checkpoint is not None:
            stored = told_apart(store, plain, options.checkpoint)
        if stored != plain:
            plan.notes.append(f"{options.checkpoint} is not the file that {plain} was run with: it goes under {stored}")
        standing = standing_of(registry, store, stored, options, outdated)
        plan.pairs += _pairs_of(registry, entry, stored, asked, standing, overwrite)
    plan.pairs = _without_idle_parents(plan.pairs)
    _open_data(plan, registry, options)
    return plan


def _pairs_of(
    registry: Registry, model: Model, stored_model: str, asked: Sequence[str], standing: Standing, overwrite: bool
) -> list[Pair]:
    """The pairs of one model.

    Replacing a result deletes what was derived from it, since those rows point to its logits. So stored results that
    read a setting which is made again are derived again too, whether they were asked for or not (`followers`).
    """
    alone = _cheaper_alone(registry, asked, {name for name, _ in standing.done})
    again = asked if overwrite else _replaced(registry, model, asked, alone, standing.completed - standing.done)
    followers = _followers(registry, again, standing.completed) if again else []
    wanted, anew = [*asked, *followers], {*(asked if overwrite else ()), *followers}
    pairs = []
    for name in _with_parents(registry, model, wanted, alone):
        pair = Pair(model, registry.eval_setting(name), stored_model=stored_model, asked=name in wanted)
        key = (pair.setting.name, pair.setting.version)
        pair.reason = standing.reasons.get(key, "")
        if key in standing.done and name not in anew:
            pair.action = "done"
        elif _derivable(pair) and name not in alone:
            pair.action = "derive"
        pairs.append(pair)
    return pairs


def _replaced(
    registry: Registry, model: Model, asked: Sequence[str], alone: Collection[str], short: Collection[tuple[str, int]]
) -> list[str]:
    """Settings that will be made again because their stored result is in `short`: less precise, or without arrays."""
    names = _with_parents(registry, model, asked, alone) if short else []
    return [name for name in names if (name, registry.eval_setting(name).version) in short]


def _with_controls(registry: Registry, asked: Sequence[str]) -> list[str]:
    """The settings that were asked for, then their controls, without which they say nothing."""
    controls = [control for name in asked for control in registry.eval_setting(name).controls]
    return list(dict.fromkeys([*asked, *controls]))


def _derivable(pair: Pair) -> bool:
    """Whether the result can be read from the stored logits of another setting.

    Not where the model's own classify counts votes among the sublist's classes only, and not where the model lacks
    classes that only the parent asks for: the parent's logits then do not hold the answer.
    """
    setting = pair.setting
    picks_classes = "class_sublist" in pair.model.classify_arguments or lacks_classes(pair.model)
    return setting.logits_from is not None and not (picks_classes and setting.class_sublist is not None)


def _cheaper_alone(registry: Registry, asked: Sequence[str], stored: Collection[str]) -> set[str]:
    """Settings that take some images of a parent which is neither asked for nor stored.

    A tenth of the images is then a tenth of the work. They are run with the noise they have in the parent.
    """
    images: dict[str, dict[str, int]] = {}  # parent -> child -> how many of its images
    at_hand = {*asked, *stored}
    for name in asked:
        setting = registry.eval_setting(name)
        rows, parent = setting.idx_subsample_list, setting.logits_from
        picks_images = parent is not None and rows is not None and setting.class_sublist is None
        if picks_images and not at_hand & set(_ancestors(registry, name)):
            images.setdefault(str(parent), {})[name] = len(rows or ())
    return {
        name
        for parent, children in images.items()
        if sum(children.values()) < (registry.runnable(parent).size or 0)
        for name in children
    }


def _ancestors(registry: Registry, name: str) -> Iterator[str]:
    """The setting whose logits this one reads, and those before it."""
    while (parent := registry.eval_setting(name).logits_from) is not None:
        yield parent
        name = parent


def _with_parents(registry: Registry, model: Model, asked: Sequence[str], alone: Collection[str]) -> list[str]:
    """The settings, each after the one whose logits it reads. Those in `alone` are run by themselves."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        setting = registry.eval_setting(name)
        if setting.logits_from is not None and _derivable(Pair(model, setting)) and name not in alone:
            visit(setting.logits_from)
        if name not in ordered:
            ordered.append(name)

    for name in asked:
        visit(name)
    return ordered


def _followers(registry: Registry, asked: Sequence[str], completed: set[tuple[str, int]]) -> list[str]:
    """Stored results derived from what is run again: they are derived again with it."""
    stored = {name for name, _ in completed}
    followers: list[str] = []
    for name, setting in registry.eval_settings.entries.items():
        if name in stored and name not in asked and setting.logits_from in {*asked, *followers}:
            followers.append(name)
    return followers


def _without_idle_parents(pairs: Sequence[Pair]) -> list[Pair]:
    """A parent nobody asked for stays only while a child that is still to be derived needs it."""
    needed: set[tuple[str, str | None]] = set()
    kept: list[Pair] = []
    for pair in reversed(pairs):  # a child stands after its parent, so it is seen first and can ask for it
        if pair.asked or (pair.stored_model, pair.setting.name) in needed:
            kept.append(pair)
            if pair.action == "derive":
                needed.add((pair.stored_model, pair.setting.logits_from))
    return kept[::-1]


def _open_data(plan: Plan, registry: Registry, options: RunOptions) -> None:
    """List the images of every setting that has something to run; a missing dataset fails its own pairs only."""
    opened: dict[Dataset, Samples | DataError] = {}
    rows: dict[tuple[object, ...], Rows] = {}  # a thousand settings may take the same images
    problems: dict[str, Sequence[str]] = {}  # by setting: what is wrong with the classes of its images
    for pair in plan.having("run"):
        setting = registry.runnable(pair.setting.name)
        assert setting.dataset is not None
        if setting.dataset not in opened:
            opened[setting.dataset] = _opened(setting.dataset, options)
        samples = opened[setting.dataset]
        try:
            if isinstance(samples, DataError):
                raise samples
            pair.samples = samples
            key = (setting.dataset, *setting.choice)
            if key not in rows:
                rows[key] = setting.rows(samples, options.limit)
            missing = (columns_for(pair.model, setting) or ()).count(UNKNOWN)
        except (DataError, ModelError) as error:
            pair.action, pair.error = "fail", str(error)
            continue
        pair.rows = rows[key]
        if setting.name not in problems:
            problems[setting.name] = look_over_setting(registry, setting.name, samples).problems
        pair.warning = "; ".join([*_unexpected_size(setting, pair.n_images, options), *problems[setting.name]])
        if missing:
            lacking = f"the model lacks {missing} of the setting's classes, which are never predicted"
            pair.warning = "; ".join(text for text in (pair.warning, lacking) if text)


def _opened(dataset: Dataset, options: RunOptions) -> Samples | DataError:
    try:
        return dataset.open([Path(root) for root in options.data_roots])
    except DataError as error:
        return with_hint(error, dataset, registry_folders(options.registry))


def _unexpected_size(setting: EvalSetting, n_images: int, options: RunOptions) -> list[str]:
    if setting.size is None or options.limit is not None or setting.size == n_images:
        return []
    return [f"expected {setting.size} images, found {n_images}"]
