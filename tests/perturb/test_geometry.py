"""Shifts of shape, against geometry and PIL's rank filters."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from scipy import ndimage

from testbed.entries.functions import argument_names, call_by_name
from testbed.perturb.geometry import rotation, thicker_strokes, thinner_strokes, translation


def noise_image(height: int = 12, width: int = 12) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((3, height, width), dtype=np.float32))


def blob() -> torch.Tensor:
    """Something without symmetry in the middle of a black image."""
    image = torch.zeros(3, 20, 16)
    image[:, 7:12, 6:10] = torch.from_numpy(np.random.default_rng(1).random((5, 4), dtype=np.float32))
    return image


def centre_of_mass(image: torch.Tensor) -> np.ndarray:
    return np.array(ndimage.center_of_mass(image[0].double().numpy()))


@pytest.mark.parametrize("pixels", [1, 2, 5])
def test_translation_moves_the_centre_of_mass_by_the_pixels_in_all_four_directions(pixels: int) -> None:
    image = blob()
    moves = set()
    for seed in range(40):
        moved = translation(pixels)(image=image, rng=np.random.default_rng(seed))
        down, right = centre_of_mass(moved) - centre_of_mass(image)
        moves.add((round(down, 6), round(right, 6)))
    assert moves == {(-pixels, 0), (pixels, 0), (0, -pixels), (0, pixels)}


def test_translation_leaves_black_behind_and_drops_what_leaves_the_image() -> None:
    image = torch.ones(3, 8, 8)
    assert translation(3)(image, np.random.default_rng(0)).sum() == 3 * 8 * 5
    assert translation(9)(image, np.random.default_rng(0)).sum() == 0


def test_rotation_by_a_right_angle_is_that_of_numpy_to_both_sides() -> None:
    image = noise_image()
    left, right = (np.rot90(image.numpy(), turns, axes=(1, 2)) for turns in (1, -1))
    seen = set()
    for seed in range(20):
        turned = rotation(90)(image=image, rng=np.random.default_rng(seed)).numpy()
        is_left, is_right = np.allclose(turned, left, atol=1e-5), np.allclose(turned, right, atol=1e-5)
        assert is_left != is_right
        seen.add(is_left)
    assert seen == {True, False}


def test_rotation_turns_a_spot_by_the_angle() -> None:
    image = torch.zeros(3, 33, 33)
    image[:, 16, 26] = 1  # ten pixels to the right of the centre
    down, right = centre_of_mass(rotation(30)(image, np.random.default_rng(0))) - 16
    assert np.hypot(down, right) == pytest.approx(10, abs=0.3)
    assert abs(np.degrees(np.arctan2(down, right))) == pytest.approx(30, abs=1.5)


@pytest.mark.parametrize(
    ("make", "pil_filter"), [(thinner_strokes, ImageFilter.MinFilter), (thicker_strokes, ImageFilter.MaxFilter)]
)
def test_a_radius_that_reaches_the_corners_gives_pils_filter_over_three_by_three(make, pil_filter) -> None:
    grey = np.random.default_rng(2).integers(0, 256, (15, 15), dtype=np.uint8)
    image = torch.from_numpy(np.repeat(grey[None], 3, axis=0)) / 255
    expected = np.asarray(Image.fromarray(grey).filter(pil_filter(3)))
    result = np.round(make(1.5)(image=image).numpy() * 255)
    # Inside only: at the border the two libraries continue the image differently.
    assert (result[:, 1:-1, 1:-1] == expected[1:-1, 1:-1]).all()


@pytest.mark.parametrize("radius", [1, 2])
def test_a_bar_loses_or_gains_the_radius_on_either_side(radius: int) -> None:
    bar = torch.zeros(3, 24, 24)
    bar[:, :, 9:15] = 1
    assert thinner_strokes(radius)(bar)[0, 12].sum() == 6 - 2 * radius
    assert thicker_strokes(radius)(bar)[0, 12].sum() == 6 + 2 * radius


def test_channels_do_not_mix() -> None:
    image = torch.zeros(3, 9, 9)
    image[1, 4, 4] = 1
    thick = thicker_strokes(2)(image)
    assert thick[1].sum() > 1
    assert thick[0].sum() == thick[2].sum() == 0


@pytest.mark.parametrize("make", [translation, rotation, thinner_strokes, thicker_strokes])
def test_shape_type_and_range_are_kept_the_input_is_untouched_and_equal_seeds_agree(make) -> None:
    image = noise_image(10, 14)
    before = image.clone()
    perturbation = make(2)
    names = argument_names(perturbation, "perturbation_fn_cpu", "test")
    first, second = (call_by_name(perturbation, names, image=image, rng=np.random.default_rng(7)) for _ in range(2))
    assert first.shape == image.shape
    assert first.dtype == torch.float32
    assert first.min() >= 0
    assert first.max() <= 1
    assert torch.equal(first, second)
    assert torch.equal(image, before)
    assert not torch.equal(first, image)


@pytest.mark.parametrize("make", [translation, thinner_strokes, thicker_strokes])
def test_a_negative_level_is_refused(make) -> None:
    with pytest.raises(ValueError, match=r"expected .* at least 0, got -1"):
        make(-1)
