"""Models on settings: what is to be done about each pair of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from testbed.data.rows import Rows
from testbed.data.samples import Samples
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.made_of import Ensemble
from testbed.entries.model import Model

_NAMED = 3  # models that are named in one line
_IMAGENET_CLASSES = 1000


@dataclass
class Pair:
    """One model on one setting, and what is to be done about it."""

    model: Model
    setting: EvalSetting  # as declared
    action: str = "run"  # run, derive, done, fail
    stored_model: str = ""  # the name results go under: with a checkpoint it is not the entry's own
    samples: Samples | None = None
    rows: Rows | None = None
    asked: bool = True  # False for one that is run only because a derived one needs it
    follows: bool = False  # whether it is made only because the one whose logits it reads is made again
    later: bool = False  # another shard's: begun when nothing of the own share is left to begin
    error: str = ""
    warning: str = ""
    data_warning: str = ""  # the part of it that is about the images, and the same for every model
    reason: str = ""  # why a stored result is made again
    replaces: int | None = None  # the evaluation that stood when the plan was made

    @property
    def label(self) -> str:
        return f"{self.stored_model} on {self.setting.name}"

    @property
    def key(self) -> tuple[str, str, int]:
        """Model, setting and version, under which its result is stored."""
        return self.stored_model, self.setting.name, self.setting.version

    @property
    def reads(self) -> list[tuple[str, str]]:
        """Model and setting of the stored logits that it is made from; none where it has a forward pass."""
        if isinstance(self.model.made_of, Ensemble):
            return [(member, self.setting.name) for member in self.model.made_of.members]
        return [(self.stored_model, self.setting.logits_from)] if self.setting.logits_from is not None else []

    @property
    def n_images(self) -> int:
        return len(self.rows) if self.rows is not None else 0

    @property
    def n_classes(self) -> int:
        """How many columns the logits will have, as far as the setting tells: those of its classes, or ImageNet's."""
        if self.setting.class_sublist is not None:
            return len(self.setting.class_sublist)
        return (self.samples.num_classes if self.samples is not None else None) or _IMAGENET_CLASSES

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
    share: str = ""  # which shard it is the plan of, in words
    shared: bool = False  # whether other machines may take what is not begun

    def having(self, action: str) -> list[Pair]:
        return [p for p in self.pairs if p.action == action]

    def parents_of(self, pair: Pair) -> list[Pair]:
        """The pairs of this plan whose logits it reads; what is stored and stands need not be among them."""
        return [self._by_name[key] for key in pair.reads if key in self._by_name]

    def children_of(self, parent: Pair) -> list[Pair]:
        """Pairs that are derived from this one's logits."""
        return self._children.get((parent.stored_model, parent.setting.name), [])

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Pair]:
        return {(p.stored_model, p.setting.name): p for p in self.pairs}

    @cached_property
    def _children(self) -> dict[tuple[str, str], list[Pair]]:
        children: dict[tuple[str, str], list[Pair]] = {}
        for pair in self.having("derive"):
            for key in pair.reads:
                children.setdefault(key, []).append(pair)
        return children

    def made_again(self) -> list[str]:
        """Why stored results are made again: a line for each reason and setting, with the models."""
        models: dict[tuple[str, str, str], list[str]] = {}
        for pair in self.pairs:
            combined = pair.action == "derive" and isinstance(pair.model.made_of, Ensemble)
            if pair.reason and (pair.action == "run" or combined):
                how = "combined" if combined else "run"
                models.setdefault((pair.setting.name, how, pair.reason), []).append(pair.stored_model)
        told = []
        for (setting, how, reason), names in models.items():
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            told.append(f"{setting}: {how} again for {', '.join(names[:_NAMED])}{more}: {reason}")
        return told

    def warned(self) -> list[str]:
        """What is wrong with the data of settings that are to be run: a line for each, before the work begins."""
        lines = (
            f"warning: {pair.setting.name}: {pair.data_warning}" for pair in self.having("run") if pair.data_warning
        )
        return list(dict.fromkeys(lines))

    def estimated_seconds(self, speeds: dict[str, float]) -> float | None:
        """From stored throughput; None where none of the models has been run before."""
        timed = [p for p in self.having("run") if p.stored_model in speeds]
        if not timed:
            return None
        known = sum(p.n_images / speeds[p.stored_model] for p in timed)
        images = sum(p.n_images for p in timed)
        # Models that were never run are taken to be as fast as the others.
        return known * sum(p.n_images for p in self.having("run")) / max(images, 1)
