"""`hub:owner/repository:name`: a model of torch.hub."""

from __future__ import annotations

from typing import Any

from testbed.data.transforms import StandardTransform
from testbed.entries.model import Model, StandardNormalization
from testbed.errors import UnknownName
from testbed.models.weights import checkpoint_is_given, find_local, with_weights

_IMAGENET = StandardNormalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


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

    # torch.hub has no input configuration: the usual one of ImageNet classifiers is assumed, and recorded.
    return Model(
        name=name,
        transform=StandardTransform(256, 224),
        normalization=_IMAGENET,
        classifier_loader=load,
        eval_batch_size=64,
        arch=entry,
        tags=("hub",),
    )
