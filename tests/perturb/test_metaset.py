"""Meta sets: the seven operations against imgaug 0.4.0, and what a set promises."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from testbed.perturb.metaset import OPERATIONS, MetaSet, meta_set, recipe
from testbed.perturb.seeding import image_generator

with np.load(Path(__file__).parent / "expected" / "metaset.npz") as _file:  # written by expected/make_metaset.py
    EXPECTED = {name: _file[name] for name in _file.files}
CASES = json.loads(str(EXPECTED["cases"]))


def planes(image):
    return np.ascontiguousarray(image.transpose(2, 0, 1))


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{CASES[n][1]}-{n}")
def test_operation_gives_the_bytes_of_imgaug(number):
    name, shown, magnitudes = CASES[number]
    changed = OPERATIONS[name].apply(planes(EXPECTED[f"picture.{shown}"]), **magnitudes)
    difference = np.abs(changed.astype(int) - planes(EXPECTED[f"expected.{number}"]))
    assert changed.dtype == np.uint8
    # OpenCV adds up the nine products in another order, so that a half may go to the other side.
    assert difference.max() <= (1 if name == "sharpen" else 0)
    assert (difference > 0).mean() < 0.05


def test_every_operation_is_held_against_imgaug():
    assert {case[0] for case in CASES} == set(OPERATIONS)


@pytest.mark.parametrize("cutoff", range(0, 21, 4))
def test_autocontrast_is_that_of_pillow(cutoff):
    image = np.random.default_rng(cutoff).integers(40, 200, (9, 13, 3), dtype=np.uint8)
    image[..., 2] = 77  # a channel with one value stays
    expected = np.asarray(ImageOps.autocontrast(Image.fromarray(image), cutoff=cutoff))
    np.testing.assert_array_equal(OPERATIONS["autocontrast"].apply(planes(image), cutoff=cutoff), planes(expected))


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.99, 1.7, 3.0])
def test_colour_is_that_of_pillow(factor):
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    expected = np.asarray(ImageEnhance.Color(Image.fromarray(image)).enhance(factor))
    np.testing.assert_array_equal(OPERATIONS["colour"].apply(planes(image), factor=factor), planes(expected))


# Ranges of the published generator (Simon4Yan/Meta-set, synthesize_set_cifar.py, with imgaug's defaults).
RANGES = {
    ("autocontrast", "cutoff"): (0, 20),
    ("multiply", "factor"): (0.1, 1.9),
    ("colour", "factor"): (0, 3),
    ("solarize", "threshold"): (32, 127),
    ("contrast", "alpha"): (0.5, 2),
    ("affine", "scale"): (0.8, 1.2),
    ("affine", "shift"): (-0.2, 0.2),
    ("affine", "degrees"): (-30, 30),
    ("sharpen", "alpha"): (0.1, 1),
    ("sharpen", "lightness"): (0.8, 1.2),
}
# Of a hundred images, how many are left alone, and how many have a magnitude for each channel.
LEFT_ALONE = {"solarize": 50, "affine": 50}
APART = {"multiply": 20, "contrast": 50}


@pytest.mark.parametrize("name", OPERATIONS)
def test_magnitudes_fill_their_published_ranges(name):
    rng = np.random.default_rng(1)
    drawn = [OPERATIONS[name].draw(rng) for _ in range(2000)]
    used = [d for d in drawn if d is not None]
    assert (len(drawn) - len(used)) / 20 == pytest.approx(LEFT_ALONE.get(name, 0), abs=3.5)
    for magnitude in used[0]:
        values = np.concatenate([np.ravel(d[magnitude]) for d in used])
        low, high = RANGES[name, magnitude]
        assert low <= values.min() <= low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) <= values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.04 * (high - low))
        if name in APART:
            assert np.mean([len(d[magnitude]) == 3 for d in used]) * 100 == pytest.approx(APART[name], abs=3.5)


def test_recipes_are_three_different_operations_and_never_change():
    assert [recipe(n) for n in (0, 7, 999)] == [
        ("sharpen", "colour", "multiply"),
        ("colour", "affine", "autocontrast"),
        ("solarize", "colour", "affine"),
    ]
    recipes = [recipe(n) for n in range(1000)]
    assert all(len(set(r)) == 3 for r in recipes)
    # 7 * 6 * 5 = 210 ordered recipes; a thousand draws leave out 210 * (209 / 210) ** 1000 = 1.8 of them on average.
    assert len(set(recipes)) >= 203
    counts = Counter(operation for r in recipes for operation in r)
    assert min(counts.values()) > 1000 * 3 / 7 - 60


def test_image_of_a_set_is_the_same_each_time_and_different_for_each_image():
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    before = image.clone()

    def made(number, image_id):
        return meta_set(number)(image, image_generator(0, f"cifar10-meta-{number:03d}", image_id))

    assert torch.equal(made(4, "000001"), made(4, "000001"))
    assert not torch.equal(made(4, "000001"), made(4, "000002"))
    assert not torch.equal(made(4, "000001"), made(5, "000001"))
    assert torch.equal(image, before)


@pytest.mark.parametrize("number", range(12))
def test_set_keeps_shape_and_range_and_gives_whole_grey_levels(number):
    image = torch.from_numpy(np.random.default_rng(number).random((3, 20, 28), dtype=np.float32))
    changed = meta_set(number)(image, np.random.default_rng(number))
    assert changed.shape == image.shape and changed.dtype == torch.float32
    assert changed.min() >= 0 and changed.max() <= 1
    torch.testing.assert_close(changed * 255, (changed * 255).round(), atol=1e-4, rtol=0)


def test_set_applies_its_recipe_in_order():
    pixels = np.random.default_rng(3).integers(0, 256, (3, 16, 16), dtype=np.uint8)
    rng, expected = np.random.default_rng(8), pixels
    for name in recipe(21):
        magnitudes = OPERATIONS[name].draw(rng)
        expected = expected if magnitudes is None else OPERATIONS[name].apply(expected, **magnitudes)
    np.testing.assert_array_equal(meta_set(21).on_bytes(pixels, np.random.default_rng(8)), expected)


def test_set_tells_its_recipe():
    assert repr(meta_set(7)) == (
        "meta set 7: colour (factor 0 (grey) to 3), then affine (50% of the images, scale 0.8 to 1.2 and shift -0.2 to "
        "0.2 of the side along x and y, -30 to 30 degrees), then autocontrast (cutoff 0 to 20 % at either end)"
    )
    assert pickle.loads(pickle.dumps(meta_set(7))) == meta_set(7)


@pytest.mark.parametrize("number", [-1, 1.0, True, "7"])
def test_wrong_number_is_refused(number):
    with pytest.raises(ValueError, match="meta set: expected a whole number from 0 on, got"):
        MetaSet(number)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 1, 8), (8, 8), (2, 3, 8, 8)])
def test_image_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match="meta set 0: expected one image of shape"):
        meta_set(0)(torch.zeros(shape), np.random.default_rng(0))
