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
from testbed.perturb.seeding import BatchRandom, GeneratorRandom, image_generator

with np.load(Path(__file__).parent / "expected" / "metaset.npz") as _file:  # written by expected/make_metaset.py
    EXPECTED = {name: _file[name] for name in _file.files}
CASES = json.loads(str(EXPECTED["cases"]))


def planes(image):
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def applied(name, image, **magnitudes):
    """One operation on one picture (height, width, 3) of bytes: a batch of one, with one of each magnitude."""
    given = {key: np.array([value]) for key, value in magnitudes.items()}
    if name != "affine":
        given = {key: torch.from_numpy(v if v.dtype == int else v.astype(np.float32)) for key, v in given.items()}
    changed = OPERATIONS[name].apply(torch.from_numpy(planes(image))[None], **given)
    assert changed.dtype == torch.uint8
    return changed[0].numpy()


def random(n=4, key="key"):
    return BatchRandom(0, key, [str(i) for i in range(n)], "cpu")


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{CASES[n][1]}-{n}")
def test_operation_gives_the_bytes_of_imgaug(number):
    name, shown, magnitudes = CASES[number]
    changed = applied(name, EXPECTED[f"picture.{shown}"], **magnitudes)
    difference = np.abs(changed.astype(int) - planes(EXPECTED[f"expected.{number}"]))
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
    np.testing.assert_array_equal(applied("autocontrast", image, cutoff=cutoff), planes(expected))


@pytest.mark.parametrize("factor", [0.0, 0.3, 0.99, 1.7, 3.0])
def test_colour_is_that_of_pillow(factor):
    image = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    expected = np.asarray(ImageEnhance.Color(Image.fromarray(image)).enhance(factor))
    np.testing.assert_array_equal(applied("colour", image, factor=factor), planes(expected))


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
    drawn = OPERATIONS[name].draw(random(2000))
    assert {(name, magnitude) for magnitude in drawn} == {key for key in RANGES if key[0] == name}
    for magnitude, values in drawn.items():
        values = np.asarray(values)
        assert len(values) == 2000
        low, high = RANGES[name, magnitude]
        assert low <= values.min() <= low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) <= values.max() <= high
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.04 * (high - low))
        if name in APART:
            assert np.mean(values[:, 0] != values[:, 1]) * 100 == pytest.approx(APART[name], abs=3.5)
            assert ((values[:, 0] == values[:, 1]) == (values[:, 1] == values[:, 2])).all()


@pytest.mark.parametrize("name", OPERATIONS)
def test_published_share_of_the_images_is_left_alone(name):
    one = np.random.default_rng(0).integers(0, 256, (1, 3, 8, 8), dtype=np.uint8)
    images = torch.from_numpy(one).expand(2000, -1, -1, -1).contiguous()
    alone = (OPERATIONS[name](images, random(2000)) == images).flatten(1).all(1)
    assert float(alone.float().mean()) * 100 == pytest.approx(LEFT_ALONE.get(name, 0), abs=3.5)


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
    images = torch.from_numpy(np.random.default_rng(3).integers(0, 256, (4, 3, 16, 16), dtype=np.uint8))
    rng, expected = random(), images
    for name in recipe(21):
        expected = OPERATIONS[name](expected, rng)
    assert torch.equal(meta_set(21).on_bytes(images, random()), expected)


def test_batch_is_made_of_the_bytes():
    images = torch.from_numpy(np.random.default_rng(3).integers(0, 256, (4, 3, 16, 16), dtype=np.uint8))
    found = meta_set(21).on_batch(images.float() / 255, random())
    assert torch.equal(found, meta_set(21).on_bytes(images, random()).float() / 255)
    assert not meta_set(21).cpu_only


def test_call_with_one_picture_is_a_batch_of_one():
    image = torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(0))
    drawn = GeneratorRandom(np.random.default_rng(5))
    assert torch.equal(meta_set(3)(image, np.random.default_rng(5)), meta_set(3).on_batch(image[None], drawn)[0])


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
