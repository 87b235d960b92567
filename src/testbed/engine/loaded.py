"""The models that are loaded on a device: as many as its memory holds, the others in turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from testbed.engine.batch_norm import load_model
from testbed.entries.registry import Registry
from testbed.models.classifier import LoadedModel
from testbed.options import RunOptions

_SHARE_OF_WEIGHTS = {"cuda": 0.5, "cpu": 0.25}  # of the device's memory; the rest is for activations and others
_UNKNOWN_BYTES = 256 << 20  # of a network that is no nn.Module


class LoadedModels:
    """Loads models by name and keeps them. What was used longest ago is dropped where memory is needed."""

    def __init__(self, device: str, registry: Registry, options: RunOptions, workers: int = 1) -> None:
        self._device, self._registry, self._options = device, registry, options
        self.budget = int(_memory_of(device) * _SHARE_OF_WEIGHTS[device.partition(":")[0]] / workers)
        self._loaded: dict[str, LoadedModel] = {}  # the one used longest ago first

    def __contains__(self, name: str) -> bool:
        return name in self._loaded

    def in_turns(
        self, names: Sequence[str], loading: Callable[[str], None], failed: Callable[[str, Exception], None]
    ) -> Iterator[list[LoadedModel]]:
        """The models in groups that are loaded at the same time: all in one where they fit.

        `loading` is told before a model is loaded; `failed` of one that cannot be, which the others do not suffer from.
        """
        turn: list[LoadedModel] = []
        for name in names:
            if name not in self._loaded:
                loading(name)
                if turn and _weights(turn) >= self.budget:
                    yield turn
                    turn = []
                self._make_room(keep=turn)
            try:
                loaded = self._get(name)
            except torch.OutOfMemoryError:  # less fits than the budget says: alone, then
                if turn:
                    yield turn
                turn = []
                self._drop(list(self._loaded))
                try:
                    loaded = self._get(name)
                except Exception as error:
                    failed(name, error)
                    continue
            except Exception as error:
                failed(name, error)
                continue
            if turn and _weights([*turn, loaded]) > self.budget:
                yield turn
                turn = []
            turn.append(loaded)
            self._make_room(keep=turn)
        if turn:
            yield turn

    def _get(self, name: str) -> LoadedModel:
        loaded = self._loaded.pop(name, None)
        if loaded is None:
            loaded = load_model(self._registry.model(name), self._device, self._options)
        self._loaded[name] = loaded
        return loaded

    def _make_room(self, keep: Sequence[LoadedModel]) -> None:
        for name in list(self._loaded):
            if _weights(self._loaded.values()) <= self.budget:
                return
            if self._loaded[name] not in keep:
                self._drop([name])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            del self._loaded[name]
        if self._device.startswith("cuda"):
            torch.cuda.empty_cache()


def _weights(models: Iterable[LoadedModel]) -> int:
    return sum(map(nbytes_of, models))


def nbytes_of(loaded: LoadedModel) -> int:
    """What the weights take."""
    network = loaded.network
    if not isinstance(network, torch.nn.Module):
        return _UNKNOWN_BYTES
    elsewhere = getattr(network, "bytes_elsewhere", 0)  # of one that another library computes
    return elsewhere + sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))


def _memory_of(device: str) -> int:
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[1]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
