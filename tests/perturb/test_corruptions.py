"""What every corruption promises: shape and range, determinism, constants by size, errors at the door."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.perturb.corruptions import BAR_CORRUPTIONS, CORRUPTIONS, Corruption, corruption

ALL = CORRUPTIONS + BAR_CORRUPTIONS


def shared_data(name: str) -> Path:
    """A folder of real data: under TESTBED_SHARED_DATA, else under shared/data beside the project."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("TESTBED_SHARED_DATA") or beside) / name
    if not folder.is_dir():
        pytest.skip(f"needs {name} of the shared data, which is not at {folder}")
    return folder


def seeded(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def colours(height: int, width: int) -> torch.Tensor:
    return torch.from_numpy(seeded(0).random((3, height, width), dtype=np.float32))


@pytest.fixture(scope="module")
def invented_textures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    folder = tmp_path_factory.mktemp("frost")
    for number, ending in enumerate(("png", "png", "png", "jpg", "jpg"), 1):
        pixels = seeded(number).integers(0, 256, (60, 90, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((450, 300)).save(folder / f"frost{number}.{ending}")
    return folder


@pytest.fixture
def frost_textures(invented_textures: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five invented textures, so that frost runs without the real ones."""
    monkeypatch.setenv("TESTBED_FROST", str(invented_textures))
    return invented_textures


def test_all_nineteen_and_all_ten_are_there() -> None:
    assert len(CORRUPTIONS) == 19
    assert CORRUPTIONS[0] == "gaussian_noise"
    assert CORRUPTIONS[15:] == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert len(BAR_CORRUPTIONS) == 10


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", [(8, 8), (33, 47), (224, 160)])
def test_a_picture_comes_back_in_shape_and_range(name: str, shape: tuple[int, int], frost_textures: Path) -> None:
    image = colours(*shape)
    before = image.clone()
    for severity in (1, 3, 5):
        out = corruption(name, severity)(image=image, rng=seeded())
        assert out.shape == image.shape
        assert out.dtype == torch.float32
        assert out.is_contiguous()
        assert out.numpy().min() >= 0
        assert out.numpy().max() <= 1
    assert torch.equal(image, before), "the picture given was changed"


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_flat_pictures_give_finite_values(name: str, value: float, frost_textures: Path) -> None:
    for severity in (1, 3, 5):
        out = corruption(name, severity)(image=torch.full((3, 32, 40), value), rng=seeded())
        assert bool(torch.isfinite(out).all())


@pytest.mark.parametrize("name", ALL)
def test_the_same_generator_gives_the_same_pixels(name: str, frost_textures: Path) -> None:
    image = colours(64, 64)
    first, again, other = (corruption(name, 4)(image=image, rng=seeded(s)) for s in (5, 5, 6))
    assert torch.equal(first, again)
    fixed = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}
    if name not in fixed | {"gaussian_blur", "saturate"}:
        assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ALL)
def test_the_layout_in_memory_does_not_matter(name: str, frost_textures: Path) -> None:
    image = colours(40, 56)
    turned = image.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    assert not turned.is_contiguous()
    ours = corruption(name, 2)
    assert torch.equal(ours(image=image, rng=seeded()), ours(image=turned, rng=seeded()))


def test_arguments_are_those_a_perturbation_may_take() -> None:
    assert list(inspect.signature(corruption("fog", 1)).parameters) == ["image", "rng", "data_roots"]


def test_a_corruption_is_a_value() -> None:
    fog = corruption("fog", 3, size=64)
    assert pickle.loads(pickle.dumps(fog)) == fog
    assert repr(fog) == "Corruption(name='fog', severity=3, size=64)"
    assert hash(fog) == hash(Corruption("fog", 3, 64))


@pytest.mark.parametrize(("side", "size"), [(8, 32), (48, 32), (49, 64), (128, 64), (129, 224), (384, 224)])
def test_the_shorter_side_chooses_the_constants(side: int, size: int) -> None:
    sigma = {32: 0.08, 64: 0.12, 224: 0.18}[size]
    assert corruption("gaussian_noise", 3).constants_for(side) == (size, {"sigma": sigma})
    said = corruption("gaussian_noise", 3).describe(side)
    assert said == f"gaussian_noise, severity 3, constants for {size} pixels (sigma={sigma})"


def test_a_forced_size_overrules_the_picture() -> None:
    grey = torch.full((3, 64, 64), 0.5)
    spread = [float(corruption("gaussian_noise", 5, size)(image=grey, rng=seeded()).std()) for size in (32, 64, 224)]
    assert spread[0] == pytest.approx(0.10, rel=0.05)
    assert spread[1] == pytest.approx(0.18, rel=0.05)
    assert spread[2] > 0.28


def test_bar_levels_without_cifar_values_are_those_of_imagenet() -> None:
    assert corruption("sparkles", 2).constants_for(32) == (32, {"level": 3.5})
    assert corruption("plasma_noise", 2).constants_for(32) == (224, {"level": 7.0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gausian_noise", 3), "expected gaussian_noise .*, got 'gausian_noise'"),
        (("xyz", 3), "expected one of gaussian_noise, .*, got 'xyz'"),
        (("fog", 0), "expected a severity from 1 to 5, got 0"),
        (("fog", 6), "expected a severity from 1 to 5, got 6"),
        (("fog", True), "expected a severity from 1 to 5, got True"),
        (("fog", 2.0), "expected a severity from 1 to 5, got 2.0"),
        (("fog", 3, 96), "expected size 32, 64, 224 or None, got 96"),
    ],
)
def test_mistakes_are_refused_when_the_corruption_is_made(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        corruption(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(1, 32, 32), (2, 3, 32, 32), (32, 32), (3, 1, 9)])
def test_what_is_not_one_rgb_picture_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected one image of shape \(3, height, width\)"):
        corruption("contrast", 1)(image=torch.zeros(shape), rng=seeded())


def test_importing_loads_no_torch_scipy_or_pil() -> None:
    code = "import sys, testbed.perturb.corruptions; print({'torch', 'scipy', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_missing_frost_textures_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESTBED_FROST", raising=False)
    monkeypatch.setenv("TESTBED_DATA", os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")]))
    with pytest.raises(FileNotFoundError) as caught:
        corruption("frost", 1)(image=colours(32, 32), rng=seeded())
    told = str(caught.value)
    assert "\n" not in told
    for part in ("frost1.png", str(tmp_path / "a" / "frost"), "hendrycks/robustness", "TESTBED_FROST"):
        assert part in told


def test_frost_textures_are_found_under_a_data_root(
    frost_textures: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "frost").symlink_to(frost_textures)
    image = colours(32, 32)
    by_name = corruption("frost", 3)(image=image, rng=seeded())
    monkeypatch.delenv("TESTBED_FROST")
    monkeypatch.setenv("TESTBED_DATA", os.pathsep.join([str(root / "absent"), str(root)]))
    assert torch.equal(corruption("frost", 3)(image=image, rng=seeded()), by_name)


def test_frost_covers_a_picture_larger_than_its_textures(frost_textures: Path) -> None:
    out = corruption("frost", 5)(image=torch.zeros(3, 700, 500), rng=seeded())
    assert float((out > 0).float().mean()) > 0.9


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_photograph_departs_further_with_severity(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not each step for each corruption: the published constants themselves are not monotone everywhere."""
    from PIL import Image

    monkeypatch.setenv("TESTBED_FROST", str(shared_data("frost")))
    folder = shared_data("imagenet-samples")
    path = sorted(folder.glob("*/*"))[7]
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB").resize((224, 224)), dtype=np.float32) / 255
    image = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
    change = [
        np.square(corruption(name, severity)(image=image, rng=seeded()).numpy() - image.numpy()).mean() ** 0.5
        for severity in (1, 5)
    ]
    assert change[0] > 0.005
    if name not in {"elastic_transform", "saturate"}:  # published: a wide but smooth push first, grey first
        assert change[1] > change[0]
