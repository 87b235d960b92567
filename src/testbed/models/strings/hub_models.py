"""`hub:owner/repository:name`: a model of torch.hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import UnknownName
from testbed.models.weights import checkpoint_is_given, find_local, with_weights


@dataclass(frozen=True)
class _Input:
    """How the pictures of a model are prepared."""

    transform: StandardTransform
    normalization: StandardNormalization


# torch.hub has no input configuration: the usual one of ImageNet classifiers is assumed, told and recorded.
_USUAL = _Input(
    StandardTransform(256, 224), StandardNormalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
)
_ASSUMED = (
    "torch.hub does not say what pictures it takes; assumed is resize=256,crop=224,interpolation=bilinear,"
    "mean=0.485,0.456,0.406,std=0.229,0.224,0.225: --transform says otherwise"
)
# Repositories whose models take other pictures, by the beginning of a model's name; from their training logs.
_OTHERS = {
    "chenyaofo/pytorch-cifar-models": {
        "cifar10_": _Input(
            StandardTransform(32, 32),
            StandardNormalization(mean=(0.4914, 0.4822, 0.4465), std=(0.2023, 0.1994, 0.2010)),
        ),
        "cifar100_": _Input(
            StandardTransform(32, 32),
            StandardNormalization(mean=(0.5070, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2761)),
        ),
    }
}


def resolve(name: str, rest: str) -> Model:
    repository, _, entry = rest.rpartition(":")
    if "/" not in repository or not entry:
        raise UnknownName(f"'{name}': expected hub:owner/repository:name")

    def load() -> Any:
        import torch

        # With pretrained=True torch.hub would download weights that are replaced anyway.
        if checkpoint_is_given() or find_local(entry) is not None:
            return with_weights(torch.hub.load(repository, entry, pretrained=False, trust_repo=True), entry)
        return torch.hub.load(repository, entry, pretrained=True, trust_repo=True)

    prepared = _input_of(repository, entry)
    return Model(
        name=name,
        transform=prepared.transform,
        normalization=prepared.normalization,
        classifier_loader=load,
        eval_batch_size=64,
        arch=entry,
        tags=("hub",),
        input_note=_ASSUMED if prepared is _USUAL else "",
    )


def _input_of(repository: str, entry: str) -> _Input:
    # A branch or tag may follow: owner/repository:v1.
    known = _OTHERS.get(repository.partition(":")[0], {})
    return next((prepared for prefix, prepared in known.items() if entry.startswith(prefix)), _USUAL)
