"""Flags of db.py about what lies on disk: fetching data sets and weights, and looking over images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import Action, Context
from testbed.errors import DataError, TestbedError, UnknownName

if TYPE_CHECKING:
    import numpy as np

    from testbed.data.download import Download
    from testbed.data.samples import Dataset, Samples
    from testbed.entries import EvalSetting

_INTERRUPTED = 130
_AUDIT_COLUMNS = ["eval_setting", "images", "expected", "classes", "per_class", "names", "unreadable", "verdict"]
_MOST_NAMED = 10


# ---- fetching --------------------------------------------------------------------------------------------


def download(context: Context, names: Sequence[str]) -> None:
    """What can be fetched is fetched; what cannot is told with what to do about it, and is a failure."""
    from testbed.data.download import install
    from testbed.data.locate import data_roots

    roots = data_roots(context.extra["data_root"])
    wanted, by_hand = _needed(context, names, roots)
    for text in by_hand:
        click.echo(text, err=True)
    for one in wanted:
        click.echo(one.describe())
        with _resumable():
            places = install(one, roots[0])
        click.echo(f"{one.name}: in {', '.join(str(p) for p in places)}")
        if any(file.checksum is None for file in one.files):
            click.echo(f"{one.name}: no checksum is published, so the files could not be checked")
    if by_hand:
        raise DataError(f"{len(by_hand)} data set(s) must be got by hand, as told above")


def _needed(context: Context, names: Sequence[str], roots: Sequence[Path]) -> tuple[list[Download], list[str]]:
    """(downloads of what is not there, what must be got by hand and how) of data sets, settings, groups and tags."""
    from testbed.data.download import download_for, find_place, read_downloads
    from testbed.registry import registry_folders

    downloads = read_downloads(registry_folders(context.registry_folders))
    wanted: dict[str, Download] = {}
    by_hand: dict[str, str] = {}
    for name in names:
        if name in downloads:
            wanted[name] = downloads[name]
            continue
        for dataset in _datasets(context, name):
            found = download_for(dataset, downloads)
            there = find_place(dataset, roots)
            if there is not None:
                click.echo(f"{dataset.describe()}: already there, at {there}")
            elif found is not None:
                wanted[found.name] = found
            elif getattr(dataset, "name", None):
                by_hand[dataset.describe()] = _by_hand(dataset, roots[0])
            else:
                click.echo(f"{dataset.describe()}: needs no download")
    absent = (_absent(context, one, downloads, roots) for one in wanted.values())
    return [one for one in absent if one.places], list(by_hand.values())


def _absent(context: Context, one: Download, downloads: dict[str, Download], roots: Sequence[Path]) -> Download:
    """The download of those places alone that are in none of the data roots."""
    from testbed.data.download import find_places

    entries = context.registry.eval_settings.entries.values()
    datasets = dict.fromkeys(setting.dataset for setting in entries if setting.dataset is not None)
    there = find_places(one, downloads, datasets, roots)
    for path in dict.fromkeys(there.values()):
        click.echo(f"{one.name}: already there, at {path}")
    return replace(one, places={inside: place for inside, place in one.places.items() if place not in there})


def _datasets(context: Context, name: str) -> list[Dataset]:
    try:
        settings = context.registry.expand_eval_settings([name])
    except UnknownName as error:
        raise UnknownName(f"nothing to download: {error}") from error
    datasets = (context.registry.runnable(setting).dataset for setting in settings)
    return list(dict.fromkeys(d for d in datasets if d is not None))


def _by_hand(dataset: Dataset, root: Path) -> str:
    name = getattr(dataset, "name", "")
    how = f": {dataset.source}" if dataset.source else ""
    return f"'{name}' cannot be fetched automatically{how}; put it at {root / name}"


def download_weights(context: Context, names: Sequence[str]) -> None:
    from testbed import weights
    from testbed.registry import registry_folders

    published = weights.read_published(registry_folders(context.registry_folders))
    for name in [model for given in names for model in _models(context, given, published)]:
        one = published.get(name)
        if one is None:
            raise TestbedError(f"the weights of '{name}' have no published address here: put a file into {_folder()}")
        click.echo(f"{name}: {one.file} from {one.remote.host}, licence: {one.licence}")
        with _resumable():
            path = weights.download(one)
        click.echo(f"{name}: in {path}")
        if one.remote.checksum is None:
            click.echo(f"{name}: no checksum is published, so the file could not be checked")


def _folder() -> str:
    from testbed import weights

    return f"{weights.folders()[0]} (the first folder of {weights.WEIGHTS_VARIABLE})"


def _models(context: Context, name: str, published: dict[str, Any]) -> list[str]:
    """The model itself, or those of a group, tag or pattern that have an address."""
    if name in published:
        return [name]
    found = context.registry.expand_models([name])
    return [m for m in found if m in published] or found[:1]


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("\nStopped. What has come is kept; the same command goes on from there.", err=True)
        raise SystemExit(_INTERRUPTED) from None


# ---- looking over ----------------------------------------------------------------------------------------


def audit_data(context: Context, names: Sequence[str]) -> None:
    """Every image of the settings is opened; whatever is not as expected is a failure."""
    from testbed.data.locate import data_roots

    roots = data_roots(context.extra["data_root"])
    settings = [context.registry.runnable(name) for name in context.registry.expand_eval_settings(names)]
    rows = _audited(context, settings, roots)
    if context.style == "table":
        context.print([{**row, **_short(row)} for row in rows], _AUDIT_COLUMNS)
    else:
        context.print(rows, [*_AUDIT_COLUMNS, "problems"])
    bad = [row for row in rows if row["problems"]]
    if context.style == "table":
        for row in bad:
            for problem in row["problems"]:
                click.echo(f"{row['eval_setting']}: {problem}")
    if bad:
        raise TestbedError(f"{len(bad)} of {len(rows)} settings have data that is not as expected")


@dataclass
class _Opened:
    """The images of a data set, those that each of its settings takes, and which of them cannot be read."""

    samples: Samples
    chosen: dict[Any, np.ndarray | DataError] = field(default_factory=dict)  # by _rule
    broken: list[tuple[str, str]] = field(default_factory=list)

    def choose(self, setting: EvalSetting) -> None:
        from testbed.data.select import select

        rule = _rule(setting)
        if rule in self.chosen:
            return
        sublist, listed, columns = rule
        try:
            self.chosen[rule] = select(self.samples, sublist, listed, None, columns).indices
        except DataError as error:
            self.chosen[rule] = error

    def read(self, title: str) -> None:
        from testbed.data.audit import unreadable

        rows = [chosen.tolist() for chosen in self.chosen.values() if not isinstance(chosen, DataError)]
        self.broken = unreadable(self.samples, sorted(set().union(*rows)), title)


def _rule(setting: EvalSetting) -> tuple[Any, Any, bool]:
    """By what a setting chooses its images."""
    columns = getattr(setting.metrics_fn, "columns_are_classes", False)
    return setting.class_sublist, setting.idx_subsample_list, columns


def _audited(context: Context, settings: Sequence[EvalSetting], roots: Sequence[Path]) -> list[dict[str, Any]]:
    """One row for each setting. An image that several of them take is read once, one that none takes never."""
    opened: dict[Dataset | None, _Opened | DataError] = {}
    for setting in settings:
        assert setting.dataset is not None
        if setting.dataset not in opened:
            opened[setting.dataset] = _opened(context, setting.dataset, roots)
        content = opened[setting.dataset]
        if isinstance(content, _Opened):
            content.choose(setting)
    for dataset, content in opened.items():
        if isinstance(content, _Opened):
            content.read(dataset.describe() if dataset else "")
    return [_audit(context, setting, opened[setting.dataset]) for setting in settings]


def _opened(context: Context, dataset: Dataset, roots: Sequence[Path]) -> _Opened | DataError:
    from testbed.data.download import with_hint
    from testbed.registry import registry_folders

    try:
        return _Opened(dataset.open(roots))
    except DataError as error:
        return with_hint(error, dataset, registry_folders(context.registry_folders))


def _audit(context: Context, setting: EvalSetting, content: _Opened | DataError) -> dict[str, Any]:
    from testbed.data.audit import uneven
    from testbed.run.checks import look_over_setting

    row = dict.fromkeys(_AUDIT_COLUMNS) | {"eval_setting": setting.name, "expected": setting.size, "problems": []}
    chosen = content if isinstance(content, DataError) else content.chosen[_rule(setting)]
    if isinstance(content, DataError) or isinstance(chosen, DataError):
        return row | {"verdict": "MISSING", "problems": [str(chosen)]}
    findings = look_over_setting(context.registry, setting.name, content.samples, chosen)
    problems = list(findings.problems)
    if setting.size is not None and setting.size != findings.images:
        problems.insert(0, f"expected {setting.size} images, found {findings.images}")
        problems += [text for text in [uneven(findings.per_class)] if text]
    its = {content.samples.ids[i] for i in chosen}
    unreadable = [text for image, text in content.broken if image in its]
    problems += unreadable[:_MOST_NAMED]
    problems += [f"and {len(unreadable) - _MOST_NAMED} more unreadable images"] * (len(unreadable) > _MOST_NAMED)
    return row | {
        "images": findings.images,
        "classes": len(findings.per_class),
        "per_class": findings.per_class,
        "names": findings.names,
        "unreadable": len(unreadable),
        "verdict": "PROBLEM" if problems else "ok",
        "problems": problems,
    }


def _short(row: dict[str, Any]) -> dict[str, str]:
    """Counts per class as their range."""
    counts = (row["per_class"] or {}).values()
    if not counts:
        return {"per_class": ""}
    low, high = min(counts), max(counts)
    return {"per_class": str(low) if low == high else f"{low} to {high}"}


ACTIONS = (
    Action(
        "download",
        download,
        "Fetch the data of settings, groups or tags into the data root: resumed, checked, unpacked.",
        ("NAME...",),
    ),
    Action("download-weights", download_weights, "Fetch published weights of models.", ("MODEL...",)),
    Action(
        "audit-data",
        audit_data,
        "Count and open every image of settings; exit code 1 where something is not as expected.",
        ("SETTING...",),
    ),
)
