from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from testbed import CropBorder, StandardTransform
from testbed.data.transforms import transform_key
from testbed.errors import EntryError


def picture(width, height):
    rng = np.random.default_rng(width * 1000 + height)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def torchvision_result(image, resize, crop, interpolation):
    from torchvision.transforms import functional
    from torchvision.transforms.functional import InterpolationMode

    if resize is not None:
        image = functional.resize(image, resize, InterpolationMode(interpolation))
    return image if crop is None else functional.center_crop(image, crop)


def assert_as_torchvision(image, resize, crop, interpolation):
    found = StandardTransform(resize, crop, interpolation)(image)
    expected = torchvision_result(image, resize, crop, interpolation)
    assert found.size == expected.size
    assert (np.asarray(found) == np.asarray(expected)).all()


SIDE = st.integers(1, 40)
SIZE = st.one_of(st.none(), SIDE, st.tuples(SIDE, SIDE))


@settings(max_examples=200)
@given(SIDE, SIDE, SIZE, SIZE, st.sampled_from(["bilinear", "bicubic"]))
@example(7, 9, None, 8, "bilinear")  # wider and lower than the crop, odd borders
@example(8, 8, None, 11, "bilinear")
@example(50, 3, 20, 31, "bicubic")
@example(9, 12, 5, 4, "bilinear")  # crop margins of a half: rounded to even
def test_every_size_is_bit_equal_to_torchvision(width, height, resize, crop, interpolation):
    assert_as_torchvision(picture(width, height), resize, crop, interpolation)


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"])
@pytest.mark.parametrize("size", [(500, 375), (375, 500), (256, 256), (223, 301), (100, 64)])
def test_usual_configurations_are_bit_equal_to_torchvision(size, interpolation):
    assert_as_torchvision(picture(*size), 256, 224, interpolation)


def test_picture_of_the_right_size_is_not_touched():
    image = picture(224, 224)
    assert (np.asarray(StandardTransform(224, 224)(image)) == np.asarray(image)).all()
    assert StandardTransform(None, None)(image) is image


def test_crop_border_cuts_every_side():
    pixels = np.arange(7 * 9 * 3, dtype=np.uint8).reshape(7, 9, 3)
    assert (np.asarray(CropBorder(2)(Image.fromarray(pixels))) == pixels[2:-2, 2:-2]).all()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"interpolation": "cubic"},
            "interpolation must be one of nearest, bilinear, bicubic, lanczos, box, hamming, got 'cubic'",
        ),
        ({"img_resize_size": 0}, "img_resize_size must be at least 1, got 0"),
        ({"img_crop_size": (224, -1)}, "img_crop_size must be at least 1, got (224, -1)"),
        ({"img_crop_size": 22.5}, "img_crop_size must be at least 1, got 22.5"),
    ],
)
def test_wrong_transform_is_refused_when_made(how, message):
    with pytest.raises(EntryError) as error:
        StandardTransform(**how)
    assert str(error.value) == f"StandardTransform: {message}"


def test_transforms_are_values():
    assert StandardTransform([8, 9], 4) == StandardTransform((8, 9), 4)
    assert len({StandardTransform(), StandardTransform(256, 224, "bilinear"), StandardTransform(256, 225)}) == 2


def test_key_tells_transforms_apart_and_knows_no_functions():
    plain = [None, StandardTransform(), StandardTransform(255), StandardTransform(256, 224, "bicubic"), CropBorder(2)]
    keys = [transform_key(t) for t in plain]
    assert len(set(keys)) == len(plain) and None not in keys
    assert transform_key(StandardTransform(256)) == transform_key(StandardTransform())
    assert transform_key(lambda image: image) is None


@pytest.mark.parametrize("resize", [None, 32, 40, (32, 32), (32, 30)])
@pytest.mark.parametrize("crop", [None, 32, 28, (32, 32), (30, 32)])
@pytest.mark.parametrize("size", [(32, 32), (32, 48)])
def test_transform_that_is_said_to_leave_a_picture_as_it_is_does_so(resize, crop, size):
    transform = StandardTransform(resize, crop)
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8))
    unchanged = np.array_equal(np.asarray(transform(picture)), np.asarray(picture))
    assert transform.leaves_as_it_is(*size) == unchanged
