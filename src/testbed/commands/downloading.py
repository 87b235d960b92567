"""Flags of db.py that fetch: data sets and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import Action, Context
from testbed.errors import DataError, TestbedError, UnknownName

if TYPE_CHECKING:
    from testbed.data.download import Download
    from testbed.data.samples import Dataset

_INTERRUPTED = 130


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
    from testbed.entries.registry import registry_folders

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
    from testbed.entries.registry import registry_folders
    from testbed.models import weights

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
    from testbed.models import weights

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


ACTIONS = (
    Action(
        "download",
        download,
        "Fetch the data of settings, groups or tags into the data root: resumed, checked, unpacked.",
        ("NAME...",),
    ),
    Action("download-weights", download_weights, "Fetch published weights of models.", ("MODEL...",)),
)
