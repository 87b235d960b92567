"""The sets a question is about: which stored evaluations of a model the words on the command line stand for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from testbed.data.autoeval import group_of
from testbed.entries.registry import Registry
from testbed.errors import StoreError, UnknownName, near_names, near_or_some
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation, Provenance
from testbed.store.find import evaluation_by_id, find, meant_variant, root_of
from testbed.store.measuring import outputs_of, refuse_answers
from testbed.store.names import model_names
from testbed.store.outputs import Outputs
from testbed.studies.labelfree.outputs import LabelFreeError, checked

_GLOB = "*?["


@dataclass(frozen=True)
class Asked:
    """What the user typed that a command which mends something must say again."""

    models: tuple[str, ...]
    options: tuple[str, ...] = ()  # such as --db FILE


@dataclass(frozen=True, eq=False)
class StoredSet:
    """One evaluation of a model, and the group its error is told with."""

    name: str
    group: str
    evaluation: Evaluation


class StoredModel:
    """The completed evaluations of one model, by setting.

    Only own ones: published results have no logits. A variant and version that are not said mean what they mean in
    `testbed.store.find`.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        name: str,
        variant: str | None = None,
        asked: Asked | None = None,
    ) -> None:
        self.name = name
        self._asked = asked or Asked((name,))
        self.variant = meant_variant(store, [name], source=OWN) if variant is None else variant
        self._store, self._registry = store, registry
        self._by_setting = {e.eval_setting: e for e in find(store, [name], variant=self.variant, source=OWN)}
        self._parents: dict[int, Evaluation] = {}  # those asked for

    def find(self, words: Sequence[str]) -> list[StoredSet]:
        """The stored sets of these names, globs, groups and tags.

        A set's group is the word that first named it; sets of `autoeval:FOLDER` are grouped as
        testbed.data.autoeval says.
        """
        sets: dict[str, StoredSet] = {}
        for word in words:
            names = self._named(word)
            for name in names:
                sets.setdefault(name, StoredSet(name, _group(word, name), self._by_setting[name]))
        return list(sets.values())

    def one(self, name: str) -> StoredSet:
        sets = self.find([name])
        if len(sets) != 1:
            raise UnknownName(f"--source: expected one setting, '{name}' stands for {len(sets)}")
        return sets[0]

    def declared_and_stored(self, word: str) -> tuple[int, int]:
        """How many settings of the registry a word stands for, and how many of these have results."""
        declared = self._declared(word)
        return len(declared), sum(name in self._by_setting for name in declared)

    def eval_command(self, settings: Iterable[str], record: str = "") -> str:
        """The call of eval.py that makes results on these settings beside those at hand, with the user's own words."""
        words = ["python", "eval.py", "--models", *self._asked.models]
        if self._checkpoint:
            words = [*words[:3], self.name.rpartition("@")[0], "--checkpoint", self._checkpoint]
        words += ["--eval-settings", *settings, *(["--record", record] if record else [])]
        # A variant is spelled as the options that made it: limit=500,seed=3.
        for part in self.variant.split(",") if self.variant else ():
            option, _, value = part.partition("=")
            words += [f"--{option}", value]
        return shlex.join([*words, *self._asked.options])

    @property
    def _checkpoint(self) -> str | None:
        """The weights file that a model stored as NAME@FILE was evaluated with."""
        return next((e.provenance.checkpoint for e in self._by_setting.values()), None)

    def _declared(self, word: str) -> list[str]:
        return [word] if word in self._by_setting else _declared(self._registry, word)

    def _named(self, word: str) -> list[str]:
        if word in self._by_setting:
            return [word]
        declared = self._declared(word)
        matching = [n for n in self._by_setting if fnmatchcase(n, word)] if any(c in word for c in _GLOB) else []
        names = [n for n in dict.fromkeys([*declared, *matching]) if n in self._by_setting]
        if names:
            return names
        if not declared:
            raise UnknownName(f"no eval setting '{word}' of {self.name}{near_or_some(word, self._by_setting)}")
        raise StoreError(
            f"{self.name} has no results on '{word}'{self._of_variant}: `{self.eval_command([word])}` makes them"
        )

    @property
    def _of_variant(self) -> str:
        return f" with {self.variant}" if self.variant else ""

    def outputs(self, wanted: StoredSet) -> Outputs:
        outputs = outputs_of(self._store, self._registry, wanted.evaluation)
        refuse_answers(outputs, wanted.evaluation.label)
        return checked(outputs)

    def records(self, wanted: StoredSet) -> frozenset[str]:
        """Which arrays lie beside the set's logits."""
        return frozenset(self._provenance(wanted).recorded)

    def rotation_head(self, wanted: StoredSet) -> str:
        """The checksum of the head that made the set's rotation logits; empty where it was not kept."""
        return self._provenance(wanted).rotation_head.get("sha256", "")

    def _provenance(self, wanted: StoredSet) -> Provenance:
        """Where the arrays come from; those of a derived set lie with its parent's."""

        # Kept by id: a thousand derived sets share a parent, and each would be a query.
        def parent_of(id_: int) -> Evaluation:
            if id_ not in self._parents:
                self._parents[id_] = evaluation_by_id(self._store, id_)
            return self._parents[id_]

        return root_of(wanted.evaluation, parent_of).provenance


def stored_models(store: Store, registry: Registry, words: Iterable[str], options: Sequence[str] = ()) -> list[str]:
    """The models with a row in the database that these names, globs, groups and tags stand for.

    options: what the user typed that a command which mends something must say again, such as --db FILE.
    """
    known = model_names(store)
    names: list[str] = []
    for word in words:
        try:
            declared = registry.expand_models([word])
        except UnknownName:
            declared = []
        matching = [n for n in known if n == word or fnmatchcase(n, word)]
        stored = [n for n in dict.fromkeys([*declared, *matching]) if n in known]
        if not stored:
            command = shlex.join(["python", "db.py", "--list-models-db", *options])
            hint = near_names(word, known) or f"; `{command}` lists those that have results"
            raise UnknownName(f"no model '{word}' in the {store.where}{hint}")
        names += stored
    return list(dict.fromkeys(names))


def meant_settings(registry: Registry, words: Iterable[str]) -> list[str]:
    """Names and globs as `testbed.store.find` takes them, which knows no groups, tags or setting strings."""
    return list(dict.fromkeys(name for word in words for name in [word, *_declared(registry, word)]))


def _declared(registry: Registry, word: str) -> list[str]:
    """The settings of the registry that a word stands for; a stored one may be declared no longer."""
    try:
        return registry.expand_eval_settings([word])
    except UnknownName:
        return []


def _group(word: str, name: str) -> str:
    # A folder of a benchmark is one test set of the paper, whatever word named it here.
    kind, _, path = name.partition(":")
    return group_of(path, named_by_itself=word == name) if kind == "autoeval" else word


def partly_stored(models: Sequence[StoredModel], words: Iterable[str]) -> list[str]:
    """Which words stand for more settings than there are results of."""
    partly: dict[tuple[str, int, int], list[str]] = {}  # the models of each word and counts
    for word in dict.fromkeys(words):
        for model in models:
            declared, stored = model.declared_and_stored(word)
            if 0 < stored < declared:
                partly.setdefault((word, stored, declared), []).append(model.name)
    return [
        f"{stored} of {declared} sets of {word} are stored"
        + ("" if len(names) == len(models) else f" for {', '.join(names)}")
        for (word, stored, declared), names in partly.items()
    ]


def shared_sets(models: Sequence[StoredModel], words: Sequence[str]) -> list[list[StoredSet]]:
    """The sets that all models have, each as one evaluation per model."""
    by_model = [{s.name: s for s in model.find(words)} for model in models]
    return [[sets[name] for sets in by_model] for name in by_model[0] if all(name in sets for sets in by_model)]


def predictions_of(models: Sequence[StoredModel], sets: Sequence[StoredSet]) -> tuple[np.ndarray, np.ndarray]:
    """(models, n) predicted classes on one set, and its labels; the models must have seen the same images."""
    # One model at a time: only predictions are kept, not the logits of all models.
    rows: list[np.ndarray] = []
    for model, one in zip(models, sets, strict=True):
        outputs = model.outputs(one)
        if not rows:
            ids, targets, columns = outputs.ids, outputs.targets, outputs.columns
        elif not np.array_equal(ids, outputs.ids):
            raise LabelFreeError(f"{models[0].name} and {model.name} were run on different images of {one.name}")
        elif outputs.columns != columns:
            raise LabelFreeError(
                f"agreement needs models of the same classes: {models[0].name} has {columns}, "
                f"{model.name} has {outputs.columns}"
            )
        rows.append(outputs.predictions)
    return np.stack(rows), targets
