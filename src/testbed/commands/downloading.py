"""Flags of db.py that download data sets and weights."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.commands.action import BRING_IN, Action, Context
from testbed.commands.options import say
from testbed.errors import DataError, ModelError, UnknownName

if TYPE_CHECKING:
    from testbed.data.download import Download
    from testbed.data.samples import Dataset
    from testbed.models.weights import Published

_INTERRUPTED = 130  # what shells report for a program ended by Ctrl-C: 128 + SIGINT


def download(context: Context, names: Sequence[str]) -> None:
    """Download what has a public address. For the rest print how to get it, and exit with an error."""
    from testbed.data.download import install
    from testbed.data.locate import data_roots

    roots = data_roots(context.data_root)
    wanted, by_hand = _needed(context, names, roots)
    for instruction in by_hand:
        say(instruction, err=True)

    def fetch_item(item: Download) -> None:
        _tell(context, item.describe())
        with _resumable():
            places = install(item, roots[0])
        _tell(context, f"{item.name}: in {', '.join(str(p) for p in places)}")
        _say_next(item, places)
        if any(file.checksum is None for file in item.files):
            _tell(context, f"{item.name}: no checksum is published, so the files could not be checked")

    failed = _each({item.name: partial(fetch_item, item) for item in wanted})
    if by_hand:
        failed.append(f"{len(by_hand)} data set(s) must be got by hand, as told above")
    if failed:
        raise DataError("; ".join(failed))


def _say_next(item: Download, places: Sequence[Path]) -> None:
    if item.then and places:
        say(f"{item.name}: now `{item.then.format(place=shlex.quote(str(places[0])))}`")


def _tell(context: Context, text: str) -> None:
    """What happens, on standard error where standard output is for a program to read."""
    click.echo(text, err=context.style != "table")


def _each(downloads: Mapping[str, Callable[[], None]]) -> list[str]:
    """Run every download. One that fails is told, and does not stop the others; returns what to end with then."""
    failed = 0
    for name, fetch_it in downloads.items():
        try:
            fetch_it()
        except (DataError, ModelError) as error:
            if len(downloads) == 1:
                raise  # it is the only line then
            failed += 1
            say(f"{name}: {error}", err=True)
    return [f"{failed} of {len(downloads)} downloads failed, as told above"] if failed else []


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
    """Fetch weights of models, groups, tags, patterns or files; one that cannot be had does not stop the others."""
    from testbed.entries.registry import registry_folders
    from testbed.models import weights

    use_weights_folder(context)
    published = weights.read_published(registry_folders(context.registry_folders))
    models = dict.fromkeys(model for word in names for model in weights_models(context, word, published))
    failed = _each({name: partial(_fetch_weights, context, name, published.get(name)) for name in models})
    if failed:
        raise DataError("; ".join(failed))


def _fetch_weights(context: Context, name: str, weights_file: Published | None) -> None:
    from testbed.models import weights

    if weights_file is None:
        raise ModelError(f"the weights of '{name}' have no published address here: put a file into {weights_place()}")
    _tell(context, f"{name}: {weights_file.file} from {weights_file.remote.host}, licence: {weights_file.licence}")
    with _resumable():
        path = weights.download(weights_file)
    _tell(context, f"{name}: in {path}")
    if weights_file.remote.checksum is None:
        _tell(context, f"{name}: no checksum is published, so the file could not be checked")


def fetch_weights_of(context: Context, models: Sequence[str]) -> dict[str, str]:
    """Fetch what has an address. Returns model -> why its weights could not be had, in one line."""
    from testbed.entries.registry import registry_folders
    from testbed.models import weights

    published = weights.read_published(registry_folders(context.registry_folders))
    dead: dict[str, str] = {}  # by file: several models may have the same
    for name in models:
        if name not in published or published[name].file in dead:
            continue  # a model without an address brings its weights by itself
        try:
            if weights.find_local(published[name].file) is None:
                _fetch_weights(context, name, published[name])
        except DataError as error:
            dead[published[name].file] = str(error)
    return {name: dead[published[name].file] for name in models if name in published and published[name].file in dead}


def use_weights_folder(context: Context) -> None:
    """--checkpoint-dir goes before the other weights folders, in this process and in the workers it starts."""
    from testbed.models.weights import WEIGHTS_VARIABLE

    if context.checkpoint_dir:
        others = os.environ.get(WEIGHTS_VARIABLE)
        os.environ[WEIGHTS_VARIABLE] = os.pathsep.join([context.checkpoint_dir, *([others] if others else [])])


def weights_place() -> str:
    """The folder that downloads of weights go into, and what names it."""
    from testbed.models import weights

    return f"{weights.folders()[0]} (the first folder of {weights.WEIGHTS_VARIABLE})"


def weights_models(context: Context, name: str, published: Mapping[str, Published]) -> list[str]:
    """The model itself, those with a file of this name, or the members of a group, tag or pattern with an address."""
    if name in published:
        return [name]
    of_file = [model for model, weights_file in published.items() if weights_file.file == name]
    if of_file:
        return of_file
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
        reads=("data_root", "style"),
    ),
    Action(
        "download-weights",
        download_weights,
        "Fetch published weights of models.",
        ("MODEL...",),
        purpose=BRING_IN,
        reads=("checkpoint_dir",),
    ),
)
