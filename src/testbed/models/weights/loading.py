"""Chooses the weights of a network: the file that the user names, else a local file, else a download."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.data.network import hub_without_network
from testbed.errors import ModelError, TestbedError
from testbed.models.weights.checkpoints import load_state, read_tensors, unwrapped
from testbed.models.weights.heads import Head, take_head
from testbed.models.weights.places import SUFFIXES, WEIGHTS_VARIABLE, MissingWeights, default_folder, find_local

# torch.hub ends file names with the first digits of the sha256. A date such as 20240131 is not taken for a hash.
_HASHED_NAME = re.compile(r".*-(?!(?:19|20)\d{6}\.)([0-9a-f]{8,64})(?:\.\w+)+")

_OTHER_NETWORK = (
    "; only the number of outputs may differ. Name the architecture it was trained with, or build the network as in "
    "training in an entry of your own: docs/adding-a-model.md"
)

# Set around a classifier_loader, since it is the entry's function and takes no arguments.
_override: ContextVar[Override | None] = ContextVar("checkpoint named by the user", default=None)
_noted: ContextVar[dict[str, str] | None] = ContextVar("files loaded so far", default=None)


@contextmanager
def noting_files() -> Iterator[dict[str, str]]:
    """File name -> sha256 of every weights file that is loaded inside the block, for the provenance."""
    files: dict[str, str] = {}
    token = _noted.set(files)
    try:
        yield files
    finally:
        _noted.reset(token)


@dataclass
class Override:
    """A file that the user has named, and what became of it."""

    path: Path
    loaded: bool = False
    head: Head | None = None  # where the file has another number of outputs than the entry's network


@contextmanager
def checkpoint_override(path: Path | None) -> Iterator[Override | None]:
    """Inside the block `with_weights` loads this file instead of the entry's weights, and notes that it has done so."""
    token = _override.set(None if path is None else Override(path))
    try:
        yield _override.get()
    finally:
        _override.reset(token)


def checkpoint_is_given() -> bool:
    """Whether the user has named a file that `with_weights` will load, so that no download is needed."""
    return _override.get() is not None


def with_weights(
    network: Any, *local_names: str, fallback: Callable[[], Any] | None = None, by_position: bool = False
) -> Any:
    """`network` with weights: the user's checkpoint, else a local file, else what `fallback()` returns.

    `fallback` returns a path or a state dict; it may download. With `by_position` its tensors are assigned in the
    network's order instead of by name.
    """
    override = _override.get()
    if override is not None:
        return load_checkpoint(network, override.path)
    path = find_local(*local_names) if local_names else None
    if path is not None:
        return load_checkpoint(network, path)
    fetched = _fetched(local_names, fallback)
    if isinstance(fetched, str | os.PathLike):
        return load_checkpoint(network, Path(fetched), by_position)
    return load_state(network, unwrapped(fetched), "downloaded weights")


def _fetched(local_names: Sequence[str], fallback: Callable[[], Any] | None) -> Any:
    """What the fallback returns. Without one, or without a network, an error says where to put a file."""
    reason = ""
    if fallback is not None:
        try:
            with hub_without_network():
                return fallback()
        except TestbedError:
            raise
        except OSError as error:  # base class of the errors of urllib, requests and the hub's client
            if not local_names:
                raise
            first, *_ = str(error).splitlines() or [""]
            reason = f" (their download failed: {type(error).__name__}: {first.partition('. ')[0]})"
    file = local_names[0] if local_names[0].endswith(SUFFIXES) else f"{local_names[0]}.pth"
    raise MissingWeights(
        f"no weights for {local_names[0]}{reason}: put {file} into {default_folder()} or the folder {WEIGHTS_VARIABLE} "
        "names, or give a file with --checkpoint"
    )


def bytes_of(name: str) -> bytes:
    """The content of the local weights file of that name, for a loader that reads it in its own way."""
    override = _override.get()
    path = override.path if override is not None else find_local(name)
    if path is None:
        _fetched((name,), None)
    assert path is not None
    if override is not None:
        override.loaded = True
    _note(path)
    return path.read_bytes()


@contextmanager
def local_downloads() -> Iterator[list[str]]:
    """Inside the block torch.hub takes files of the weights folders before it downloads. Yields what was not there.

    This serves loaders that name no file, such as `lambda: resnet50(pretrained=True)`.
    """
    import shutil

    import torch

    download, absent = torch.hub.download_url_to_file, list[str]()

    def found_or_downloaded(url: str, dst: str, *rest: Any, **named: Any) -> None:
        file = os.path.basename(dst)
        path = find_local(file)
        if path is not None and path.name == file:
            _note(path)
            shutil.copyfile(path, dst)
            return
        absent.append(file)
        download(url, dst, *rest, **named)
        absent.remove(file)

    torch.hub.download_url_to_file = found_or_downloaded
    try:
        yield absent
    finally:
        torch.hub.download_url_to_file = download


def load_checkpoint(network: Any, path: Path, by_position: bool = False) -> Any:
    """Load a file into `network`, strictly: file and network must have the same tensors.

    Only a file that the user has named may have another number of outputs, as after fine-tuning.
    """
    _note(path)
    content = read_tensors(path)
    state, override = unwrapped(content), _override.get()
    if override is not None and path == override.path:
        override.loaded, override.head = True, take_head(network, state, content)
        return load_state(network, state, str(path), advice=_OTHER_NETWORK)
    if by_position:
        names = list(network.state_dict())
        if len(names) != len(state):
            raise ModelError(f"{path}: expected {len(names)} tensors, got {len(state)}")
        state = unwrapped(dict(zip(names, state.values(), strict=True)))
    return load_state(network, state, str(path))


def note_file(path: Path, name: str = "") -> str:
    """Record a file that is loaded for the provenance, under its own name or another; returns its sha256."""
    from testbed.data.fetch import digest_of

    if not path.is_file():
        raise ModelError(f"checkpoint {path} does not exist")
    digest, noted = digest_of(path), _noted.get()
    if noted is not None:  # two files of one name in two folders are two files
        name = name or path.name
        noted[str(path) if name in noted else name] = digest
    return digest


def _note(path: Path) -> None:
    """Record the file for the provenance, and refuse it if its sha256 is not the one in its name."""
    digest = note_file(path)
    promised = _HASHED_NAME.fullmatch(path.name)
    if not promised or digest.startswith(promised[1]):
        return
    if (
        (override := _override.get()) is not None and path == override.path
    ):  # the digits in the name of a user's file may be a job number or part of a UUID
        print(
            f"warning: {path} is loaded as it is: its name ends like one with the sha256 {promised[1]}..., it has "
            f"{digest[:8]}...",
            file=sys.stderr,
        )
        return
    raise ModelError(
        f"{path} is damaged or another file: its name promises the sha256 {promised[1]}..., it has "
        f"{digest[:8]}...; fetch it again, or rename it without these digits to load it as it is"
    )
