"""The sets a question is about: which stored evaluations of a model the words on the command line stand for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from testbed.entries.registry import Registry
from testbed.errors import StoreError, UnknownName, near_names
from testbed.store import queries
from testbed.store.database import Store
from testbed.store.outputs import Outputs, outputs_of
from testbed.studies.labelfree.outputs import LabelFreeError, SetOutputs

_GLOB = "*?["


@dataclass(frozen=True, eq=False)
class StoredSet:
    """One evaluation of a model, and the group its error is told with."""

    name: str
    group: str
    evaluation: queries.Evaluation


class StoredModel:
    """The completed evaluations of one model, by setting."""

    def __init__(self, store: Store, registry: Registry, name: str, variant: str = "") -> None:
        self.name = name
        self._store, self._registry, self._variant = store, registry, variant
        found = queries.evaluations(store, model=name, variant=variant)
        # In order of version, so that the newest of a setting stays.
        self._by_setting = {e.eval_setting: e for e in found if e.status == "completed"}
        self._parents: dict[int, queries.Evaluation] = {}  # those asked for

    def find(self, words: Sequence[str]) -> list[StoredSet]:
        """The stored sets of these names, globs, groups and tags. A set's group is the word that first named it; sets
        of `autoeval:FOLDER` are grouped by the folder they lie in."""
        sets: dict[str, StoredSet] = {}
        for word in words:
            names = self._named(word)
            for name in names:
                sets.setdefault(name, StoredSet(name, _group(word, name), self._by_setting[name]))
        return list(sets.values())

    def one(self, name: str) -> StoredSet:
        found = self.find([name])
        if len(found) != 1:
            raise UnknownName(f"--source: expected one setting, '{name}' stands for {len(found)}")
        return found[0]

    def declared_and_stored(self, word: str) -> tuple[int, int]:
        """How many settings of the registry a word stands for, and how many of these have results."""
        declared = self._declared(word)
        return len(declared), sum(name in self._by_setting for name in declared)

    def eval_command(self, settings: Iterable[str], record: str = "", models: Sequence[str] = ()) -> str:
        """The call of eval.py that makes results on these settings beside those at hand."""
        words = ["python", "eval.py", "--models", *(models or [self.name])]
        if self._checkpoint:
            words = [*words[:3], self.name.rpartition("@")[0], "--checkpoint", self._checkpoint]
        words += ["--eval-settings", *settings, *(["--record", record] if record else [])]
        for part in self._variant.split(",") if self._variant else ():
            option, _, value = part.partition("=")
            words += [f"--{option}", value]
        return shlex.join(words)

    @property
    def _checkpoint(self) -> str | None:
        """The weights file that a model stored as NAME@FILE was evaluated with."""
        facts = next((e.row["provenance"] or {} for e in self._by_setting.values()), {})
        return facts.get("checkpoint")

    def _declared(self, word: str) -> list[str]:
        if word in self._by_setting:
            return [word]
        try:
            return self._registry.expand_eval_settings([word])
        except UnknownName:
            return []

    def _named(self, word: str) -> list[str]:
        if word in self._by_setting:
            return [word]
        declared = self._declared(word)
        matching = [n for n in self._by_setting if fnmatchcase(n, word)] if any(c in word for c in _GLOB) else []
        names = [n for n in dict.fromkeys([*declared, *matching]) if n in self._by_setting]
        if names:
            return names
        if not declared:
            raise UnknownName(f"no eval setting '{word}' of {self.name}{near_names(word, self._by_setting)}")
        raise StoreError(
            f"{self.name} has no results on '{word}'{self._of_variant}: `{self.eval_command([word])}` makes them"
        )

    @property
    def _of_variant(self) -> str:
        return f" with {self._variant}" if self._variant else ""

    def stored_outputs(self, wanted: StoredSet) -> Outputs:
        return outputs_of(self._store, self._registry, wanted.evaluation)

    def outputs(self, wanted: StoredSet) -> SetOutputs:
        """Read from the store; what is mapped into memory goes with the object."""
        stored = self.stored_outputs(wanted)
        extras = {n: np.asarray(stored.extras[n]) for n in ("features", "rotation") if n in stored.extras}
        return SetOutputs(np.asarray(stored.logits), stored.samples.targets, **extras)

    def records(self, wanted: StoredSet) -> frozenset[str]:
        """Which arrays lie beside the set's logits."""
        return frozenset(self._provenance(wanted).get("recorded", ()))

    def rotation_head(self, wanted: StoredSet) -> str:
        """The checksum of the head that made the set's rotation logits; empty where it was not kept."""
        return str(self._provenance(wanted).get("rotation_head", {}).get("sha256", ""))

    def _provenance(self, wanted: StoredSet) -> dict[str, Any]:
        """Where the arrays come from; those of a derived set lie with its parent's."""
        evaluation = wanted.evaluation
        while (parent := evaluation.row["derived_from_id"]) is not None:
            if parent not in self._parents:
                (self._parents[parent],) = queries.evaluations(self._store, id=parent)
            evaluation = self._parents[parent]
        return evaluation.row["provenance"] or {}


def stored_models(store: Store, registry: Registry, words: Iterable[str]) -> list[str]:
    """The models with a row in the database that these names, globs, groups and tags stand for."""
    known = queries.model_names(store)
    names: list[str] = []
    for word in words:
        try:
            declared = registry.expand_models([word])
        except UnknownName:
            declared = []
        matching = [n for n in known if n == word or fnmatchcase(n, word)]
        found = [n for n in dict.fromkeys([*declared, *matching]) if n in known]
        if not found:
            hint = near_names(word, known) or "; `python db.py --list-models-db` lists those that have results"
            raise UnknownName(f"no model '{word}' in the {store.where}{hint}")
        names += found
    return list(dict.fromkeys(names))


def _group(word: str, name: str) -> str:
    if name.startswith("autoeval:") and "/" in name:
        return name.split("/")[-2]
    return word


def partly_stored(models: Sequence[StoredModel], words: Iterable[str]) -> list[str]:
    """Which words stand for more settings than there are results of."""
    found: dict[tuple[str, int, int], list[str]] = {}
    for word in dict.fromkeys(words):
        for model in models:
            declared, stored = model.declared_and_stored(word)
            if 0 < stored < declared:
                found.setdefault((word, stored, declared), []).append(model.name)
    return [
        f"{stored} of {declared} sets of {word} are stored"
        + ("" if len(names) == len(models) else f" for {', '.join(names)}")
        for (word, stored, declared), names in found.items()
    ]


def shared_sets(models: Sequence[StoredModel], words: Sequence[str]) -> list[list[StoredSet]]:
    """The sets that all models have, each as one evaluation per model."""
    found = [{s.name: s for s in model.find(words)} for model in models]
    return [[sets[name] for sets in found] for name in found[0] if all(name in sets for sets in found)]


def predictions_of(models: Sequence[StoredModel], sets: Sequence[StoredSet]) -> tuple[np.ndarray, np.ndarray]:
    """(models, n) predicted classes on one set, and its labels, -1 where unknown; the models must have seen the same
    images."""
    rows, ids, targets, classes = [], None, None, 0
    for model, one in zip(models, sets, strict=True):
        stored = model.stored_outputs(one)
        if ids is None:
            ids, targets, classes = stored.samples.ids, stored.samples.targets, stored.logits.shape[1]
        elif not np.array_equal(ids, stored.samples.ids):
            raise LabelFreeError(f"{models[0].name} and {model.name} were run on different images of {one.name}")
        elif stored.logits.shape[1] != classes:
            raise LabelFreeError(
                f"agreement needs models of the same classes: {models[0].name} has {classes}, "
                f"{model.name} has {stored.logits.shape[1]}"
            )
        rows.append(stored.logits.argmax(axis=1))
    assert targets is not None
    return np.stack(rows), targets
