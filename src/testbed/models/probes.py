"""Heads of probes: a linear layer, or the votes of nearest training images, on the features of a frozen network.

engine/probe_training.py trains them. A head is a file of tensors in the results folder, without pickled code, that says
how it was made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from testbed.data.writing import safe_name, write_aside
from testbed.errors import ModelError
from testbed.models.features import FeatureWatch
from testbed.models.weights import Head, state_sha256

_TEMPERATURE = 0.07  # of the votes: eval_knn.py of DINO
_NO_CHANCE = 50.0  # logits by which a class that was not trained stands below all others


class LinearHead(nn.Module):
    """Features -> logits; classes without a training image are never predicted."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor, classes: torch.Tensor, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(weight.shape[1], weight.shape[0])
        self.linear.load_state_dict({"weight": weight, "bias": bias})
        self.register_buffer("classes", classes)
        self._width = width

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        known: torch.Tensor = self.linear(features)
        if known.shape[1] == self._width:
            return known
        lowest = known.amin(dim=1, keepdim=True) - _NO_CHANCE
        return lowest.repeat(1, self._width).index_copy(1, self.get_buffer("classes"), known)


class NearestHead(nn.Module):
    """Features -> the logarithm of each class's share of the votes.

    The `neighbours` training images of the highest cosine vote, each with exp(cosine / 0.07), as in DINO.
    """

    def __init__(self, features: torch.Tensor, labels: torch.Tensor, width: int, neighbours: int) -> None:
        super().__init__()
        self.register_buffer("features", features)  # of unit length
        self.register_buffer("labels", labels)
        self._width, self._neighbours = width, neighbours

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.votes(normalize(features, dim=1) @ self.get_buffer("features").T, self._neighbours)

    def votes(self, cosines: torch.Tensor, neighbours: int) -> torch.Tensor:
        nearest, places = cosines.topk(neighbours, dim=1)
        votes = cosines.new_zeros(len(cosines), self._width)
        # Less the highest, which changes no share.
        strengths = ((nearest - nearest[:, :1]) / _TEMPERATURE).exp()
        votes = votes.scatter_add(1, self.get_buffer("labels")[places], strengths)
        return (votes / votes.sum(dim=1, keepdim=True)).clamp_min(torch.finfo(votes.dtype).tiny).log()


class ProbeNetwork(nn.Module):
    """A backbone and a head on its features: images -> logits."""

    def __init__(self, backbone: nn.Module, head: nn.Module, name: str, layer: str | None) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self._watch = FeatureWatch(backbone, name, layer)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with self._watch.watching():
            self.backbone(images)
            features = self._watch.features(len(images))
        logits: torch.Tensor = self.head(features)
        return logits


def with_head(
    network: Any, name: str, layer: str | None, results: Path
) -> tuple[ProbeNetwork, Head | None, dict[str, str]]:
    """The backbone with the head that was trained on exactly its weights, the head's classes where these are folders,
    and how it was made."""
    path = head_path(results, name)
    if not isinstance(network, nn.Module):
        raise ModelError(f"expected a torch module as backbone of a probe, got {type(network).__name__}")
    about = head_facts(path)
    if not about:
        raise ModelError(f"no head of '{name}' in {path.parent}: eval.py and testbed.evaluate train it")
    if about["backbone_sha256"] != (state_sha256(network) or ""):
        raise ModelError(f"the head of '{name}' was trained on other weights: eval.py trains it anew")
    tensors = _tensors(path)
    if sha256_of(tensors) != about["sha256"]:
        raise ModelError(f"{path} has changed since it was written: remove it, and eval.py trains it anew")
    probe = ProbeNetwork(network, head_of(tensors, about), name, layer and layer.removeprefix("backbone."))
    names = json.loads(about.get("class_names") or "[]")
    return probe, Head(int(about["width"]), tuple(names)) if names else None, about


def head_of(tensors: Mapping[str, np.ndarray], about: Mapping[str, str]) -> LinearHead | NearestHead:
    made = {name: torch.from_numpy(np.array(array)) for name, array in tensors.items()}
    if about["kind"] == "linear":
        return LinearHead(made["weight"], made["bias"], made["classes"], int(about["width"]))
    return NearestHead(made["features"], made["labels"], int(about["width"]), int(about["neighbours"]))


# ---- the file ------------------------------------------------------------------------------------------------


def head_path(results: Path, model: str) -> Path:
    return results / "probe-heads" / f"{safe_name(model)}.safetensors"


def save_head(path: Path, tensors: Mapping[str, np.ndarray], about: Mapping[str, object]) -> None:
    from safetensors.numpy import save_file

    told = {**about, "sha256": sha256_of(tensors)}
    kept = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    write_aside(path, lambda aside: save_file(kept, aside, {key: str(value) for key, value in told.items()}))


def head_facts(path: Path) -> dict[str, str]:
    """How a head was made, with the checksum of its tensors, from the file's header; empty where there is none."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return {}
    try:
        with safe_open(path, framework="np") as file:
            return dict(file.metadata() or {})
    except SafetensorError:  # cut off or another file: trained anew
        return {}


def _tensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return dict(load_file(path))


def sha256_of(tensors: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensors[name]).data)
    return digest.hexdigest()
