"""Decisions in the published CSV format: one line per trial, what an observer answered to which picture."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from testbed.data.regular import regular
from testbed.data.writing import csv_text, from_csv_text, write_aside
from testbed.entries.checks import shortened
from testbed.errors import StoreError
from testbed.metrics.categories16 import NAMES, NO_ANSWER, picture, same_condition

COLUMNS = ("subj", "session", "trial", "rt", "object_response", "category", "condition", "imagename")
_NO_ANSWER_WORD = "na"
_LONGEST_CELL = 1000


@dataclass(frozen=True)
class Trial:
    """One line of a file."""

    session: str
    trial: int
    seconds: float  # reaction time; NaN for networks
    response: int  # place in NAMES, or NO_ANSWER
    category: str
    condition: str  # as it is written there
    image: str

    @property
    def id(self) -> str:
        """The path under which a model sees the picture; of a set with conditions, the name of the trial's file."""
        if same_condition(self.condition) == "0":
            return f"{self.category}/{picture(f'{self.category}/{self.image}').id}"
        return self.image


@dataclass(frozen=True)
class Decisions:
    """All trials of one observer on one set."""

    observer: str
    trials: tuple[Trial, ...]
    files: tuple[str, ...] = ()

    @property
    def is_person(self) -> bool:
        return self.observer.startswith("subject-")


def read_folder(folder: Path) -> list[Decisions]:
    """Every observer in the CSV files of a folder, trials in the order of their pictures; sessions are joined."""
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise StoreError(f"{folder}: expected CSV files of decisions with the columns {', '.join(COLUMNS)}")
    trials: dict[str, list[Trial]] = {}
    files: dict[str, list[str]] = {}
    for path in paths:
        for observer, trial in _read(path):
            trials.setdefault(observer, []).append(trial)
            if path.name not in files.setdefault(observer, []):
                files[observer].append(path.name)
    return [_checked(Decisions(name, tuple(trials[name]), tuple(files[name]))) for name in sorted(trials)]


def _checked(decisions: Decisions) -> Decisions:
    ordered = sorted(decisions.trials, key=lambda t: t.id)
    for one, other in pairwise(ordered):
        if one.id == other.id:
            raise StoreError(
                f"{decisions.observer} has two answers to {other.id} ({', '.join(decisions.files)}): expected one set "
                "per folder, and each of its pictures once"
            )
    return Decisions(decisions.observer, tuple(ordered), decisions.files)


def _read(path: Path) -> list[tuple[str, Trial]]:
    try:
        with regular(path).open(newline="", encoding="utf-8-sig") as file:
            rows = [[from_csv_text(cell) for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    header = [name.strip().lower() for name in rows[0]] if rows else []  # some files have Session
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise StoreError(f"{path}: expected the columns {', '.join(COLUMNS)}, {', '.join(missing)} missing")
    trials = []
    for line, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise StoreError(f"{path}, line {line}: expected {len(header)} cells, got {len(row)}")
        trials.append(_trial(dict(zip(header, row, strict=True)), f"{path}, line {line}"))
    return trials


def _trial(cells: dict[str, str], where: str) -> tuple[str, Trial]:
    response, category = cells["object_response"], cells["category"]
    if response not in (*NAMES, _NO_ANSWER_WORD):
        raise StoreError(f"{where}: expected one of the 16 categories or {_NO_ANSWER_WORD}, got {shortened(response)}")
    if category not in NAMES:
        raise StoreError(f"{where}: expected one of the 16 categories, got {shortened(category)}")
    trial, seconds = _number(cells["trial"]), _seconds(cells["rt"])
    if trial is None or seconds is None:
        raise StoreError(
            f"{where}: expected a whole number as trial and seconds or NaN as rt, got {shortened(cells['trial'])} and "
            f"{shortened(cells['rt'])}"
        )
    for name, text in cells.items():
        # Every cell of a column takes the room of its longest one in the array it is stored in.
        if len(text) > _LONGEST_CELL or "\0" in text:
            raise StoreError(f"{where}: expected at most {_LONGEST_CELL} letters as {shortened(name)}, got {len(text)}")
    place = NAMES.index(response) if response in NAMES else NO_ANSWER
    image = cells["imagename"].rpartition("/")[2]
    return cells["subj"], Trial(cells["session"], trial, seconds, place, category, cells["condition"], image)


def _number(text: str) -> int | None:
    try:
        number = int(text)
    except ValueError:
        return None
    return number if abs(number) < 2**31 else None


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return None if math.isinf(seconds) else seconds


def write_csv(path: Path, observer: str, trials: Sequence[Trial]) -> None:
    """One observer's trials in their order, as they were published or would have been."""

    def write(aside: Path) -> None:
        with aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for t in sorted(trials, key=lambda t: (t.session, t.trial)):
                seconds = "NaN" if math.isnan(t.seconds) else repr(t.seconds)
                word = NAMES[t.response] if t.response != NO_ANSWER else _NO_ANSWER_WORD
                cells = [observer, t.session, t.trial, seconds, word, t.category, t.condition, t.image]
                writer.writerow(map(csv_text, cells))

    write_aside(path, write)


def answers(trials: Sequence[Trial]) -> np.ndarray:
    """Responses as logits of the 16 categories: 1 for the answer and 0 elsewhere, no number where there is none."""
    logits = np.zeros((len(trials), len(NAMES)), dtype=np.float32)
    responses = np.array([t.response for t in trials], dtype=np.int64)
    given = responses != NO_ANSWER
    logits[np.flatnonzero(given), responses[given]] = 1
    logits[~given] = np.nan
    return logits
