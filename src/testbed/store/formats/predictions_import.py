"""Answers that were made elsewhere, by a multimodal model or an API, as a result of a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from testbed.data import writing
from testbed.data.labels import class_indices, not_understood
from testbed.data.rows import Rows, places_in
from testbed.data.samples import Samples
from testbed.entries.checks import check_name, shortened
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.registry import Registry
from testbed.errors import DataError, StoreError, in_words
from testbed.metrics.answers import ANSWERS, NO_ANSWER, answer_logits
from testbed.metrics.estimate import Estimate
from testbed.metrics.labels import COLUMNS
from testbed.store.database import Store
from testbed.store.evaluation import OWN
from testbed.store.find import EVERY, find
from testbed.store.formats.predictions import Prediction, read_predictions
from testbed.store.measuring import measure
from testbed.store.outputs import Outputs
from testbed.store.write import add_eval_setting, refuse_stored, write_outputs

REFUSE, WRONG = "refuse", "wrong"  # what is done about images without an answer
_FROM_ONE = 0.01  # how far the sum of rounded probabilities may be from 1
_LOWEST = 1e-12  # a probability of 0 would have no logit
_MOST_NAMED = 3


@dataclass(frozen=True)
class ImportedPredictions:
    """What was taken in: the stored name, and what it has."""

    model: str
    images: int
    unanswered: int
    with_probabilities: bool
    metrics: Mapping[str, Estimate]


def import_predictions(
    store: Store,
    registry: Registry,
    path: Path,
    setting: str,
    source: str,
    *,
    model: str = "",
    missing: str = REFUSE,
    override: bool = False,
    data_roots: Sequence[Path] = (),
) -> ImportedPredictions:
    """Store the answers of a table as a model that was run on the whole setting.

    It is stored as model@source, or as source where no model is named, so that it is never confused with a run.
    """
    name = check_name("model", f"{model}@{source}" if model else source)
    entry = registry.runnable(setting)
    _refuse_owned(store, registry, name, entry)
    if not override:
        refuse_stored(store, name, (entry.name, entry.version))
    if entry.dataset is None or entry.targets_are != COLUMNS:
        raise StoreError(f"'{setting}': expected a setting whose labels are classes, which answers can name")
    samples = entry.dataset.open(data_roots)
    rows = entry.rows(samples)
    said = _matched(read_predictions(path), rows)
    outputs = _outputs(entry, samples, rows, said, name, missing)
    unanswered = _unanswered(outputs)
    try:
        metrics = measure(registry.eval_setting(setting), None, outputs)
    except Exception as error:  # metrics functions are the users' own code
        raise StoreError(f"{name} on {setting} cannot be measured: {in_words(error)}") from error
    warnings = [] if entry.size in (None, len(rows)) else [f"expected {entry.size} images, found {len(rows)}"]
    warnings += [f"{unanswered} image(s) without an answer count as wrong"] if unanswered else []
    add_eval_setting(store, registry, setting)
    store.begin_run()
    try:
        with writing.writing_to(store.folder):
            write_outputs(
                store,
                name,
                (entry.name, entry.version),
                outputs,
                metrics,
                override=override,
                warning="; ".join(warnings) or None,
                dataset_fingerprint=samples.fingerprint,
                provenance={"imported": str(path), "source": source, "answers": _kind(outputs)},
            )
    finally:
        store.end_run()
    return ImportedPredictions(name, len(rows), unanswered, ANSWERS not in outputs.extras, metrics)


def _refuse_owned(store: Store, registry: Registry, name: str, setting: EvalSetting) -> None:
    """Answers of others must not stand in the place of a run, made or to be made."""
    stored = find(store, [name], [setting.name], EVERY, EVERY, OWN)
    if name in registry.models.entries or any(not evaluation.imported for evaluation in stored):
        raise StoreError(f"{name} is a model that is run here: expected another --source, or --model and --source")


def _kind(outputs: Outputs) -> str:
    return "classes alone" if ANSWERS in outputs.extras else "probabilities"


def _unanswered(outputs: Outputs) -> int:
    answers = outputs.extras.get(ANSWERS)
    return 0 if answers is None else int((answers == NO_ANSWER).all(axis=1).sum())


# ---- images ----------------------------------------------------------------------------------------------


def _matched(predictions: Sequence[Prediction], rows: Rows) -> dict[str, Prediction]:
    """Image of the setting -> what was said of it. An image is named by its path, its file or the file's stem."""
    images = _Images(rows)
    said: dict[str, Prediction] = {}
    for prediction in predictions:
        image = images.meant(prediction)
        if image in said:
            raise StoreError(f"{prediction.where}: {shortened(image)} has an answer already in {said[image].where}")
        said[image] = prediction
    return said


class _Images:
    """The images of a setting by the ways in which they may be named."""

    def __init__(self, rows: Rows) -> None:
        self._paths = set(rows.ids.tolist())
        self._folders = {path.rpartition("/")[0] for path in self._paths}
        self._files: dict[str, list[str]] = {}
        self._stems: dict[str, list[str]] = {}
        for path in sorted(self._paths):
            file = path.rpartition("/")[2]
            self._files.setdefault(file, []).append(path)
            self._stems.setdefault(_stem(file), []).append(path)

    def meant(self, prediction: Prediction) -> str:
        given = prediction.image.replace("\\", "/")
        parts = given.split("/")
        for start in range(len(parts)):  # also below a folder of another machine
            if (ending := "/".join(parts[start:])) in self._paths:
                return ending
        found = self._files.get(parts[-1]) or self._stems.get(_stem(parts[-1])) or []
        # x/1.png is no other name of y/1.png where x is a folder of the setting as well.
        folders = {"/".join(parts[start:-1]) for start in range(len(parts) - 1)}
        if not found or folders & self._folders:
            raise StoreError(f"{prediction.where}: expected images of the setting, got {shortened(prediction.image)}")
        if len(found) > 1:
            raise StoreError(
                f"{prediction.where}: {shortened(prediction.image)} may be {len(found)} images, such as {found[0]} and "
                f"{found[1]}: give their paths"
            )
        return found[0]


def _stem(file: str) -> str:
    return file.rpartition(".")[0] or file


# ---- classes ---------------------------------------------------------------------------------------------


class _Classes:
    """The classes that a setting's labels may be, by the words for them: names, wnids, folders or numbers."""

    def __init__(self, setting: EvalSetting, samples: Samples) -> None:
        sublist = setting.class_sublist
        if samples.num_classes is None and sublist is None:
            raise StoreError(f"'{setting.name}': expected a setting whose number of classes is known")
        self._imagenet = samples.label_space == "imagenet"
        self._folders = dict(samples.class_folders)
        self._number = samples.num_classes or max(sublist or ()) + 1
        self._known: dict[str, int] = {}
        self.columns = list(range(self._number)) if sublist is None else list(sublist)

    def number(self, word: str, where: str) -> int:
        if word not in self._known:
            self._known[word] = self._looked_up(word, where)
        return self._known[word]

    def _looked_up(self, word: str, where: str) -> int:
        if word in self._folders:
            return self._folders[word]
        alike = {label for folder, label in self._folders.items() if _plain(folder) == _plain(word)}
        if len(alike) == 1:
            return alike.pop()
        if word.isdecimal() and len(word) < 10:
            if int(word) < self._number:
                return int(word)
            raise StoreError(f"{where}: expected classes from 0 to {self._number - 1}, got {word}")
        if self._imagenet:
            try:
                numbers, space, _ = class_indices([word], "auto", where)
            except DataError as error:  # a name of several classes, or a wnid that is none of them
                raise StoreError(str(error)) from error
            if space == "imagenet":
                return numbers[word]
            raise StoreError(f"{where}: expected a class, got {shortened(word)}{not_understood([word])}")
        known = ", ".join(list(self._folders)[:_MOST_NAMED])
        names = f"a class folder ({known}, ...) or " if known else ""
        raise StoreError(f"{where}: expected {names}a number from 0 to {self._number - 1}, got {shortened(word)}")


def _plain(name: str) -> str:
    return name.replace("_", " ").replace("-", " ").lower()


# ---- outputs ---------------------------------------------------------------------------------------------


def _outputs(
    setting: EvalSetting, samples: Samples, rows: Rows, said: Mapping[str, Prediction], name: str, missing: str
) -> Outputs:
    """Logits of probabilities where every image has them, else of the answers alone."""
    classes = _Classes(setting, samples)
    probabilities, answers = _in_numbers(said, classes)
    ids = rows.ids.tolist()
    without = list(dict.fromkeys(image for image in ids if not answers.get(image)))
    if without and missing == REFUSE:
        named = ", ".join(without[:_MOST_NAMED]) + (", ..." if len(without) > _MOST_NAMED else "")
        raise StoreError(
            f"{len(without)} of {len(set(ids))} images of {setting.name} have no answer ({named}): --missing wrong "
            "counts them as wrong"
        )
    if len(probabilities) == len(set(ids)):
        logits = np.log(np.stack([probabilities[image] for image in ids]).clip(min=_LOWEST)).astype(np.float32)
        return Outputs(rows, logits, {}, name)
    ranks = max((len(numbers) for numbers in answers.values()), default=0) or 1
    told = np.full((len(rows), ranks), NO_ANSWER, dtype=np.int64)
    for row, image in enumerate(ids):
        numbers = answers.get(image, ())
        told[row, : len(numbers)] = numbers
    # An answer that is none of the setting's classes, of a subset of ImageNet's, is a wrong one.
    places = places_in(classes.columns, told.ravel()).reshape(told.shape)
    logits = answer_logits(places, rows.targets, len(classes.columns))
    return Outputs(rows, logits, {ANSWERS: told}, name)


def _in_numbers(
    said: Mapping[str, Prediction], classes: _Classes
) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """Image -> its probabilities, column by column, and image -> its answers, best first, as numbers of classes."""
    probabilities: dict[str, np.ndarray] = {}
    answers: dict[str, tuple[int, ...]] = {}
    for image, prediction in said.items():
        where = prediction.where
        answers[image] = tuple(dict.fromkeys(classes.number(word, where) for word in prediction.answers))
        if prediction.probabilities is None:
            continue
        shares = _by_column(prediction, classes)
        best = classes.columns[int(shares.argmax())]
        # Of equally probable classes the answer may be any.
        given = [place for place, number in enumerate(classes.columns) if number in answers[image][:1]]
        if answers[image] and (not given or shares[given[0]] < shares.max()):
            raise StoreError(
                f"{where}: expected the most probable class as the answer, got {shortened(prediction.answers[0])}, and "
                f"the highest probability for class {best}"
            )
        probabilities[image] = shares
        answers[image] = answers[image] or (best,)
    return probabilities, answers


def _by_column(prediction: Prediction, classes: _Classes) -> np.ndarray:
    given, where, columns = prediction.probabilities, prediction.where, classes.columns
    assert given is not None
    if isinstance(given, Mapping):
        by_number: dict[int, float] = {}
        for word, share in given.items():
            number = classes.number(word, where)
            if number in by_number:
                raise StoreError(f"{where}: expected one probability of class {number}, got two")
            by_number[number] = share
        lacking = [number for number in columns if number not in by_number]
        strange = [number for number in by_number if number not in set(columns)]
        if lacking or strange:
            what = f"none for class {lacking[0]}" if lacking else f"one for class {strange[0]}"
            raise StoreError(f"{where}: expected a probability for each of the {len(columns)} classes, got {what}")
        given = [by_number[number] for number in columns]
    if len(given) != len(columns):
        raise StoreError(f"{where}: expected {len(columns)} probabilities, one for each class, got {len(given)}")
    shares = np.array(given, dtype=np.float64)
    if abs(shares.sum() - 1) > _FROM_ONE:
        raise StoreError(f"{where}: expected probabilities that sum to 1, got {shares.sum():.4g}")
    return shares / shares.sum()
