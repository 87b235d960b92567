"""Small classifiers of handwritten digits, with committed weights: the demo that runs from a clone, offline.

`python tools/train_digits.py` makes the weights again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import Model, StandardNormalization, registry

if TYPE_CHECKING:
    from torch import Tensor

FOLDER = Path(__file__).resolve().parents[1]
WEIGHTS = FOLDER / "weights" / "digits"

# Mean and std of the training images; the three channels are equal.
NORMALIZATION = StandardNormalization(mean=(0.1732,) * 3, std=(0.3035,) * 3)


def network_loader(architecture: str, name: str) -> Callable[[], Any]:
    """A loader that makes the network `architecture` with the weights of the model `name`."""

    def load() -> Any:
        from safetensors.torch import load_file

        networks = registry.load_module(Path(__file__).with_name("_digits_networks.py"))
        network = getattr(networks, architecture)()
        network.load_state_dict(load_file(WEIGHTS / f"{name}.safetensors"))
        return network.eval()

    return load


def load_nearest_neighbour() -> Any:
    from safetensors.torch import load_file

    networks = registry.load_module(Path(__file__).with_name("_digits_networks.py"))
    data = registry.load_module(FOLDER / "eval_settings" / "_digits_data.py")
    remembered = load_file(WEIGHTS / "digits_nearest_neighbour.safetensors")
    return networks.NearestNeighbour(data.drawn(remembered["digits"].numpy()), remembered["labels"]).eval()


def classify_by_nearest(images: Tensor, model: Any) -> Tensor:
    """The logit of a class is minus the squared distance to its nearest example.

    The distance is squared because a softmax over plain distances is nearly flat here: attacks that follow the
    gradient of the cross-entropy would look weaker than they are.
    """
    import torch

    distances = model(images)
    nearest = [distances[:, model.labels == label].amin(dim=1) for label in range(10)]
    return -torch.stack(nearest, dim=1)


def add_network(
    name: str, architecture: str, *tags: str, normalization: StandardNormalization | None = NORMALIZATION
) -> None:
    registry.add_model(
        Model(
            name=name,
            transform=None,
            classifier_loader=network_loader(architecture, name),
            eval_batch_size=256,
            normalization=normalization,
            arch=architecture,
            feature_layer="pool" if architecture == "cnn" else None,
            explain_layer="features" if architecture == "cnn" else None,
            tags=("digits", *tags),
        )
    )


add_network("digits_linear", "linear", "standard", normalization=None)
add_network("digits_mlp", "mlp", "standard")
add_network("digits_cnn", "cnn", "standard")
add_network("digits_cnn_noise", "cnn", "robust")
add_network("digits_cnn_adversarial", "cnn", "robust")
add_network("digits_cnn_tenth", "cnn", "low_data")

registry.add_model(
    Model(
        name="digits_nearest_neighbour",
        transform=None,
        classifier_loader=load_nearest_neighbour,
        eval_batch_size=256,
        classify=classify_by_nearest,
        arch="nearest_neighbour",
        tags=("digits", "standard"),
    )
)

registry.add_group("digits-models", ["digits_*"], kind="models")
