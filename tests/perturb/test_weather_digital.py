"""Weather, digital corruptions and spatter on batches, and their parts against slower programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.perturb.corruptions import corruption
from testbed.perturb.corruptions.spatter import canny, chamfer_distance, equalised
from testbed.perturb.seeding import BatchRandom

RANDOM = ("snow", "fog", "frost", "elastic_transform", "spatter")
FIXED = ("brightness", "contrast", "saturate", "jpeg_compression", "pixelate")
TEXTURES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def random(*ids: str) -> BatchRandom:
    return BatchRandom(7, "key", ids, "cpu")


def colours(count: int, height: int, width: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((count, 3, height, width), dtype=np.float32))


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Textures whose red tells the number of the texture, green the row and blue the column."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("frost")
    rows, columns = np.mgrid[:120, :160]
    for number, name in enumerate(TEXTURES):
        pixels = np.stack([np.full_like(rows, 50 * number), 2 * rows, columns], axis=2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name, quality=100)
    return folder


@pytest.fixture(autouse=True)
def textures(invented: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_FROST", str(invented))


@pytest.mark.parametrize("severity", [2, 5])
@pytest.mark.parametrize("name", RANDOM + FIXED)
def test_batch_of_three_equals_single_pictures(name: str, severity: int) -> None:
    ours, ids = corruption(name, severity, size=224), ("a", "b", "c")
    images = colours(1, 75, 90).expand(3, -1, -1, -1) * torch.tensor([1, 0.8, 0.6])[:, None, None, None]
    together = ours.on_batch(images, random(*ids))
    alone = torch.cat([ours.on_batch(images[i : i + 1], random(ids[i])) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)
    assert (together[0] - together[1]).abs().max() > 0.01
    same = ours.on_batch(images[:1].expand(2, -1, -1, -1), random("a", "b"))
    assert torch.equal(same[0], same[1]) == (name in FIXED)


def test_frost_gives_each_picture_a_texture_and_a_place_of_its_own() -> None:
    ids = [str(number) for number in range(200)]
    # On black, with the weight 0.75 of severity 5.
    levels = corruption("frost", 5, size=224).on_batch(torch.zeros(200, 3, 40, 60), random(*ids)) * 255 / 0.75
    number, top, left = levels[:, 0, 0, 0] / 50, levels[:, 1, 0, 0] / 2, levels[:, 2, 0, 0]
    counts = number.round().int().bincount(minlength=5)
    assert counts.sum() == 200
    assert counts.min() >= 20 and counts.max() <= 65
    for place, room in ((top, 80), (left, 100)):
        assert -2 <= place.min() < 0.1 * room
        assert 0.9 * room < place.max() <= room + 1  # the last place is never drawn, as published; JPEG adds a little
        assert float(place.mean()) == pytest.approx(room / 2, rel=0.15)
    # The rows and columns of the crop follow each other.
    assert float((levels[:, 1, -1, 0] - levels[:, 1, 0, 0]).mean()) == pytest.approx(78, abs=1)
    assert float((levels[:, 2, 0, -1] - levels[:, 2, 0, 0]).mean()) == pytest.approx(59, abs=1)


@pytest.mark.parametrize("severity", [1, 3, 4, 5])
@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("name", RANDOM + FIXED)
def test_flat_pictures_stay_finite(name: str, size: int, severity: int) -> None:
    images = torch.tensor([0, 1e-20, 0.4, 1])[:, None, None, None].expand(4, 3, 24, 33).contiguous()
    out = corruption(name, severity, size).on_batch(images, random("a", "b", "c", "d"))
    assert bool(torch.isfinite(out).all())
    assert out.min() >= 0
    assert out.max() <= 1


def test_colours_without_a_hue() -> None:
    grey = torch.tensor([0, 0.4])[:, None, None, None].expand(2, 3, 8, 8).contiguous()
    lifted = corruption("brightness", 5, 224).on_batch(grey, random("a", "b"))  # by 0.5
    torch.testing.assert_close(lifted, grey + 0.5)
    # Saturation 0 * 20 + 0.2 of a grey pixel, which counts as red; black has no colour.
    reddened = corruption("saturate", 5, 224).on_batch(grey, random("a", "b"))
    expected = grey * torch.tensor([1, 0.8, 0.8])[:, None, None]
    torch.testing.assert_close(reddened, expected)


@pytest.mark.parametrize("scale", [0.95, 0.6, 0.5, 0.3, 0.25])
def test_pixelate_gives_the_bytes_of_pil(scale: float) -> None:
    """At sides where the end of a box meets the middle of a pixel, too. None is twice as high as wide."""
    from PIL import Image

    from testbed.perturb.corruptions.digital import pixelate

    for height, width in ((2, 3), (25, 57), (64, 50), (99, 224), (201, 130)):
        images = (colours(2, height, width) * 255).round() / 255
        found = pixelate(images, random("a", "b"), scale) * 255
        for image, levels in zip(images, found, strict=True):
            picture = Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())
            small = picture.resize((max(int(width * scale), 1), max(int(height * scale), 1)), Image.Resampling.BOX)
            expected = np.asarray(small.resize((width, height), Image.Resampling.BOX)).transpose(2, 0, 1)
            np.testing.assert_array_equal(levels.round().numpy(), expected)


@pytest.mark.parametrize(("height", "width"), [(2, 2), (3, 41), (37, 50), (45, 23)])
def test_distances_are_those_to_the_nearest_of_all_edges(height: int, width: int) -> None:
    rows, columns = np.mgrid[:height, :width]
    for seed, share in enumerate((0, 0.002, 0.01, 0.1)):
        edges = np.random.default_rng(seed).random((height, width)) < share
        expected = np.full((height, width), 20.0)
        for row, column in np.argwhere(edges):
            shorter, longer = np.sort([abs(rows - row), abs(columns - column)], axis=0)
            knights = np.minimum(shorter, longer - shorter)  # moves of 2.1969
            rest = np.where(2 * shorter <= longer, longer - 2 * knights, 1.4 * (2 * shorter - longer))
            expected = np.minimum(expected, 2.1969 * knights + rest)
        np.testing.assert_allclose(chamfer_distance(edges), expected, atol=1e-3)


def test_edges_grow_along_weak_ridges_from_strong_ones() -> None:
    """A step across the picture that fades from strong to weak, and a weak one apart."""
    levels = np.zeros((40, 64), dtype=np.uint8)
    levels[:, 20:44] = np.linspace(80, 20, 40).astype(np.uint8)[:, None]
    levels[20:, 52:] = 20
    edges = canny(levels, 50, 150)
    assert edges[:, 18:22].any(axis=1).all() and edges[:, 42:46].any(axis=1).all()
    assert not canny(levels, 50, 400).any()
    assert not edges[:, 50:].any()
    assert edges.sum() < 100  # thin


@pytest.mark.parametrize("shape", [(5, 5), (6, 7), (30, 44)])
def test_equalised_levels_are_shares_of_the_pixels_above_the_lowest(shape: tuple[int, int]) -> None:
    levels = np.random.default_rng(0).integers(3, 21, shape, dtype=np.uint8)
    above = (levels > levels.min()).sum()
    share = np.array([[((levels <= level) & (levels > levels.min())).sum() / above for level in row] for row in levels])
    np.testing.assert_allclose(equalised(levels), 255 * share, atol=0.5)
    np.testing.assert_array_equal(equalised(np.full(shape, 9, dtype=np.uint8)), np.full(shape, 9))
