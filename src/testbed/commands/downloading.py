"""Flags of db.py that download data sets and weights."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.commands.action import BRING_IN, Action, Context
from testbed.errors import DataError, TestbedError, UnknownName

if TYPE_CHECKING:
    from testbed.data.download import Download
    from testbed.data.samples import Dataset

_INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C: 128 + SIGINT


def download(context: Context, names: Sequence[str]) -> None:
    """Download what has a public address. For the rest print how to get it, and exit with an error."""
    from testbed.data.download import install
    from testbed.data.locate import data_roots

    roots = data_roots(context.data_root)
    wanted, by_hand = _needed(context, names, roots)
    for instruction in by_hand:
        click.echo(instruction, err=True)
    for item in wanted:
        click.echo(item.describe())
        with _resumable():
            places = install(item, roots[0])
        click.echo(f"{item.name}: in {', '.join(str(p) for p in places)}")
        _say_next(item, places)
        if any(file.checksum is None for file in item.files):
            click.echo(f"{item.name}: no checksum is published, so the files could not be checked")
    if by_hand:
        raise DataError(f"{len(by_hand)} data set(s) must be got by hand, as told above")


def _say_next(item: Download, places: Sequence[Path]) -> None:
    if item.then and places:
        click.echo(f"{item.name}: now `{item.then.format(place=shlex.quote(str(places[0])))}`")


def _needed(context: Context, names: Sequence[str], roots: Sequence[Path]) -> tuple[list[Download], list[str]]:
    """(missing downloads, instructions for manual ones) for names of data sets, settings, groups and tags."""
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
            known_download = download_for(dataset, downloads)
            present_at = find_place(dataset, roots)
            if present_at is not None:
                click.echo(f"{dataset.describe()}: already there, at {present_at}")
            elif known_download is not None:
                wanted[known_download.name] = known_download
            elif getattr(dataset, "name", None):  # data made by the program has no name, and nothing to fetch
                by_hand[dataset.describe()] = _by_hand(dataset, roots[0])
            else:
                click.echo(f"{dataset.describe()}: needs no download")
    absent = (_absent(context, item, downloads, roots) for item in wanted.values())
    return [item for item in absent if item.places], list(by_hand.values())


def _absent(context: Context, item: Download, downloads: dict[str, Download], roots: Sequence[Path]) -> Download:
    """The download, reduced to the places that are in none of the data roots."""
    from testbed.data.download import find_places

    entries = context.registry.eval_settings.entries.values()
    datasets = dict.fromkeys(setting.dataset for setting in entries if setting.dataset is not None)
    present = find_places(item, downloads, datasets, roots)
    for path in dict.fromkeys(present.values()):
        click.echo(f"{item.name}: already there, at {path}")
    _say_next(item, list(present.values()))
    return replace(item, places={inside: place for inside, place in item.places.items() if place not in present})


def _datasets(context: Context, name: str) -> list[Dataset]:
    try:
        settings = context.registry.expand_eval_settings([name])
    except UnknownName as error:
        raise UnknownName(f"nothing to download: {error}") from error
    # A dictionary drops duplicates: many settings share one data set.
    datasets = (context.registry.runnable(setting).dataset for setting in settings)
    return list(dict.fromkeys(d for d in datasets if d is not None))


def _by_hand(dataset: Dataset, root: Path) -> str:
    """Where to get a data set that has no download, and where to put it."""
    name = getattr(dataset, "name", "")
    how = f": {dataset.source}" if dataset.source else ""
    return f"'{name}' cannot be fetched automatically{how}; put it at {root / name}"


def download_weights(context: Context, names: Sequence[str]) -> None:
    from testbed.entries.registry import registry_folders
    from testbed.models import weights

    published = weights.read_published(registry_folders(context.registry_folders))
    for name in [model for word in names for model in _models(context, word, published)]:
        weights_file = published.get(name)
        if weights_file is None:
            raise TestbedError(f"the weights of '{name}' have no published address here: put a file into {_folder()}")
        click.echo(f"{name}: {weights_file.file} from {weights_file.remote.host}, licence: {weights_file.licence}")
        with _resumable():
            path = weights.download(weights_file)
        click.echo(f"{name}: in {path}")
        if weights_file.remote.checksum is None:
            click.echo(f"{name}: no checksum is published, so the file could not be checked")


def _folder() -> str:
    from testbed.models import weights

    return f"{weights.folders()[0]} (the first folder of {weights.WEIGHTS_VARIABLE})"


def _models(context: Context, name: str, published: dict[str, Any]) -> list[str]:
    """The model itself, or the members of a group, tag or pattern whose weights have an address."""
    if name in published:
        return [name]
    members = context.registry.expand_models([name])
    # Where no member has an address, the first one is kept: the caller's error message then names a model.
    return [m for m in members if m in published] or members[:1]


@contextmanager
def _resumable() -> Iterator[None]:
    """Ctrl-C ends the command with a note that the partial file is kept."""
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
        purpose=BRING_IN,
        reads=("data_root",),
    ),
    Action("download-weights", download_weights, "Fetch published weights of models.", ("MODEL...",), purpose=BRING_IN),
)
