"""A loaded model on a device, and the classifier from images in [0, 1] to logits that settings and attacks call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from torch import nn

from testbed.data.samples import UNKNOWN, Samples
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.functions import call_by_name, exits_refused
from testbed.entries.made_of import Probe
from testbed.entries.model import Model, StandardNormalization
from testbed.entries.registry import registry_folders
from testbed.errors import ModelError, TestbedError
from testbed.models.classes import columns_for, columns_of_head, own_head
from testbed.models.probes import with_head
from testbed.models.weights import (
    WEIGHTS_VARIABLE,
    Head,
    MissingWeights,
    checkpoint_override,
    folders,
    hint,
    is_refused_code,
    load_checkpoint,
    local_downloads,
    noting_files,
    only_tensors,
    state_sha256,
)
from testbed.options import AUTO, RunOptions
from testbed.perturb.seeding import BatchRandom, SharedRandom

_NO_CHANCE = 50.0  # a few classes of a thousand are known to the head: the others must not share their probability
_AMP = {"bf16": torch.bfloat16, "fp16": torch.float16}


class LoadedModel:
    """A model's network on its device, loaded once and kept for all its settings."""

    def __init__(self, entry: Model, device: str, options: RunOptions) -> None:
        self.entry = entry
        self.device = torch.device(device)
        self.amp = _AMP[options.amp] if options.amp else None
        self.seed = options.seed
        with noting_files() as self.weights_files:
            self.network, self.head, self.probe_head = _load(entry, options)
        wanted = self.device.type == "cpu" if options.channels_last is None else options.channels_last
        self.channels_last = wanted and _convolves(self.network)  # to others the layout means nothing
        if isinstance(self.network, nn.Module):
            self.network = self.network.eval().to(self.device)
            if self.channels_last:
                self.network = self.network.to(memory_format=torch.channels_last)
        self.recorded: dict[str, Any] = dict(getattr(self.network, "recorded_facts", {}))
        if (warning := getattr(self.network, "recorded_warning", "")) != "":
            self.recorded["warning"] = warning
        # Before torch.compile, whose wrapper renames the tensors.
        self.weights_sha256 = state_sha256(self.network)
        self._sizes: dict[str, int] = {}  # setting -> the batch size in use, where it is not the one to begin with
        # On a CPU larger batches are no faster, and memory that runs out takes the whole machine along.
        self.grows = options.batch_size == AUTO and self.device.type != "cpu"
        self._full: set[str] = set()  # settings for which memory has run out: batches grow no more
        if options.compile and isinstance(self.network, nn.Module):
            self.network = torch.compile(self.network)

    def without_channels_last(self) -> None:
        """For a network that takes views of its activations, which are laid out otherwise then."""
        self.channels_last = False
        if isinstance(self.network, nn.Module):
            self.network = self.network.to(memory_format=torch.contiguous_format)

    def entry_batch_size(self, setting: EvalSetting, options: RunOptions) -> int:
        """The size of prepared batches: the run's option, or else the entry's."""
        return options.batch_of(self.entry.batch_size_for(setting))

    def batch_size(self, setting: EvalSetting, options: RunOptions) -> int:
        """The batch size in use: smaller than asked for once memory has run out, larger once that has fitted."""
        own = self.entry.batch_size_for(setting)
        return self._sizes.get(setting.name, own if options.batch_size == AUTO else options.batch_of(own))

    def ran_out(self, setting: EvalSetting, size: int) -> None:
        """Memory has run out; batches of this size are tried next."""
        self._sizes[setting.name] = size
        self._full.add(setting.name)

    def fitted(self, setting: EvalSetting, options: RunOptions, size: int) -> None:
        """A batch of this size went through: with `auto` the next one may be twice as large."""
        if self.grows and setting.name not in self._full:
            self._sizes[setting.name] = min(2 * size, self.entry_batch_size(setting, options))

    def facts(self) -> dict[str, Any]:
        """What the provenance of a result records about the model."""
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        return {
            "weights_sha256": self.weights_sha256,
            "weights_files": self.weights_files,
            "device": name,
            "dtype": str(self.amp or torch.float32).removeprefix("torch."),
            "model_transform": repr(self.entry.transform),
            "normalization": repr(self.entry.normalization),
            "input_note": self.entry.input_note or None,
            "torch_threads": torch.get_num_threads(),
            "channels_last": self.channels_last,
            "head": None
            if self.head is None or self.probe_head
            else f"{self.head.outputs} outputs, from the {self.head.origin}",
            **({"probe_head": self.probe_head} if self.probe_head else {}),
            **self.recorded,
        }


def _convolves(network: Any) -> bool:
    return isinstance(network, nn.Module) and any(isinstance(part, nn.Conv2d) for part in network.modules())


def load_network(entry: Model, options: RunOptions) -> tuple[Any, Head | None]:
    """The entry's network with its weights and, if they are not ImageNet's 1000, its outputs."""
    network, head, _ = _load(entry, options)
    return network, head


def _load(entry: Model, options: RunOptions) -> tuple[Any, Head | None, dict[str, str]]:
    """The entry's network with its weights, or with those of the checkpoint and its outputs, if these are others.

    With it how the head of a probe was made.
    """
    checkpoint = options.checkpoint or entry.checkpoint
    path = Path(checkpoint).expanduser() if checkpoint else None
    absent: list[str] = []
    try:
        with (
            exits_refused("classifier_loader"),
            checkpoint_override(path) as override,
            local_downloads() as absent,
            only_tensors(),
        ):
            network = entry.classifier_loader()
            # A loader that uses `with_weights` has loaded the checkpoint itself; any other has loaded its own weights.
            if override is not None and not override.loaded:
                network = load_checkpoint(network, override.path)
        if isinstance(entry.made_of, Probe):
            return with_head(network, entry.name, entry.feature_layer, Path(options.results_folder))
        # A network that is made of others has the outputs of their checkpoints.
        head = override.head if override is not None else getattr(network, "recorded_head", None)
        return network, head or own_head(entry), {}
    except TestbedError as error:
        how = hint(entry.name, registry_folders(options.registry)) if isinstance(error, MissingWeights) else ""
        raise ModelError(f"model '{entry.name}' cannot be loaded: {error}{how}") from error
    except OSError as error:  # also those of urllib, requests and the hub's client
        first, *_ = str(error).splitlines() or [""]
        told = f"model '{entry.name}' cannot be loaded: {type(error).__name__}: {first}"
        if absent:
            told += (
                f"; without a network: put {absent[-1]} into {folders()[0]} (folders are named by {WEIGHTS_VARIABLE})"
            )
        elif isinstance(error, URLError | ConnectionError):
            told += f"; it reaches for the network: torch.hub looks in {torch.hub.get_dir()} before that"
        raise ModelError(told) from error
    except Exception as error:  # loaders are users' code, so anything may be raised
        if is_refused_code(error):
            raise ModelError(
                f"model '{entry.name}' cannot be loaded: its file holds pickled code: expected tensors only. Such code "
                "can do anything on this machine; --unsafe-pickle runs it, for a file whose maker you trust"
            ) from error
        raise ModelError(f"model '{entry.name}' cannot be loaded: {type(error).__name__}: {error}") from error


class Classifier(nn.Module):
    """Images in [0, 1] -> logits of one setting's classes: normalise, classify, select the columns."""

    def __init__(self, loaded: LoadedModel, setting: EvalSetting, samples: Samples | None = None) -> None:
        super().__init__()
        self._loaded = loaded  # a plain object, so the network is no submodule: it is shared between settings
        self._setting = setting
        self._normalise = _normalisation(loaded.entry.normalization, loaded.device)
        self.image_ids: Sequence[str] = ()  # of the current batch; they seed a classify function's rng
        self._below = 0.0  # by how much a class that the model lacks is below the image's lowest score
        if loaded.head is None:
            columns = columns_for(loaded.entry, setting)
        else:  # what the entry says of its classes does not hold for other outputs
            columns = columns_of_head(loaded.head, loaded.entry.name, setting, samples)
            self._below = _NO_CHANCE
        # Columns of the model's own outputs: a classify function gets the same numbers.
        self._class_sublist = None if columns is None else tuple(c for c in columns if c != UNKNOWN)
        # Known on the host: asking the tensor would wait for the device at every batch.
        self._highest_column = max(self._class_sublist or (), default=-1)
        self._columns = self._order = None
        if self._class_sublist is not None and "class_sublist" not in loaded.entry.classify_arguments:
            self._columns = torch.tensor(self._class_sublist, device=loaded.device)
        if columns is not None and UNKNOWN in columns:
            self._order = torch.tensor(_places_with_gaps(columns), device=loaded.device)

    @property
    def entry(self) -> Model:
        """The registry entry, with the model's normalisation and layer names."""
        return self._loaded.entry

    @property
    def network(self) -> Any:
        """The loaded network itself, for probes that look at its layers."""
        return self._loaded.network

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Those of the network: an attack sets them aside, since it asks for gradients of the input alone."""
        network = self._loaded.network
        return network.parameters(recurse) if isinstance(network, nn.Module) else iter(())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        loaded, setting = self._loaded, self._setting
        images = self._normalise(images)
        autocast = torch.autocast(loaded.device.type, loaded.amp) if loaded.amp else nullcontext()
        with autocast:
            if loaded.entry.classify is None:
                logits = loaded.network(images)
            else:
                logits = call_by_name(
                    loaded.entry.classify,
                    loaded.entry.classify_arguments,
                    images=images,
                    model=loaded.network,
                    class_sublist=self._class_sublist,
                    adversarial_attack=setting.adversarial_attack,
                    rng=self._random(images),
                )
        logits = _as_matrix(logits, len(images), loaded.entry.name).float()
        if self._columns is not None:
            if self._highest_column >= logits.shape[1]:
                raise ModelError(
                    f"model '{loaded.entry.name}' gives {logits.shape[1]} classes, but the setting "
                    f"'{setting.name}' asks for class {self._highest_column}"
                )
            logits = logits[:, self._columns]
        if self._order is not None:  # a class the model lacks gets the image's lowest score: it is never predicted
            lowest = logits.amin(dim=1, keepdim=True) - self._below
            logits = torch.cat([logits, lowest], dim=1)[:, self._order]
        return logits

    def _random(self, images: torch.Tensor) -> BatchRandom:
        """Random numbers for a classify function, seeded by image id at each call: the classifier is deterministic.

        Attacks call it with parts of a batch, whose ids are not known here. All images then share one draw, so that no
        image depends on the others. The key differs from a perturbation's, so the two draws are independent.
        """
        key = f"{self._setting.noise_key}|classify"
        if images.requires_grad or len(self.image_ids) != len(images):
            return SharedRandom(self._loaded.seed, key, len(images), images.device)
        return BatchRandom(self._loaded.seed, key, self.image_ids, images.device)


def _places_with_gaps(columns: Sequence[int]) -> list[int]:
    """For each column its place among the known ones; the number of known ones for an UNKNOWN column."""
    known = [c for c in columns if c != UNKNOWN]
    places = iter(range(len(known)))
    return [len(known) if c == UNKNOWN else next(places) for c in columns]


def _normalisation(normalization: Any, device: torch.device) -> Any:
    if normalization is None:
        return lambda images: images
    if not isinstance(normalization, StandardNormalization):
        return normalization
    mean = torch.tensor(normalization.mean, device=device).view(1, 3, 1, 1)
    std = torch.tensor(normalization.std, device=device).view(1, 3, 1, 1)
    if normalization.input_space == "BGR":
        return lambda images: (images.flip(1) - mean) / std
    return lambda images: (images - mean) / std


def _as_matrix(logits: Any, n: int, name: str) -> torch.Tensor:
    """A network's output as a tensor (n, classes). Hugging Face models return an object with `logits`."""
    logits = getattr(logits, "logits", logits)
    if not isinstance(logits, torch.Tensor):
        try:
            logits = torch.as_tensor(logits)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelError(f"model '{name}': expected a tensor of logits, got {_kind(logits)}") from error
    if logits.is_complex():  # float() would keep the real part
        raise ModelError(f"model '{name}': expected real logits, got {str(logits.dtype).removeprefix('torch.')}")
    if logits.ndim != 2 or logits.shape[0] != n:
        raise ModelError(f"model '{name}': expected logits of shape ({n}, classes), got {tuple(logits.shape)}")
    return logits


def _kind(value: Any) -> str:
    """Describes an output that is no tensor, such as a tuple with an auxiliary head, or a dictionary."""
    if isinstance(value, dict):
        return f"a dict with {', '.join(map(str, value))}"
    parts = f" of {', '.join(type(part).__name__ for part in value)}" if isinstance(value, tuple | list) else ""
    return f"a {type(value).__name__}{parts}"
