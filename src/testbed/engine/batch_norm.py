"""Loads a model, and recomputes the statistics of its batch normalisation where its entry asks for that.

Averaged weights do not go with averaged statistics: one pass over plain pictures gives those of the averaged network.
The result is kept in the user's cache folder, so that all workers, and runs with other devices or threads, have the
same bits.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from testbed.data.rows import Rows
from testbed.data.samples import fingerprint_of
from testbed.data.user_cache import keep_first, user_cache
from testbed.engine.forward import Shown, on_device
from testbed.engine.preparing import LocalPreparer, Order, Tally
from testbed.entries.eval_setting import EvalSetting
from testbed.entries.model import Model
from testbed.errors import ModelError, TestbedError
from testbed.models.classifier import Classifier, LoadedModel
from testbed.models.weights import state_sha256
from testbed.models.weights.blending import batch_norms
from testbed.options import RunOptions

_NAMES = ("running_mean", "running_var", "num_batches_tracked")
_LEAST = 2  # pictures: of one alone some layers have a single value, without a variance


def load_model(entry: Model, device: str, options: RunOptions) -> LoadedModel:
    """The model on its device, as its entry declares it."""
    loaded = LoadedModel(entry, device, options)
    if entry.statistics_from is not None:
        try:
            told = recompute(loaded, entry.statistics_from, options)
        except TestbedError as error:
            raise ModelError(f"model '{entry.name}': its statistics cannot be recomputed: {error}") from error
        loaded.recorded["batch_norm"] = told
    return loaded


def recompute(loaded: LoadedModel, setting: EvalSetting, options: RunOptions) -> str:
    """Give the network the statistics of a setting's pictures; says what was done."""
    network = getattr(loaded.network, "_orig_mod", loaded.network)
    layers = batch_norms(network)
    if not layers:
        return "none"
    preparer = LocalPreparer(options)
    try:
        samples = preparer.samples(setting)
        rows = setting.rows(samples)
        if len(rows) < _LEAST:
            raise ModelError(f"expected at least {_LEAST} pictures of '{setting.name}', got {len(rows)}")
        transforms = setting.transforms_for(loaded.entry)
        key = fingerprint_of(
            str(loaded.weights_sha256),
            f"{samples.fingerprint} {samples.cache_salt}",
            rows.indices.tobytes(),
            f"{transforms} {loaded.entry.normalization} {loaded.entry.eval_batch_size} {options.amp}",
        )
        path = user_cache("batch-norm") / f"{key}.safetensors"
        kept = _kept(path)
        if kept is None:
            _watch(loaded, network, layers, setting, rows, preparer, options)
            values = {f"{i}.{name}": getattr(layer, name).cpu() for i, layer in enumerate(layers) for name in _NAMES}
            kept = load(keep_first(path, save(values)))
    finally:
        preparer.close()
    for i, layer in enumerate(layers):
        for name in _NAMES:
            getattr(layer, name).copy_(kept[f"{i}.{name}"])
    loaded.weights_sha256 = state_sha256(network)
    return f"statistics recomputed on {len(rows)} pictures of {setting.name} ({samples.fingerprint})"


def _kept(path: Path) -> dict[str, torch.Tensor] | None:
    """What another process has computed; None where there is nothing, or nothing whole."""
    try:
        return load(path.read_bytes())
    except OSError:
        return None
    except SafetensorError:
        path.unlink(missing_ok=True)
        return None


def _watch(
    loaded: LoadedModel,
    network: Any,
    layers: list[Any],
    setting: EvalSetting,
    rows: Rows,
    preparer: LocalPreparer,
    options: RunOptions,
) -> None:
    """One pass in which the layers take the plain mean over batches; every other layer is as in evaluation."""
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
        layer.train()
    compiled, loaded.network = loaded.network, network
    try:
        classifier = Classifier(loaded, setting, preparer.samples(setting))
        shown = Shown(setting, loaded.device, options)
        # The mean counts every batch alike, so they are made nearly equal.
        size = math.ceil(len(rows) / math.ceil(len(rows) / loaded.entry.eval_batch_size))
        order = Order(setting, loaded.entry, rows, size, shown.cpu_perturbs)
        with torch.no_grad():
            for batch in on_device(preparer.batches(order, Tally()), loaded.device):
                if len(batch) >= _LEAST:
                    classifier(shown(batch).images)
    finally:
        loaded.network = compiled
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
            layer.eval()
