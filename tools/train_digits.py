"""Train the classifiers of the digits demo and write their weights into registry/weights/digits.

Training is seeded and uses one thread, so that the same packages give the same files. It takes a few minutes. The
recipes were chosen on held-out training images; the printed test accuracies were not used for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from testbed import Model, StandardNormalization
from testbed.entries.registry import load_module, load_registry
from testbed.perturb.attacks import projected_gradient_descent

REGISTRY = Path(__file__).resolve().parents[1] / "registry"
SEED = 0
BATCH = 64


@dataclass(frozen=True)
class Recipe:
    """How one network is trained."""

    architecture: str
    steps: int = 800
    learning_rate: float = 2e-3
    noise_sigma: float = 0.0  # gaussian noise with a standard deviation drawn from 0 to this, per image
    attack_eps: float = 0.0  # every batch is attacked within this linf radius before its step
    keep_every: int = 1  # train on every n-th image of each class


RECIPES = {
    "digits_linear": Recipe("linear", learning_rate=5e-3),
    "digits_mlp": Recipe("mlp"),
    "digits_cnn": Recipe("cnn"),
    "digits_cnn_noise": Recipe("cnn", noise_sigma=0.5),
    "digits_cnn_adversarial": Recipe("cnn", attack_eps=24 / 255),
    "digits_cnn_tenth": Recipe("cnn", keep_every=10),
}


class Normalized(nn.Module):
    """The network with its normalisation in front: images in [0, 1] -> logits."""

    def __init__(self, network: nn.Module, normalization: StandardNormalization | None) -> None:
        super().__init__()
        self.network = network
        self.mean = torch.tensor(normalization.mean if normalization else [0.0] * 3).view(3, 1, 1)
        self.std = torch.tensor(normalization.std if normalization else [1.0] * 3).view(3, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.network((images - self.mean) / self.std)


class TrainingRandom:
    """The rng of an attack, with torch's global generator instead of one seed per image."""

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Tensor:
        return torch.empty(BATCH, *shape).uniform_(low, high)

    def normal(self, shape: Sequence[int]) -> Tensor:
        return torch.randn(BATCH, *shape)


def train(recipe: Recipe, classifier: nn.Module, images: Tensor, labels: Tensor) -> None:
    images, labels = every_nth_of_each_class(images, labels, recipe.keep_every)
    harden = hardening(recipe, classifier)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=recipe.learning_rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.learning_rate, total_steps=recipe.steps)
    for _ in range(recipe.steps):
        rows = torch.randint(len(images), (BATCH,))
        batch, targets = images[rows], labels[rows]
        loss = cross_entropy(classifier(harden(batch, targets)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def hardening(recipe: Recipe, classifier: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The perturbation of a training batch: noise, an attack, or none."""
    attack = projected_gradient_descent("linf", recipe.attack_eps, recipe.attack_eps / 3, steps=5)

    @torch.no_grad()  # the attack switches gradients on where it needs them
    def harden(batch: Tensor, targets: Tensor) -> Tensor:
        if recipe.noise_sigma:
            strength = recipe.noise_sigma * torch.rand(len(batch), 1, 1, 1)
            batch = (batch + strength * torch.randn_like(batch)).clamp(0, 1)
        if recipe.attack_eps:
            batch = attack(batch, classifier, targets, TrainingRandom())
        return batch

    return harden


def every_nth_of_each_class(images: Tensor, labels: Tensor, n: int) -> tuple[Tensor, Tensor]:
    # Sorted by class, so that every n-th row keeps the proportions of the classes.
    rows = torch.argsort(labels, stable=True)[::n]
    return images[rows], labels[rows]


def as_batch(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous() / 255


@torch.no_grad()
def accuracy(classify: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> float:
    return 100 * float((classify(images).argmax(dim=1) == labels).float().mean())


def make_network(name: str, recipe: Recipe, entry: Model, data: ModuleType, path: Path) -> float:
    """Train one network, write it, and return its accuracy on the test images."""
    networks = load_module(REGISTRY / "models" / "_digits_networks.py")
    torch.manual_seed(SEED)  # per network, so that --only gives the same file as a full run
    normalization = entry.normalization
    assert normalization is None or isinstance(normalization, StandardNormalization)
    classifier = Normalized(getattr(networks, recipe.architecture)(), normalization)
    images, labels = data.digits_training_images()
    train(recipe, classifier, as_batch(images), torch.from_numpy(labels))
    save_file(classifier.network.state_dict(), path, metadata={"recipe": str(asdict(recipe))})
    images, labels = data.digits_test_images()
    return accuracy(classifier.eval(), as_batch(images), torch.from_numpy(labels))


def make_nearest_neighbour(data: ModuleType, path: Path) -> None:
    """Write the nearest-neighbour classifier: its weights are the 8x8 training digits and their labels."""
    digits, labels = data.training_digits()
    save_file({"digits": torch.from_numpy(digits), "labels": torch.from_numpy(labels)}, path)


@click.command(help=__doc__)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=REGISTRY / "weights" / "digits",
    help="Folder for the weights.  [default: registry/weights/digits]",
)
@click.option("--only", multiple=True, type=click.Choice(list(RECIPES)), help="Train these alone.")
def main(output: Path, only: tuple[str, ...]) -> None:
    torch.set_num_threads(1)  # sums depend on how they are split over threads
    torch.use_deterministic_algorithms(True)
    output.mkdir(parents=True, exist_ok=True)
    data = load_module(REGISTRY / "eval_settings" / "_digits_data.py")
    entries = load_registry().models.entries
    if not only:
        make_nearest_neighbour(data, output / "digits_nearest_neighbour.safetensors")
        click.echo(f"digits_nearest_neighbour: {data.TRAINING_SIZE} training digits written")
    for name in only or RECIPES:
        started = time.monotonic()
        top1 = make_network(name, RECIPES[name], entries[name], data, output / f"{name}.safetensors")
        click.echo(f"{name}: {top1:.1f} % of the test digits, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
