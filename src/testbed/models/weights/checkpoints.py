"""Checkpoint files: read without running pickled code, unwrapped to a state dict, loaded into a network strictly."""

from __future__ import annotations

import os
import pickle
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

from testbed.errors import ModelError

_FORCE_VARIABLE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
UNSAFE_VARIABLE = "TESTBED_UNSAFE_PICKLE"  # set by eval.py --unsafe-pickle; worker processes inherit it
# Keys under which training scripts save weights. Averaged weights go before those of the last step, as in timm.
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "ema")
_OTHER_NAMES = (
    (re.compile(r"(^|\.)(?:(?:module|_orig_mod)\.)+"), r"\1"),  # DataParallel, torch.compile
    # torchvision's own files of DenseNets and vision transformers, which it renames itself while loading.
    (re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12])\."), r"\1\2."),
    (re.compile(r"(encoder_layer_\d+\.mlp)\.linear_1\."), r"\1.0."),
    (re.compile(r"(encoder_layer_\d+\.mlp)\.linear_2\."), r"\1.3."),
)


class State(dict[str, Any]):
    """A state dict with the module versions of the checkpoint, which some modules read while loading."""

    def __init__(self, tensors: Mapping[str, Any], versions: Mapping[str, Any]) -> None:
        super().__init__(tensors)
        self._metadata = dict(versions)  # the attribute that torch reads

    @property
    def versions(self) -> dict[str, Any]:
        return self._metadata

    def renamed(self, rename: Callable[[str], str]) -> State:
        """The same tensors and versions under other names."""
        versions = {rename(f"{module}.").removesuffix("."): v for module, v in self.versions.items()}
        return State({rename(name): tensor for name, tensor in self.items()}, versions)


# ---- reading --------------------------------------------------------------------------------------------


def read_tensors(path: Path) -> Any:
    """The content of a safetensors or torch file. Pickled code is run only under --unsafe-pickle."""
    if not path.is_file():
        raise ModelError(f"checkpoint {path} does not exist")
    try:
        return _read(path, trusted=bool(os.environ.get(UNSAFE_VARIABLE)))
    except Exception as error:
        raise ModelError(f"checkpoint {path} {_what_is_wrong(path, error)}") from error


@contextmanager
def only_tensors() -> Iterator[None]:
    """Inside the block nobody's torch.load runs pickled code, unless --unsafe-pickle was given.

    torch's own way to say so: packages that load their published files ask for pickled code, without need.
    """
    before = os.environ.get(_FORCE_VARIABLE)
    if not os.environ.get(UNSAFE_VARIABLE):
        os.environ[_FORCE_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(_FORCE_VARIABLE, None)
        if before is not None:
            os.environ[_FORCE_VARIABLE] = before


def is_refused_code(error: Exception) -> bool:
    """Whether torch refused code in a file that was not read by `read_tensors`."""
    return isinstance(error, pickle.UnpicklingError) and "Weights only load failed" in str(error)


def _read(path: Path, trusted: bool) -> Any:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    import argparse

    import torch

    # Training scripts save their arguments with the weights. Unpickling a Namespace runs no code.
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(path, map_location="cpu", weights_only=not trusted)


def _what_is_wrong(path: Path, error: Exception) -> str:
    """Why a file could not be read, to follow its name in a message."""
    if _is_refused_code(path, error):
        refused = re.search(r"GLOBAL (\S+)", str(error))
        return (
            f"holds pickled code{f' ({refused[1]})' if refused else ''}: expected tensors only. Such code can do "
            "anything on this machine; --unsafe-pickle runs it, for a file whose maker you trust"
        )
    first_sentence = re.split(r"\n|\. ", str(error))[0]
    reason = f"{type(error).__name__}: {first_sentence}" if first_sentence else type(error).__name__
    if isinstance(error, ImportError | AttributeError):
        return f"needs code that is not installed here ({reason})"
    return f"is truncated, or no torch or safetensors file ({reason})"


def _is_refused_code(path: Path, error: Exception) -> bool:
    """Whether torch refused code in a real checkpoint. It raises the same error for most text files."""
    if not is_refused_code(error):
        return False
    with path.open("rb") as file:
        return file.read(1) == pickle.PROTO or zipfile.is_zipfile(path)


# ---- unwrapping -----------------------------------------------------------------------------------------


def unwrapped(content: Any) -> State:
    """The state dict in a checkpoint, which may lie under a key such as `state_dict`, `model` or `ema`."""
    for key in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
            break
    if not isinstance(content, dict) or not all(hasattr(v, "shape") for v in content.values()):
        kind = type(content).__name__ if not isinstance(content, dict) else f"keys {', '.join(list(content)[:4])}"
        raise ModelError(f"expected a state dict of tensors in the checkpoint, got {kind}")
    return State(content, getattr(content, "_metadata", None) or {})


def fitted(state: State, own: Mapping[str, Any]) -> State:
    """The state under the network's own names.

    Wrapper prefixes such as `module.` are removed. A prefix that all names share is removed if the rest then fits.
    """
    if not any(_misnamed(state, own)):
        return state
    state = state.renamed(_plain_name)
    rest = _without_copies(state)
    # A common prefix is removed one part at a time; where that does not end in a fit, the names are left for the error.
    while any(_misnamed(rest, own)):
        prefix = next(iter(rest), "").partition(".")[0] + "."
        if not rest or not all(name.startswith(prefix) for name in rest):
            return state
        rest = rest.renamed(methodcaller("removeprefix", prefix))
    return rest


def _plain_name(name: str) -> str:
    for pattern, replacement in _OTHER_NAMES:
        name = pattern.sub(replacement, name)
    return name


def _without_copies(state: State) -> State:
    """Without the duplicates in checkpoints of MadryLab's robustness.

    They store the network twice (model, attacker), and its normalisation, which the registry entry declares.
    """
    if {name.partition(".")[0] for name in state} != {"model", "attacker", "normalizer"}:
        return state
    return State({name: tensor for name, tensor in state.items() if name.startswith("model.")}, state.versions)


def _misnamed(state: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """(names missing in the state, names that the network does not have)."""
    # Checkpoints older than torch 0.4.1 lack this counter, which evaluation does not use.
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    return missing, [name for name in state if name not in own]


# ---- putting them into a network ------------------------------------------------------------------------


def load_state(network: Any, state: State, where: str, advice: str = "") -> Any:
    """The network with all its tensors loaded. A missing, unexpected or misshaped tensor is an error.

    advice: what the user can do about it, to end that error.
    """
    own = network.state_dict()
    state = fitted(state, own)
    missing, unexpected = _misnamed(state, own)
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
        raise ModelError(f"{where} does not fit {type(network).__name__}; {'; '.join(problems)}{advice}")
    versions = {**getattr(own, "_metadata", {}), **state.versions}
    network.load_state_dict(State(state, versions), strict=False)  # checked above, with a shorter message than torch's
    return network


def state_sha256(network: Any) -> str | None:
    """A checksum of the names and values of all tensors, independent of the file; None for a network without any."""
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
