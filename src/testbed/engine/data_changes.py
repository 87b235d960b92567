"""Whether stored results were made from the data that is here today.

A result keeps the fingerprint of its data: names, labels and sizes of the files, or the pixels of arrays. Where today's
differs the pair is run again. Where data is not here, as on another machine, the result stands. Files that were only
written later may be copies: that is said, and `--check-data content` compares what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import numpy as np

from testbed.data import writing
from testbed.data.arrays import ArrayDataset
from testbed.data.content import content_of
from testbed.data.download import with_hint
from testbed.data.locate import MissingData
from testbed.data.samples import Dataset, Samples, fingerprint_of
from testbed.entries.code_digest import digest_of
from testbed.entries.registry import Registry, registry_folders
from testbed.errors import DataError, StoreError
from testbed.options import RunOptions
from testbed.store.evaluation import Evaluation
from testbed.store.places import Place

_MEMO = "fingerprints.json"
_MOST_REMEMBERED = 20_000  # arrays whose fingerprints are kept
_NAMED = 3  # models that are named in one line
_SECOND = 10**9  # times of results are stored in whole seconds


def choice_of(registry: Registry, name: str) -> str:
    """A digest of the rows and classes that a setting declares: with the data it determines the rows."""
    classes, rows, keeps_labels = registry.runnable(name).choice
    chosen = [b"all" if part is None else np.asarray(part, dtype=np.int64).tobytes() for part in (classes, rows)]
    return fingerprint_of(*chosen, str(keeps_labels))[:16]


class DataToday:
    """The data of settings as it is now, listed once for all models, and what it says about stored results."""

    def __init__(self, registry: Registry, options: RunOptions) -> None:
        self._registry, self._options = registry, options
        self._roots = [Path(root) for root in options.data_roots]
        self._opened: dict[Dataset, Samples | DataError] = {}
        self._fingerprints: dict[Dataset, tuple[str, ...]] = {}  # today's, and what earlier programs called it
        self._contents: dict[tuple[object, ...], str | None] = {}
        self._choices: dict[str, str] = {}
        self._memo = _Memo(Path(options.cache_folder) / _MEMO)
        self._doubtful: dict[str, dict[str, list[str]]] = {}  # doubt -> setting -> models

    def open(self, dataset: Dataset) -> Samples | DataError:
        """The samples, or why there are none."""
        if dataset not in self._opened:
            try:
                self._opened[dataset] = dataset.open(self._roots)
            except DataError as error:
                self._opened[dataset] = with_hint(error, dataset, registry_folders(self._options.registry))
        return self._opened[dataset]

    def why_again(self, evaluation: Evaluation, origin: Evaluation, folder: Path) -> str:
        """Why a stored result does not stand for today's data; empty where it does, or where there is no data.

        `origin` is the evaluation whose logits it reads, mostly itself; `folder` is that of the results.
        """
        name, stored = evaluation.eval_setting, evaluation.dataset_fingerprint
        dataset = self._registry.runnable(name).dataset
        if not stored or dataset is None:
            return ""
        today = self._today(dataset)
        if not today:
            return ""
        if stored not in today:
            samples = self.open(dataset)
            if isinstance(samples, DataError):
                return ""
            whole = not origin.variant and self._registry.runnable(origin.eval_setting).choice[:2] == (None, None)
            return f"its data has changed{_in_what(Place(folder, str(origin.samples_path)), samples, whole)}"
        if name not in self._choices:
            self._choices[name] = choice_of(self._registry, name)
        if evaluation.provenance.choice not in (None, self._choices[name]):
            return "other rows or classes are declared than it was made with"
        return self._by_content(origin, dataset)

    def notes(self) -> list[str]:
        """Lines about results that stand, but may not be of today's data."""
        lines = []
        for doubt, settings in self._doubtful.items():
            for setting, models in settings.items():
                more = f" and {len(models) - _NAMED} more" if len(models) > _NAMED else ""
                lines.append(f"{setting}: {doubt.replace('{models}', ', '.join(models[:_NAMED]) + more)}")
        return lines

    def close(self) -> None:
        self._memo.save()

    def _today(self, dataset: Dataset) -> tuple[str, ...]:
        """The fingerprints that today's data goes by; none where it is not here."""
        if dataset not in self._fingerprints:
            self._fingerprints[dataset] = self._read_fingerprints(dataset)
        return self._fingerprints[dataset]

    def _read_fingerprints(self, dataset: Dataset) -> tuple[str, ...]:
        stamp = None if self._options.check_data == "content" else self._stamp(dataset)
        remembered = self._memo.get(stamp)
        if remembered is not None:
            return (remembered,)
        samples = self.open(dataset)
        if isinstance(samples, DataError):
            if not isinstance(samples, MissingData) and not isinstance(samples.__cause__, FileNotFoundError):
                self._doubt(f"its data cannot be compared with stored results: {samples}", dataset.describe(), "")
            return ()
        self._memo.put(stamp, samples.fingerprint)
        return (samples.fingerprint, *samples.older_fingerprints)

    def _stamp(self, dataset: Dataset) -> str | None:
        """What stands for data that is not read: files by size and times, a function that makes it by its code."""
        if isinstance(dataset, ArrayDataset) and dataset.make is not None:
            return f"{digest_of(dataset.make)}{dataset.rows}"
        try:
            return dataset.stamp(self._roots)
        except (DataError, OSError):
            return None

    def _by_content(self, origin: Evaluation, dataset: Dataset) -> str:
        """Whether the images have other contents; where that was not asked for, whether they were written later."""
        if self._options.check_data == "content":
            stored = origin.provenance.content
            if stored is None:
                self._doubt(
                    "{models}: stored without a digest of contents, so only names, labels and sizes were compared; "
                    "--overwrite runs again",
                    origin.eval_setting,
                    origin.model,
                )
            elif self._content(origin.eval_setting, dataset) not in (None, stored):
                return "the contents of its images have changed"
            return ""
        samples = self._opened.get(dataset)
        if isinstance(samples, Samples) and samples.newest_ns >= _began_ns(origin) + _SECOND:
            self._doubt(
                "files were written after the stored result of {models} was made, with the same names, labels and "
                "sizes: --check-data content compares what is in them, --overwrite runs again",
                origin.eval_setting,
                origin.model,
            )
        return ""

    def _content(self, name: str, dataset: Dataset) -> str | None:
        setting, samples = self._registry.runnable(name), self.open(dataset)
        if isinstance(samples, DataError):
            return None
        key = (dataset, *setting.choice)
        if key not in self._contents:
            self._contents[key] = content_of(samples, setting.rows(samples, self._options.limit))
        return self._contents[key]

    def _doubt(self, doubt: str, setting: str, model: str) -> None:
        models = self._doubtful.setdefault(doubt, {}).setdefault(setting, [])
        if model not in models:
            models.append(model)


def _began_ns(evaluation: Evaluation) -> int:
    return int(datetime.fromisoformat(evaluation.created_at).timestamp()) * _SECOND


def _in_what(list_of_images: Place, samples: Samples, whole: bool) -> str:
    """What differs from the images that a result was made from, as far as its list of images tells."""
    try:
        stored = list_of_images.rows()
    except StoreError:
        return ""
    today = set(samples.ids)
    gone = sum(id_ not in today for id_ in map(str, stored.ids))
    added = len(today) - len(stored) + gone if whole else 0
    told = [f"{added} images more" if added > 0 else "", f"{gone} of its {len(stored)} images gone" if gone else ""]
    return f" ({', '.join(filter(None, told)) or 'labels, sizes or pixels differ'})"


class _Memo:
    """Fingerprints by stamp, kept beside the cache: arrays need not be read again to tell that nothing changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new: dict[str, str] = {}
        self._stored: dict[str, str] | None = None

    def get(self, stamp: str | None) -> str | None:
        if stamp is None:
            return None
        key = fingerprint_of(stamp)
        return self._new.get(key) or self._read().get(key)

    def put(self, stamp: str | None, fingerprint: str) -> None:
        if stamp is not None:
            self._new[fingerprint_of(stamp)] = fingerprint

    def save(self) -> None:
        if self._new:
            kept = list({**self._read(), **self._new}.items())[-_MOST_REMEMBERED:]
            with suppress(OSError):  # a folder that cannot be written: the data is read again next time
                writing.write_text(self._path, json.dumps(dict(kept)))
            self._new.clear()

    def _read(self) -> dict[str, str]:
        if self._stored is None:
            self._stored = {}
            with suppress(OSError, ValueError):
                read = json.loads(self._path.read_text(encoding="utf-8"))
                self._stored = {k: v for k, v in read.items() if isinstance(v, str)} if isinstance(read, dict) else {}
        return self._stored


def looked_at(registry: Registry, names: Iterable[str]) -> set[str]:
    """The settings, and those whose stored logits they read, one from the other."""
    looked: set[str] = set()
    for name in names:
        while name not in looked:
            looked.add(name)
            name = registry.eval_setting(name).logits_from or name
    return looked
