"""Which weights a network gets: the file the user names, else a local one, else what may be downloaded."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from testbed.errors import ModelError, TestbedError
from testbed.models.weights.checkpoints import load_state, read_tensors, unwrapped
from testbed.models.weights.places import DEFAULT_FOLDER, SUFFIXES, WEIGHTS_VARIABLE, MissingWeights, find_local

# torch.hub's way of naming: the first digits of the sha256 at the end. A date such as 20240131 is none.
_HASHED_NAME = re.compile(r".*-(?!(?:19|20)\d{6}\.)([0-9a-f]{8,64})(?:\.\w+)+")

_override: ContextVar[Path | None] = ContextVar("checkpoint named by the user", default=None)
_overridden: ContextVar[bool] = ContextVar("checkpoint already loaded", default=False)
_noted: ContextVar[dict[str, str] | None] = ContextVar("files loaded so far", default=None)


@contextmanager
def noting_files() -> Iterator[dict[str, str]]:
    """Name -> sha256 of every weights file that is loaded inside, for the provenance."""
    files: dict[str, str] = {}
    token = _noted.set(files)
    try:
        yield files
    finally:
        _noted.reset(token)


@contextmanager
def checkpoint_override(path: Path | None) -> Iterator[Callable[[], bool]]:
    """While a classifier_loader runs, `with_weights` takes this file instead of the entry's own weights."""
    token, used = _override.set(path), _overridden.set(False)
    try:
        yield _overridden.get
    finally:
        _override.reset(token)
        _overridden.reset(used)


def checkpoint_is_given() -> bool:
    """Whether `with_weights` will take a file that the user has named: then nothing need be downloaded."""
    return _override.get() is not None


def with_weights(
    network: Any, *local_names: str, fallback: Callable[[], Any] | None = None, by_position: bool = False
) -> Any:
    """`network` with weights: the user's checkpoint, else a local file, else what `fallback()` returns.

    fallback returns a path or a state dict, and is where a download may happen.
    """
    override = _override.get()
    if override is not None:
        _overridden.set(True)
        return load_checkpoint(network, override)
    path = find_local(*local_names) if local_names else None
    if path is not None:
        return load_checkpoint(network, path)
    found = _fetched(local_names, fallback)
    if isinstance(found, str | os.PathLike):
        return load_checkpoint(network, Path(found), by_position)
    return load_state(network, unwrapped(found), "downloaded weights")


def _fetched(local_names: Sequence[str], fallback: Callable[[], Any] | None) -> Any:
    """What the fallback gives; where there is none, or it has no network, where to put a file instead."""
    reason = ""
    if fallback is not None:
        try:
            return fallback()
        except TestbedError:
            raise
        except OSError as error:  # of urllib, requests and the hub's client alike: the network or the disk
            if not local_names:
                raise
            first, *_ = str(error).splitlines() or [""]
            reason = f" (their download failed: {type(error).__name__}: {first})"
    file = local_names[0] if local_names[0].endswith(SUFFIXES) else f"{local_names[0]}.pth"
    raise MissingWeights(
        f"no weights for {local_names[0]}{reason}: put {file} into {DEFAULT_FOLDER} or the folder {WEIGHTS_VARIABLE} "
        "names, or give a file with --checkpoint"
    )


def load_checkpoint(network: Any, path: Path, by_position: bool = False) -> Any:
    """Load a file into `network`, strictly: every tensor has its place and every place its tensor."""
    _note(path)
    state = unwrapped(read_tensors(path))
    if by_position:
        names = list(network.state_dict())
        if len(names) != len(state):
            raise ModelError(f"{path}: expected {len(names)} tensors, got {len(state)}")
        state = unwrapped(dict(zip(names, state.values(), strict=True)))
    return load_state(network, state, str(path))


def _note(path: Path) -> None:
    """Remember the file for the provenance, and refuse one that is not what its name says."""
    from testbed.data.fetch import digest_of

    if not path.is_file():
        raise ModelError(f"checkpoint {path} does not exist")
    digest, noted = digest_of(path), _noted.get()
    if noted is not None:
        noted[path.name] = digest
    promised = _HASHED_NAME.fullmatch(path.name)
    if not promised or digest.startswith(promised[1]):
        return
    if path == _override.get():  # the user's own: the digits may be a job's number or part of a UUID
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
