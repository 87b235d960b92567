"""Shared by the files of published ImageNet classifiers: loaders with pinned weights, and entries that use them.

Calling a loader gives the network with its weights; `build` gives the same network with random weights. torch, timm and
torchvision are imported only then. The loaders are plain classes: every family of models loads this file anew, and
making dataclasses would take longer than making all entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from testbed.weights import with_weights

from testbed import Model, StandardNormalization, StandardTransform

IMAGENET = StandardNormalization(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
HALF = StandardNormalization(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))

PUBLISHED = "imagenet-testbed"  # the tag of the models that Taori et al. (2020) published under the same name


class Timm:
    """timm's network with the weights `name.tag`. The tag is needed: for a bare name timm chooses the weights."""

    def __init__(self, tag: str, **arguments: Any) -> None:
        self.tag, self.arguments = tag, arguments
        self.arch = tag.split(".", 1)[0]

    def __str__(self) -> str:
        return f"timm:{self.tag}"

    def build(self) -> Any:
        import timm

        return timm.create_model(self.tag, pretrained=False, **self.arguments)

    def __call__(self) -> Any:
        import timm

        address = timm.get_pretrained_cfg(self.tag, allow_unregistered=False).url
        return with_weights(
            self.build(),
            self.tag,
            *([address.rsplit("/", 1)[-1]] if address else []),
            # timm's own loader, which also converts files whose tensors have other names.
            fallback=lambda: timm.create_model(self.tag, pretrained=True).state_dict(),
        )


class Torchvision:
    """torchvision's network with the weights published first: those that papers before 2022 mean by the name."""

    weights = "IMAGENET1K_V1"

    def __init__(self, arch: str, **arguments: Any) -> None:
        self.arch, self.arguments = arch, arguments

    def __str__(self) -> str:
        return f"torchvision:{self.arch}/{self.weights}"

    def build(self) -> Any:
        from torchvision.models import get_model

        return get_model(self.arch, weights=None, **self.arguments)

    def __call__(self) -> Any:
        from torchvision.models import get_model_weights

        weights = get_model_weights(self.arch)[self.weights]
        return with_weights(
            self.build(),
            weights.url.rsplit("/", 1)[-1],
            f"{self.arch}.pth",
            fallback=lambda: weights.get_state_dict(progress=False, check_hash=True),
        )


class File:
    """A network of timm or torchvision with weights from a file that neither of them offers.

    metadata/weights.json has its address. A file whose name does not end in the checksum is loaded without a check.
    """

    def __init__(self, arch: str, file: str, network: Timm | Torchvision) -> None:
        self.arch, self.file, self.build = arch, file, network.build

    def __str__(self) -> str:
        return self.file

    def __call__(self) -> Any:
        return with_weights(self.build(), self.file, self.file.rpartition("-")[0])


def entry(
    name: str,
    loader: Callable[[], Any],
    transform: StandardTransform,
    normalization: StandardNormalization,
    *tags: str,
    eval_batch_size: int = 64,
    columns: Sequence[int] | None = None,
) -> Model:
    """The entry of an ImageNet classifier. Its tags are its type and, if its name is a published one, PUBLISHED."""
    return Model(
        name=name,
        transform=transform,
        normalization=normalization,
        classifier_loader=loader,
        eval_batch_size=eval_batch_size,
        arch=loader.arch,
        tags=("imagenet", *tags),
        columns=columns,
    )
