"""The embedded demo: its data, its committed weights, and what they show."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from testbed.entries.functions import call_by_name
from testbed.entries.registry import Registry, default_folder, load_module, load_registry

REGISTRY = default_folder()
WEIGHTS = REGISTRY / "weights" / "digits"
MODELS = [
    "digits_linear",
    "digits_nearest_neighbour",
    "digits_mlp",
    "digits_cnn",
    "digits_cnn_noise",
    "digits_cnn_adversarial",
    "digits_cnn_tenth",
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """On a busy machine several threads wait for each other longer than these small networks take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def registry() -> Registry:
    return load_registry()


@functools.cache
def data():
    return load_module(REGISTRY / "eval_settings" / "_digits_data.py")


class Classifier(nn.Module):
    """A registry entry as one function from images in [0, 1] to logits."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.entry = registry().model(name)
        self.model = self.entry.classifier_loader()

    def forward(self, images: Tensor) -> Tensor:
        normalization = self.entry.normalization
        if normalization is not None:
            mean, std = (torch.tensor(v).view(3, 1, 1) for v in (normalization.mean, normalization.std))
            images = (images - mean) / std
        if self.entry.classify is not None:
            return self.entry.classify(images=images, model=self.model)
        return self.model(images)


class Random:
    def __init__(self, n: int) -> None:
        self.n, self.generator = n, torch.Generator().manual_seed(0)

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Tensor:
        return torch.rand(self.n, *shape, generator=self.generator) * (high - low) + low


@functools.cache
def digits_test(limit: int | None = None) -> tuple[Tensor, Tensor]:
    images, labels = registry().eval_setting("digits").dataset.make()
    return torch.from_numpy(images).permute(0, 3, 1, 2)[:limit] / 255, torch.from_numpy(labels)[:limit]


@torch.no_grad()
def accuracy(model: str, setting: str = "digits", limit: int | None = None) -> float:
    images, targets = digits_test(limit)
    entry, classifier = registry().eval_setting(setting), Classifier(model)
    if entry.perturbation_fn_cpu is not None:
        images = perturbed(setting, images)
    if entry.perturbation_fn_gpu is not None:
        images = entry.perturbation_fn_gpu(images=images, model=classifier, targets=targets, rng=Random(len(images)))
    return 100 * float((classifier(images).argmax(dim=1) == targets).float().mean())


def perturbed(setting: str, images: Tensor) -> Tensor:
    entry = registry().eval_setting(setting)
    names = entry.arguments["perturbation_fn_cpu"]
    generators = [np.random.default_rng(i) for i in range(len(images))]
    return torch.stack(
        [
            call_by_name(entry.perturbation_fn_cpu, names, image=image, rng=rng)
            for image, rng in zip(images, generators, strict=True)
        ]
    )


def test_listing_the_demo_imports_neither_torch_nor_sklearn() -> None:
    program = (
        "import sys; from testbed.entries.registry import load_registry; registry = load_registry();"
        "registry.expand_models(['digits-models']), registry.expand_eval_settings(['digits-demo']);"
        "print([m for m in ('torch', 'sklearn', 'scipy', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_demo_files_load_and_their_groups_hold_what_they_say() -> None:
    assert [path for path in registry().broken if path.name == "digits.py"] == []
    assert set(registry().expand_models(["digits-models"])) == set(MODELS)
    corruptions = registry().expand_eval_settings(["digits-corruptions"])
    shifts = registry().expand_eval_settings(["digits-shifts"])
    assert len(corruptions) == 6 * 5
    assert len(shifts) == 8
    others = {"digits", "digits-even", "digits.pgd.linf.eps16"}
    assert set(registry().expand_eval_settings(["digits-demo"])) == {*corruptions, *shifts, *others}


def test_training_and_test_digits_are_all_digits_and_share_none() -> None:
    from sklearn.datasets import load_digits

    training = {image.tobytes() for image in data().training_digits()[0]}
    whole = {image.astype(np.uint8).tobytes() for image in load_digits().images}
    assert len(whole) == 1797  # no digit comes twice, so the counts below tell the parts apart
    assert len(training) == 1000
    assert training < whole
    drawn = {image.tobytes() for image in data().digits_training_images()[0]}
    tested = {image.tobytes() for image in data().digits_test_images()[0]}
    assert len(tested) == 797
    assert not drawn & tested


def test_each_class_is_split_in_proportion() -> None:
    from sklearn.datasets import load_digits

    counts = np.bincount(load_digits().target)
    training = np.bincount(data().training_digits()[1])
    tested = np.bincount(data().digits_test_images()[1])
    assert (training + tested == counts).all()
    assert np.abs(training - counts * 1000 / 1797).max() <= 1


def test_images_are_the_digits_enlarged_bright_on_black_with_a_margin() -> None:
    digits, images = data().training_digits()[0], data().digits_training_images()[0]
    assert images.shape == (1000, 32, 32, 3)
    assert images.dtype == np.uint8
    assert (images[..., :1] == images).all()
    assert images[:, :4].max() == images[:, -4:].max() == images[:, :, :4].max() == images[:, :, -4:].max() == 0
    cells = images[:, 4:28, 4:28, 0].reshape(1000, 8, 3, 8, 3).mean(axis=(2, 4))
    assert np.corrcoef(cells.ravel(), digits.ravel())[0, 1] > 0.98


def test_all_weights_together_stay_below_one_megabyte() -> None:
    files = list(WEIGHTS.iterdir())
    assert {path.name for path in files} == {f"{name}.safetensors" for name in MODELS}
    assert sum(path.stat().st_size for path in files) < 1_000_000


def test_nearest_neighbour_remembers_the_training_digits_and_no_others() -> None:
    remembered = load_file(WEIGHTS / "digits_nearest_neighbour.safetensors")
    digits, labels = data().training_digits()
    assert np.array_equal(remembered["digits"].numpy(), digits)
    assert np.array_equal(remembered["labels"].numpy(), labels)


@torch.no_grad()
def test_nearest_neighbour_decides_as_that_of_sklearn() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    images, labels = data().digits_training_images()
    tested = data().digits_test_images()[0]
    theirs = KNeighborsClassifier(n_neighbors=1).fit(images[..., 0].reshape(1000, -1) / 255, labels)
    expected = theirs.predict(tested[..., 0].reshape(len(tested), -1) / 255)
    assert np.array_equal(Classifier("digits_nearest_neighbour")(digits_test()[0]).argmax(dim=1).numpy(), expected)


def test_the_declared_normalisation_is_that_of_the_training_images() -> None:
    pixels = data().digits_training_images()[0] / 255
    normalization = registry().model("digits_cnn").normalization
    assert normalization.mean == pytest.approx([pixels.mean()] * 3, abs=1e-4)
    assert normalization.std == pytest.approx([pixels.std()] * 3, abs=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_reads_clean_digits(model: str) -> None:
    assert accuracy(model) > (85 if model == "digits_cnn_tenth" else 95)


def test_a_tenth_of_the_data_costs_accuracy() -> None:
    assert accuracy("digits_cnn_tenth") < accuracy("digits_cnn") - 4


def test_training_with_noise_helps_under_noise() -> None:
    setting = "digits.gaussian_noise.5"
    assert accuracy("digits_cnn_noise", setting) > accuracy("digits_cnn", setting) + 10


def test_training_with_attacks_helps_under_attack() -> None:
    standard, robust = (
        accuracy(name, "digits.pgd.linf.eps16", limit=120) for name in ("digits_cnn", "digits_cnn_adversarial")
    )
    assert standard < 55
    assert robust > 80


def test_moving_the_digit_hurts_the_linear_model_more_than_the_convolutional_one() -> None:
    fall = {m: accuracy(m) - accuracy(m, "digits.translate.3") for m in ("digits_linear", "digits_cnn")}
    assert fall["digits_linear"] > fall["digits_cnn"] + 30


def test_a_shift_by_the_stride_of_the_convolutions_can_hurt_less_than_a_smaller_one() -> None:
    """As the demo says: four pixels are severity 3."""
    two, three, four = (accuracy("digits_cnn", f"digits.translate.{severity}") for severity in (1, 2, 3))
    assert two > four > three + 2
    two, three, four = (accuracy("digits_linear", f"digits.translate.{severity}") for severity in (1, 2, 3))
    assert two > three + 10 > four + 20


def test_accuracy_falls_with_the_severity_of_every_corruption() -> None:
    by_kind: dict[str, list[str]] = {}
    for name in registry().expand_eval_settings(["digits-corruptions"]):
        by_kind.setdefault(name.rsplit(".", 1)[0], []).append(name)
    assert len(by_kind) == 6
    for names in by_kind.values():
        found = [accuracy("digits_cnn", name, limit=300) for name in names]
        # Six of 300 digits may be read better by chance; pixelate rose by more than that from 1 to 2 and from 3 to 4.
        assert all(stronger <= weaker + 2 for weaker, stronger in pairwise(found)), (names, found)


def test_every_perturbation_changes_the_image_and_keeps_shape_and_range() -> None:
    images = digits_test()[0][:2].contiguous()
    for name in registry().expand_eval_settings(["digits-corruptions", "digits-shifts"]):
        result = perturbed(name, images)
        assert result.shape == images.shape, name
        assert result.min() >= 0, name
        assert result.max() <= 1, name
        assert not torch.equal(result, images), name


def test_no_committed_file_of_the_demo_is_a_pickle() -> None:
    assert {path.suffix for path in Path(WEIGHTS).iterdir()} == {".safetensors"}
