"""Observers: decisions of people and networks among the 16 categories, imported, exported and compared.

Imported answers are stored as logits of the 16 categories, so that everything that reads, measures, plots or exports
a model's logits works for observers too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.data.rows import Rows
from testbed.data.writing import safe_name
from testbed.entries.checks import check_name
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import StoreError, in_words
from testbed.metrics import consistency
from testbed.metrics.categories16 import decide, picture, places
from testbed.metrics.estimate import Estimate
from testbed.store.database import Store
from testbed.store.evaluation import OWN, Evaluation
from testbed.store.find import find, nothing_found
from testbed.store.formats.decisions import Decisions, Trial, answers, read_folder, write_csv
from testbed.store.measuring import measure, outputs_of
from testbed.store.names import matches
from testbed.store.outputs import Outputs
from testbed.store.write import add_eval_setting, write_outputs

PEOPLE = "subject-*"  # how the published files name people
SOURCE = "decisions"  # default suffix of imported networks


# ---- import ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Imported:
    """An imported observer: its stored name and its number of trials."""

    name: str
    trials: int


def import_decisions(
    store: Store, registry: Registry, folder: Path, setting: str, source: str = "", override: bool = False
) -> list[Imported]:
    """Store the observers of a folder as if they were models that were run on the setting.

    People keep their names. A network is stored as name@source, so that it is never confused with a run made here.
    """
    entry = registry.eval_setting(setting)
    # The metrics of decisions (Accuracy16, CueConflict) are the ones that have conditions.
    if not hasattr(entry.metrics_fn, "conditions"):
        raise StoreError(f"--import-decisions: '{setting}' is not measured by decisions among the 16 categories")
    # All are read and measured before the first is stored: a folder comes in whole or not at all.
    read = {check_name("observer", _stored_name(d, source)): d for d in read_folder(folder)}
    measured = {name: _measured(entry, _as_outputs(name, decisions)) for name, decisions in read.items()}
    add_eval_setting(store, registry, setting)
    imported = []
    store.begin_run()
    try:
        for name, (outputs, metrics) in measured.items():
            decisions = read[name]
            tags = ["observer", "human"] if decisions.is_person else ["observer"]
            store.ensure_model(name, None if decisions.is_person else decisions.observer, tags)
            place = {"decisions": list(decisions.files), "source": source or None, "imported": str(folder)}
            write_outputs(store, name, (setting, entry.version), outputs, metrics, override=override, provenance=place)
            imported.append(Imported(name, len(decisions.trials)))
    finally:
        store.end_run()
    return imported


def _stored_name(decisions: Decisions, source: str) -> str:
    return decisions.observer if decisions.is_person else f"{decisions.observer}@{source or SOURCE}"


def _measured(entry: EvalSetting, outputs: Outputs) -> tuple[Outputs, dict[str, Estimate]]:
    try:
        return outputs, measure(entry, None, outputs)
    except Exception as error:  # pictures that the metric knows nothing of
        raise StoreError(f"{outputs.model} on {entry.name} cannot be measured: {in_words(error)}") from error


def _as_outputs(name: str, decisions: Decisions) -> Outputs:
    """Answers as logits of the 16 categories; the other columns of the file are kept as extra arrays."""
    trials = decisions.trials
    rows = Rows(np.array([t.id for t in trials]), places(t.category for t in trials), np.arange(len(trials)))
    trial_columns = {
        "session": np.array([t.session for t in trials]),
        "trial": np.array([t.trial for t in trials]),
        "reaction_seconds": np.array([t.seconds for t in trials]),
        "condition": np.array([t.condition for t in trials]),
        "image_name": np.array([t.image for t in trials]),
    }
    return Outputs(rows, answers(trials), trial_columns, name)


# ---- export ----------------------------------------------------------------------------------------------


def export_decisions(
    store: Store,
    registry: Registry,
    setting: str,
    folder: Path,
    models: Sequence[str] | None = None,
    aggregation: str = "mean",
) -> list[Path]:
    """One CSV per observer in the published format, for model-vs-human's own tools."""
    written = []
    for evaluation in _evaluations(store, setting, models):
        path = folder / f"{safe_name(setting)}_{safe_name(evaluation.model)}_session-1.csv"
        write_csv(path, evaluation.model, trials_of(store, registry, evaluation, aggregation))
        written.append(path)
    return written


def trials_of(store: Store, registry: Registry, evaluation: Evaluation, aggregation: str = "mean") -> list[Trial]:
    """The decisions of a stored evaluation as trials; imported ones with the session, time and names of the files."""
    outputs = outputs_of(store, registry, evaluation)
    try:
        responses = decide(outputs.logits, aggregation).tolist()
        shown = [picture(str(id_)) for id_ in outputs.ids]
    except ValueError as error:
        raise StoreError(f"{evaluation.model} on {evaluation.eval_setting}: {error}") from error
    extras = outputs.extras
    trials = []
    for row, (id_, what, response) in enumerate(zip(outputs.ids, shown, responses, strict=True)):
        if "image_name" in extras:
            when = (str(extras["session"][row]), int(extras["trial"][row]), float(extras["reaction_seconds"][row]))
            condition, image = str(extras["condition"][row]), str(extras["image_name"][row])
        else:
            when = ("1", row + 1, math.nan)  # a model has one session and no reaction time
            image = str(id_).rpartition("/")[2]
            condition = "NaN" if image == what.id else what.condition  # as model-vs-human writes it
        trials.append(Trial(*when, response, what.category, condition, image))
    return trials


def _evaluations(store: Store, setting: str, models: Sequence[str] | None) -> list[Evaluation]:
    """The own evaluation of each model on the setting. `models` may be globs; each must match a stored result."""
    for pattern in models or ():
        if not find(store, [pattern], [setting], source=OWN):
            raise nothing_found(store, [pattern], [setting], source=OWN)
    evaluations = find(store, models or None, [setting], source=OWN)
    if not evaluations:
        raise nothing_found(store, models or None, [setting], source=OWN)
    return evaluations


# ---- comparison ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """The observers of one set. `correct` has a boolean array (observers, pictures) for each condition."""

    setting: str
    observers: list[str]
    conditions: list[str]
    correct: list[np.ndarray]

    def rows(self, pattern: str) -> list[int]:
        """The rows of the observers whose names match."""
        return [i for i, name in enumerate(self.observers) if matches(name, [pattern])]


def panel(
    store: Store,
    registry: Registry,
    setting: str,
    models: Sequence[str] | None = None,
    aggregation: str = "mean",
    every_condition: bool = False,
) -> Panel:
    """All observers, on the pictures that every one of them has seen, in the conditions that the setting counts."""
    right: dict[str, dict[tuple[str, str], bool]] = {}
    for evaluation in _evaluations(store, setting, models):
        trials = trials_of(store, registry, evaluation, aggregation)
        shown = [picture(t.id) for t in trials]
        correct = np.array([t.response for t in trials]) == places(t.category for t in trials)
        right[evaluation.model] = {(p.condition, p.id): bool(hit) for p, hit in zip(shown, correct, strict=True)}
    # Consistency compares observers picture by picture, so only pictures that all have seen can be used.
    common = sorted(set.intersection(*(set(r) for r in right.values())))
    if not common:
        raise StoreError(f"the observers of '{setting}' have no picture in common")
    kept = getattr(registry.eval_setting(setting).metrics_fn, "conditions", ())
    conditions = list(dict.fromkeys(c for c, _ in common))
    if kept and not every_condition:
        conditions = [c for c in kept if c in conditions]
    conditions.sort(key=_numbers_first)
    names = list(right)
    arrays = [np.array([[right[n][key] for key in common if key[0] == c] for n in names]) for c in conditions]
    return Panel(setting, names, conditions, arrays)


def _numbers_first(condition: str) -> tuple[float, str]:
    """Sort key: conditions by their number, such as 50 for c50, then those without one."""
    digits = condition.lstrip("c").split("-")[0]
    try:
        return float(digits), condition
    except ValueError:
        return math.inf, condition


@dataclass(frozen=True)
class Comparison:
    """The consistency of a model with people or, for model=None, of people with each other."""

    model: str | None
    accuracy: float  # percent: over the counted trials of each set, then the mean over sets
    consistency: consistency.Consistency


def compare_with_people(
    panels: Sequence[Panel], people: str = PEOPLE, resamples: int = 1000, seed: int = 0
) -> list[Comparison]:
    """People with each other first, then every model that is in all sets. Averages are in the published order."""
    crowds = [p.rows(people) for p in panels]
    for p, crowd in zip(panels, crowds, strict=True):
        if not crowd:
            raise StoreError(f"no observer matches '{people}' on '{p.setting}': db.py --import-decisions takes some in")
    everywhere = set.intersection(*(set(p.observers) for p in panels))
    # A mean over sets needs the model in each of them.
    models = [n for n in panels[0].observers if n in everywhere and not matches(n, [people])]
    compared = []
    if all(len(crowd) > 1 for crowd in crowds):
        drawn = [
            consistency.draws(p.correct, consistency.among_people(crowd), resamples, seed)
            for p, crowd in zip(panels, crowds, strict=True)
        ]
        accuracy = np.mean([_accuracy(p, crowd) for p, crowd in zip(panels, crowds, strict=True)])
        compared.append(Comparison(None, float(accuracy), consistency.averaged(drawn)))
    for name in models:
        drawn, accuracies = [], []
        for p, crowd in zip(panels, crowds, strict=True):
            row = p.observers.index(name)
            drawn.append(consistency.draws(p.correct, consistency.with_people(row, crowd), resamples, seed))
            accuracies.append(_accuracy(p, [row]))
        compared.append(Comparison(name, float(np.mean(accuracies)), consistency.averaged(drawn)))
    return compared


def _accuracy(p: Panel, rows: Sequence[int]) -> float:
    return 100 * float(np.concatenate([c[list(rows)].ravel() for c in p.correct]).mean())
